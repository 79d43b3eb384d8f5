// A send may wait for its receiver: that has begun to receive once it is through the steps before
// the sender's by the clock of the schedule, for which it needs nothing that this rank has not sent
// by then. So the oldest sends can be waited for without a circle.
#include "core/train/executor/handover.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/profile.hpp"
#include "core/base/tensor.hpp"
#include "core/shard/elements.hpp"

namespace fastllm::train {
namespace {

using model::Phase;

// More would hold the memory of values that are long gone from here.
constexpr size_t kMostSends = 8;

distributed::Memory memory(void* block, const Held& held) {
  return {block, held.elements, held.tensor.dtype};
}

}  // namespace

Handover::Handover(const Wiring& wiring, const Crossings& crossings, const std::vector<int>& uses,
                   ActivationPool& pool, distributed::Communicator* pipeline)
    : wiring_(wiring), crossings_(crossings), uses_(uses), pool_(pool), pipeline_(pipeline) {}

const std::vector<int>& Handover::crossing(const model::Step& step, bool arriving) const {
  // A boundary belongs to the stage above it: forward arrives there, backward leaves from it.
  const bool above = (step.phase == Phase::kForward) == arriving;
  return crossings_.into[size_t(above ? step.stage : step.stage + 1)];
}

bool Handover::travels(int value, Phase phase) const {
  return phase == Phase::kForward || wiring_.values[size_t(value)].gradient;
}

void Handover::begin_receives(const std::vector<model::Step>& schedule, size_t step,
                              std::vector<Pass>& passes) {
  incoming_.resize(schedule.size());
  for (int consumer : schedule[step].receives) {
    const model::Step& to = schedule[size_t(consumer)];
    Pass& pass = passes[size_t(to.micro_batch)];
    for (int value : crossing(to, true)) {
      if (!travels(value, to.phase)) continue;
      const Held& held = pass.values[size_t(value)];
      Incoming incoming{value, pool_.take(held.bytes), held.bytes, {}};
      incoming.pending = pipeline_->receive(memory(incoming.block, held), to.from);
      incoming_[size_t(consumer)].push_back(std::move(incoming));
    }
  }
}

void Handover::receive(const std::vector<model::Step>& schedule, size_t step, Pass& pass) {
  if (schedule[step].from < 0) return;
  if (schedule[step].phase == Phase::kBackward) end_sends_of(schedule[step], pass);
  const profile::Span span("receive", "pipeline", int64_t(step), pass.index);
  for (Incoming& incoming : incoming_[step]) {
    incoming.pending.wait();
    Held& held = pass.values[size_t(incoming.value)];
    void* const block = std::exchange(incoming.block, nullptr);
    if (schedule[step].phase == Phase::kForward) {
      FASTLLM_ASSERT(held.uses == 0);
      held.tensor.data = block;
      held.uses = uses_[size_t(incoming.value)];
    } else if (!held.gradient.data) {
      held.gradient.data = block;
    } else {
      shard::add(held.gradient.data, held.tensor.dtype, block, held.tensor.dtype, held.elements);
      pool_.give(block, held.bytes);
    }
  }
  incoming_[step].clear();
}

void Handover::send(const model::Step& step, Pass& pass) {
  if (step.to < 0) return;
  for (int value : crossing(step, false)) {
    if (!travels(value, step.phase)) continue;
    Held& held = pass.values[size_t(value)];
    Outgoing outgoing{nullptr, nullptr, held.bytes, {}};
    if (step.phase == Phase::kForward) {
      outgoing.value = &held;
      outgoing.pending = pipeline_->send(memory(held.tensor.data, held), step.to);
    } else {
      outgoing.block = std::exchange(held.gradient.data, nullptr);
      if (!outgoing.block) {  // none of the readers gave one
        outgoing.block = pool_.take(held.bytes);
        std::memset(outgoing.block, 0, size_t(held.bytes));
      }
      outgoing.pending = pipeline_->send(memory(outgoing.block, held), step.to);
    }
    outgoing_.push_back(std::move(outgoing));
    if (outgoing_.size() > kMostSends) end_first_send();
  }
}

void Handover::end_sends_of(const model::Step& backward, Pass& pass) {
  for (int value : crossing(backward, true)) {
    const auto sent = std::find_if(
        outgoing_.begin(), outgoing_.end(),
        [&](const Outgoing& outgoing) { return outgoing.value == &pass.values[size_t(value)]; });
    if (sent == outgoing_.end()) continue;
    end_send(*sent);
    outgoing_.erase(sent);
  }
}

void Handover::end_first_send() {
  end_send(outgoing_.front());
  outgoing_.pop_front();
}

void Handover::end_send(Outgoing& outgoing) {
  outgoing.pending.wait();
  pool_.give(outgoing.block, outgoing.bytes);
  if (!outgoing.value || --outgoing.value->uses > 0) return;
  pool_.give(outgoing.value->tensor.data, outgoing.bytes);
  outgoing.value->tensor.data = nullptr;
}

void Handover::finish() {
  while (!outgoing_.empty()) end_first_send();
}

void Handover::clear() {
  for (std::vector<Incoming>& step : incoming_) {
    for (Incoming& incoming : step) {
      incoming.pending.abandon();
      pool_.give(incoming.block, incoming.bytes);
    }
    step.clear();
  }
  for (Outgoing& outgoing : outgoing_) {
    outgoing.pending.abandon();
    pool_.give(outgoing.block, outgoing.bytes);
  }
  outgoing_.clear();
}

}  // namespace fastllm::train
