// Hears at once that the process of another rank has ended: every rank keeps a connection to rank 0,
// which the system closes with the process, whatever ended it. No more than that: a process that
// stands still keeps its connections, and where none can be made (a firewall) signs of life remain.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/base/descriptor.hpp"
#include "core/distributed/store.hpp"

namespace fastllm::distributed {

class Lifelines {
 public:
  using Ended = std::function<void(int rank)>;

  // Rank 0 says in the store where it listens; before any other rank looks.
  static std::unique_ptr<Lifelines> of_first(Store& store, int size);
  // host: where this rank reaches rank 0. Waits at most two seconds; never throws but StoreLost.
  static std::unique_ptr<Lifelines> of_other(Store& store, int rank, const std::string& host);
  ~Lifelines();

  // From now on ended(rank) is called once for each rank whose process ends, by a thread of this.
  void watch(Ended ended);

 private:
  struct Line {
    Descriptor socket;
    int rank = -1;  // at the other end; -1: it has not said
  };
  Lifelines() = default;
  void run();
  void accept_one();
  bool still_there(Line& line);  // false: close it

  uint64_t word_ = 0;        // by which a rank of this run is known; others may connect as well
  int size_ = 0;             // ranks
  Descriptor listening_;     // of rank 0
  Descriptor wake_;          // written to: the thread ends
  std::vector<Line> lines_;  // of the thread, once it runs
  Ended ended_;
  std::thread thread_;
};

}  // namespace fastllm::distributed
