// One ending for all ranks: what went wrong on one is known to the others within seconds, also when it
// was killed, or stands still. Each process shows signs of life in the store, and looks at one other's;
// that one has ended is heard sooner, from its connection (lifelines.hpp).
//
// The training thread learns of a failure by check(), which every collective calls. A process whose
// training thread does not is ended by the watch itself, with the same sentence and exit code 1.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/distributed/communicator.hpp"
#include "core/distributed/store.hpp"

namespace fastllm::distributed {

struct WatchOptions {
  // As below, in proportion to the silence.
  static WatchOptions within(std::chrono::milliseconds silence);

  std::chrono::milliseconds beat{500};        // between two signs of life
  std::chrono::milliseconds silence{8000};    // without one for so long: the rank has failed
  std::chrono::milliseconds suspicion{3000};  // the same, once communication has failed
  std::chrono::milliseconds grace{2000};      // for the training thread to end by itself
  bool store_of_launcher = false;             // else rank 0 holds it
  // Called with the sentence when it did not.
  std::function<void(const std::string&)> end_process;  // empty: prints it, and ends at once
  int interrupted_code = 1;  // the process's, when a rank was asked to stop
};

// Reason of an end elsewhere: "rank 2 failed: ..."; kCancelled: a rank was asked to stop.
class PeerFailure : public Error {
 public:
  explicit PeerFailure(std::string text, Status status = Status::kUnavailable)
      : Error(status, std::move(text)) {}
};

class FailureWatch {
 public:
  // store: its own connection. names: how ranks are told apart for people, "host node3, process 17".
  FailureWatch(std::shared_ptr<Store> store, int rank, std::vector<std::string> names,
               WatchOptions options = {});
  ~FailureWatch();  // as finish() when nothing has failed

  // What this rank is about to do; shown when others wait for it in vain.
  void begin(const Group& group, Operation operation, int64_t number);
  // Throws PeerFailure when some rank has failed.
  void check() const;
  // The process of that rank is connected no longer: it has failed, unless it said that it is done.
  // Any thread; returns at once.
  void lost(int rank);
  // This rank fails with that sentence; kCancelled: it was asked to stop, and so are the others.
  // Returns when the others know, or had time enough.
  void fail(const std::string& sentence, Status status = Status::kUnavailable) noexcept;
  // A call over the group failed here. Throws PeerFailure when the root of it becomes known soon.
  void explain(const Group& group, Operation operation, int64_t number, const std::string& reason);
  // Throws PeerFailure if a reason becomes known within that time.
  void await(std::chrono::milliseconds most) const;
  // No more failures: this rank is done. Call after a last meeting of all ranks.
  void finish() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace fastllm::distributed
