// How the ranks of a run find each other: one process holds the store, all others come to it and say
// who they are. Every way in which this goes wrong is told in one sentence, on all ranks that came.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/distributed/backend.hpp"
#include "core/distributed/environment.hpp"

namespace fastllm::distributed {

struct MeetingPlace {
  StoreAddress address;         // of this process: rank 0 serves there
  StoreAddress second_address;  // for further connections
};

// Which process holds the store and where. Takes the port on the rank that serves.
// Throws when the port is taken (by whom, where that can be seen), or nobody said where to meet.
MeetingPlace find_meeting_place(const LaunchEnvironment& launch, int rank,
                                std::chrono::milliseconds timeout);

// Waits until something listens there; a process that is not up yet is waited for.
void wait_for_listener(const StoreAddress& address, std::chrono::milliseconds timeout);

// Says who this rank is, and waits for all. Returns how each is told apart: "node3, process 17".
// Throws on every rank: which did not come, which two say the same number, which was started for
// another number of ranks or by another version.
std::vector<std::string> introduce(Store& store, int rank, int size, const std::string& version,
                                   std::chrono::milliseconds timeout);

// "process 17 (python3)": who listens on that port of this computer; empty: cannot be seen.
std::string port_holder(int port);

}  // namespace fastllm::distributed
