// Mirrors core/train/executor: its tests hold the two together.
#include "core/plan/activations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "core/base/error.hpp"
#include "core/train/executor/activation_pool.hpp"
#include "core/train/executor/value_shape.hpp"

namespace fastllm::plan {
namespace {

using model::Phase;
using model::Step;
using train::Input;
using train::Value;
using train::WiredLayer;

constexpr size_t kMostSends = 8;  // the executor ends older ones

struct Pass {  // a micro-batch
  std::vector<int> uses;
  std::vector<char> held, gradient;  // by value: takes memory now
  std::vector<char> kept;            // by layer
  bool preprocessed = false;
};

class Walk {
 public:
  Walk(const Wires& wires, int rank, const MicroBatch& micro_batch,
       const std::vector<int64_t>& kept)
      : w_(wires),
        wiring_(wires.wiring),
        kept_bytes_(kept),
        uses_(train::uses_on(wiring_, w_.layout, w_.crossings,
                             w_.layout.world().pipeline_rank(rank))) {
    const size_t layers = wiring_.layers.size();
    result.forwards.resize(layers);
    result.recomputed.resize(layers);
    result.backwards.resize(layers);
    for (const Value& value : wiring_.values) {
      const auto bytes =
          train::value_bytes(value, micro_batch.samples, micro_batch.length, w_.training);
      if (!bytes)
        throw Error(Status::kOutOfMemory,
                    fmt::format("output {}: expected less than 2^63 bytes, found more; lower "
                                "batch.micro_batch_size",
                                value.name));
      bytes_.push_back(train::ActivationPool::block_bytes(*bytes));
    }
  }

  void run(const std::vector<Step>& schedule) {
    for (size_t s = 0; s < schedule.size(); ++s) {
      const Step& step = schedule[s];
      const shard::Stage& stage = w_.layout.stages()[size_t(step.stage)];
      Pass& pass = pass_of(step);
      begin_receives(schedule, step);
      receive(step, pass);
      if (step.phase == Phase::kForward) {
        const Step* next = s + 1 < schedule.size() ? &schedule[s + 1] : nullptr;
        forward_stage(pass, stage,
                      next && next->phase == Phase::kBackward && next->stage == step.stage &&
                          next->micro_batch == step.micro_batch);
      } else {
        for (int l = stage.first_layer + stage.layer_count - 1; l >= stage.first_layer; --l)
          backward(pass, l);
      }
      send(step, pass);
    }
  }

  Activations result;

 private:
  Pass& pass_of(const Step& step) {
    if (passes_.size() <= size_t(step.micro_batch)) passes_.resize(size_t(step.micro_batch) + 1);
    Pass& pass = passes_[size_t(step.micro_batch)];
    if (pass.uses.empty()) {
      pass.uses.assign(wiring_.values.size(), 0);
      pass.held = pass.gradient = std::vector<char>(wiring_.values.size(), 0);
      pass.kept.assign(wiring_.layers.size(), 0);
    }
    return pass;
  }

  void take(int value) {
    in_use_ += bytes_[size_t(value)];
    result.peak_bytes = std::max(result.peak_bytes, in_use_);
    result.peak_with_kept = std::max(result.peak_with_kept, in_use_ + kept_);
  }
  void keep(int layer, int sign) {
    if (kept_bytes_.empty()) return;
    kept_ += sign * kept_bytes_[size_t(layer)];
    result.peak_with_kept = std::max(result.peak_with_kept, in_use_ + kept_);
  }
  void give(int value) { in_use_ -= bytes_[size_t(value)]; }

  void release(Pass& pass, int v) {
    if (--pass.uses[size_t(v)] > 0 || !pass.held[size_t(v)]) return;
    pass.held[size_t(v)] = 0;
    give(v);
  }
  void release_inputs(Pass& pass, const WiredLayer& layer) {
    for (const Input& input : layer.inputs)
      if (input.value >= 0) release(pass, input.value);
  }
  void take_gradient(Pass& pass, int v) {
    pass.gradient[size_t(v)] = 1;
    take(v);
  }

  void forward_stage(Pass& pass, const shard::Stage& stage, bool turns) {
    if (!pass.preprocessed)
      for (int l = 0; l < int(wiring_.layers.size()) && wiring_.layers[size_t(l)].every_stage; ++l)
        forward(pass, l, false, false);
    pass.preprocessed = true;
    const int end = stage.first_layer + stage.layer_count;
    for (int l = stage.first_layer; l < end; ++l)
      forward(pass, l,
              wiring_.layers[size_t(l)].backward && (!w_.recompute || (turns && l + 1 == end)),
              false);
  }

  void forward(Pass& pass, int l, bool save, bool again) {
    const WiredLayer& layer = wiring_.layers[size_t(l)];
    ++result.forwards[size_t(l)];
    result.recomputed[size_t(l)] += again;
    const int end = layer.first_value + layer.values;
    for (int v = layer.first_value; v < end; ++v) {
      if (!wiring_.values[size_t(v)].asked) continue;
      pass.held[size_t(v)] = 1;
      pass.uses[size_t(v)] = 1;
      take(v);
    }
    pass.kept[size_t(l)] = save;
    if (save) keep(l, 1);
    for (int v = layer.first_value; v < end; ++v) {
      if (!pass.held[size_t(v)]) continue;
      if (!again) pass.uses[size_t(v)] += uses_[size_t(v)];
      if (save && keeps(v)) ++pass.uses[size_t(v)];
      release(pass, v);
    }
    if (!again && !layer.backward) release_inputs(pass, layer);
  }

  bool keeps(int v) const { return wiring_.values[size_t(v)].port->flags & FASTLLM_PORT_KEEP; }

  void backward(Pass& pass, int l) {
    const WiredLayer& layer = wiring_.layers[size_t(l)];
    if (!layer.backward) return;
    if (!pass.kept[size_t(l)]) forward(pass, l, true, true);
    ++result.backwards[size_t(l)];
    const int end = layer.first_value + layer.values;
    for (int v = layer.first_value; v < end; ++v)
      if (wiring_.values[size_t(v)].loss >= 0 && !pass.gradient[size_t(v)]) take_gradient(pass, v);
    std::vector<int> extra;  // gradients beside one that is there
    for (const Input& input : layer.inputs) {
      if (!input.gradient) continue;
      if (!pass.gradient[size_t(input.value)]) {
        take_gradient(pass, input.value);
      } else {
        extra.push_back(input.value);
        take(input.value);
      }
    }
    keep(l, -1);
    for (int v : extra) give(v);
    for (int v = layer.first_value; v < end; ++v) {
      if (pass.gradient[size_t(v)]) give(v);
      pass.gradient[size_t(v)] = 0;
      if (keeps(v) && pass.uses[size_t(v)] > 0) release(pass, v);
    }
    release_inputs(pass, layer);
  }

  // ------------------------------------------------------------- other pipeline ranks

  const std::vector<int>& crossing(const Step& step, bool arriving) const {
    const bool above = (step.phase == Phase::kForward) == arriving;
    return w_.crossings.into[size_t(above ? step.stage : step.stage + 1)];
  }
  bool travels(int v, Phase phase) const {
    return phase == Phase::kForward || wiring_.values[size_t(v)].gradient;
  }

  void begin_receives(const std::vector<Step>& schedule, const Step& step) {
    for (int consumer : step.receives) {
      const Step& to = schedule[size_t(consumer)];
      for (int v : crossing(to, true))
        if (travels(v, to.phase)) take(v);
    }
  }

  void receive(const Step& step, Pass& pass) {
    if (step.from < 0) return;
    if (step.phase == Phase::kBackward) end_sends_of(step);
    for (int v : crossing(step, true)) {
      if (!travels(v, step.phase)) continue;
      if (step.phase == Phase::kForward) {
        pass.held[size_t(v)] = 1;
        pass.uses[size_t(v)] = uses_[size_t(v)];
      } else if (!pass.gradient[size_t(v)]) {
        pass.gradient[size_t(v)] = 1;
      } else {
        give(v);
      }
    }
  }

  void send(const Step& step, Pass& pass) {
    if (step.to < 0) return;
    for (int v : crossing(step, false)) {
      if (!travels(v, step.phase)) continue;
      if (step.phase == Phase::kBackward && !pass.gradient[size_t(v)]) take(v);
      if (step.phase == Phase::kBackward) pass.gradient[size_t(v)] = 0;
      sends_.push_back({step.phase, step.micro_batch, v});
      if (sends_.size() > kMostSends) {
        end_send(sends_.front());
        sends_.pop_front();
      }
    }
  }

  struct Send {
    Phase phase;
    int micro_batch, value;
  };
  void end_send(const Send& send) {
    if (send.phase == Phase::kBackward)
      give(send.value);
    else
      release(passes_[size_t(send.micro_batch)], send.value);
  }
  void end_sends_of(const Step& backward) {
    for (int v : crossing(backward, true)) {
      const auto sent = std::find_if(sends_.begin(), sends_.end(), [&](const Send& send) {
        return send.phase == Phase::kForward && send.micro_batch == backward.micro_batch &&
               send.value == v;
      });
      if (sent == sends_.end()) continue;
      end_send(*sent);
      sends_.erase(sent);
    }
  }

  const Wires& w_;
  const train::Wiring& wiring_;
  const std::vector<int64_t>& kept_bytes_;  // by layer
  const std::vector<int> uses_;
  std::vector<int64_t> bytes_;  // by value, of a block
  std::vector<Pass> passes_;
  std::deque<Send> sends_;
  int64_t in_use_ = 0, kept_ = 0;
};

}  // namespace

Activations activations(const Wires& wires, int rank, const std::vector<Step>& schedule,
                        const MicroBatch& micro_batch, const std::vector<int64_t>& kept) {
  Walk walk(wires, rank, micro_batch, kept);
  walk.run(schedule);
  return walk.result;
}

}  // namespace fastllm::plan
