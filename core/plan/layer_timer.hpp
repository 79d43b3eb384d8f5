// Runs single layers of a model on made-up values, to see how long they take and what
// they keep.
#pragma once

#include <functional>
#include <memory>

#include "core/model/model.hpp"
#include "core/plan/activations.hpp"

namespace fastllm::plan {

struct LayerTime {
  double forward = 0, backward = 0;  // seconds of one call each
  int64_t kept = 0;                  // bytes that its forward keeps for its backward
};

class LayerTimer {
 public:
  // together: called before a layer runs, so that ranks run it at the same time.
  // idle_bytes: that the model's allocator has, but for reuse alone.
  LayerTimer(model::Model& model, const Wires& wires, const MicroBatch& micro_batch,
             std::function<void()> together, std::function<int64_t()> idle_bytes);
  ~LayerTimer();
  // The median of a few calls. Layers that are alike are timed once.
  LayerTime time(int layer);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastllm::plan
