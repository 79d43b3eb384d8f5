// What takes place after a step, besides the next one: decided once, from the iteration, the clock and
// the signal, and read by all that follows. Neither clock nor signal is the same on every rank: what
// one of them says holds for all. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/distributed/communicator.hpp"
#include "core/train/settings/settings.hpp"
#include "core/train/step_batches.hpp"

namespace fastllm::train {

struct Decisions {
  bool last = false;  // of the training
  bool log = false, save = false;
  std::vector<const ValidationSet*> validate;  // in order of definition
  bool shutdown = false, time_is_up = false;   // planned stops; the last iteration needs none
  bool signal = false;                         // asked to stop
  bool stop_is_planned() const { return shutdown || time_is_up; }
};

class Decider {
 public:
  // Borrows the settings, and all ranks of the run; world null: one. From now on time counts for the
  // intervals.
  Decider(const TrainingSettings& training, Clock clock,
          distributed::Communicator* world = nullptr);

  // After step `iteration`. All ranks call.
  Decisions decide(int64_t iteration);
  // What was decided is over: evaluations and saves take their time, and the next ones by time
  // count from their end.
  void carried_out(const Decisions& decisions);
  // Whether a signal asks this rank to stop.
  static bool signalled();

 private:
  const TrainingSettings& training_;
  const Clock clock_;
  distributed::Communicator* const world_;
  double last_log_, last_save_;                    // when, in seconds of the clock
  std::map<std::string, double> last_validation_;  // by the set's name
};

}  // namespace fastllm::train
