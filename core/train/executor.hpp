// Runs the layers of a model over micro-batches: wiring by name, activations, backward, recomputation.
// Knows stages and buffers through shard::Store, the order through model::Schedule; no optimizer, no data loading.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/data/batch.hpp"
#include "core/model/model.hpp"
#include "core/model/schedule.hpp"
#include "core/shard/store.hpp"

namespace fastllm::train {

struct ExecutorOptions {
  bool recompute = false;        // activations of a layer are made again in its backward (host option, per layer)
  uint64_t seed = 0;             // of the step's random numbers, mixed with step, micro-batch and layer
};

struct StepInput {
  std::vector<const data::Batch*> micro_batches;
  int64_t step = 0;
  double loss_scale = 1;
  int64_t valid_labels = 0;      // over all micro-batches and data ranks
};

struct StepOutput {
  std::map<std::string, double> losses;    // by output name, reduced as the port's flags say
  std::map<std::string, double> metrics;
};

class Executor {
 public:
  Executor(model::Model& model, shard::Store& store, const ExecutorOptions& options);
  ~Executor();
  // Forward and backward of all micro-batches; leaves reduced gradients in the grads shard. Weights are restored as needed.
  StepOutput train(const StepInput& input, const std::vector<model::Step>& schedule);
  // Forward only, no saves, no dropout.
  StepOutput evaluate(const StepInput& input, const std::vector<model::Step>& schedule);
  // The batch entries that the model's inputs name and this host cannot deliver are an Error at construction.

  // For tests and tensor logs: called with every output of every layer (forward) and every gradient (backward).
  // An OPTIONAL output is asked for when this is set.
  std::function<void(const std::string& name, const DLTensor&, bool backward)> observer;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastllm::train
