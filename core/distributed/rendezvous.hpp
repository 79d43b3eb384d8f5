// Where the ranks of a run meet: one process holds the store, all others come to it. What they say
// there is in introduction.hpp.
#pragma once

#include <chrono>
#include <string>

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

// Throws kCancelled when a signal asked this process to stop: before a run begins, waiting ends at once.
void heed_signal(const std::string& waiting_for);

}  // namespace fastllm::distributed
