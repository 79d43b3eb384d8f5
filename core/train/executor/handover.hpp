// The messages between pipeline ranks in one step: values with the forward steps, their gradients
// with the backward steps. Receives begin where the schedule says, sends as soon as a step is
// through; neither keeps the rank from computing. One thread.
#pragma once

#include <deque>
#include <vector>

#include "core/distributed/communicator.hpp"
#include "core/model/schedule.hpp"
#include "core/train/executor/activation_pool.hpp"
#include "core/train/executor/crossings.hpp"
#include "core/train/executor/pass.hpp"

namespace fastllm::train {

class Handover {
 public:
  // pipeline: null for one rank, which never calls more than finish() and clear(). All borrowed.
  Handover(const Wiring& wiring, const Crossings& crossings, const std::vector<int>& uses,
           ActivationPool& pool, distributed::Communicator* pipeline);

  // Before a step: begins to receive for those steps of the schedule that it names.
  void begin_receives(const std::vector<model::Step>& schedule, size_t step,
                      std::vector<Pass>& passes);
  // Waits for what a step works on. Before a backward, what its forward sent is through: the gradient
  // comes from those who have got it.
  void receive(const std::vector<model::Step>& schedule, size_t step, Pass& pass);
  // What it made goes to the next.
  void send(const model::Step& step, Pass& pass);
  // All has been sent.
  void finish();
  // Gives up what is under way, after a failure.
  void clear();

 private:
  struct Incoming {
    int value;
    void* block;
    int64_t bytes;
    distributed::Pending pending;
  };
  struct Outgoing {
    Held* value;  // of which a use ends; null: a gradient was sent
    void* block;  // that gradient
    int64_t bytes;
    distributed::Pending pending;
  };
  // The values whose tensors, or gradients, a step works on, or makes, if they cross.
  const std::vector<int>& crossing(const model::Step& step, bool arriving) const;
  bool travels(int value, model::Phase phase) const;
  void end_sends_of(const model::Step& backward, Pass& pass);
  void end_first_send();
  void end_send(Outgoing& outgoing);

  const Wiring& wiring_;
  const Crossings& crossings_;
  const std::vector<int>& uses_;
  ActivationPool& pool_;
  distributed::Communicator* pipeline_;
  std::vector<std::vector<Incoming>> incoming_;  // by step of the schedule
  std::deque<Outgoing> outgoing_;
};

}  // namespace fastllm::train
