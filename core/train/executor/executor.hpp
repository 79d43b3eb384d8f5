// Runs the layers of a model over micro-batches: wiring by name, activations, backward,
// recomputation. Knows stages and buffers through shard::Store, the order through model::Schedule;
// no optimizer, no data loading.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/data/batch.hpp"
#include "core/model/model.hpp"
#include "core/model/schedule.hpp"
#include "core/shard/store.hpp"
#include "core/train/executor/observer.hpp"

namespace fastllm::train {

struct ExecutorOptions {
  // What a layer's backward needs is made again right before it; only inputs are kept until then.
  bool recompute = false;
  // Mixed with step, micro-batch, layer and the rank of those with other samples into call->seed;
  // call->offset is 0, so that a plugin may count on from there in one call. A forward that is made
  // again gets the same two.
  uint64_t seed = 0;
  // The data ranks, which have as many micro-batches each (those that share samples: their parts of
  // the same ones), and the pipeline ranks, which have the other stages; losses and metrics are summed
  // over both at the end of a step. Null: one rank.
  // Borrowed.
  distributed::Communicator* data = nullptr;
  distributed::Communicator* pipeline = nullptr;
  // Each tensor rank has its part of the tokens of SPLIT ports.
  bool sequence_tensor = false;
};

struct StepInput {
  std::vector<const data::Batch*> micro_batches;
  int64_t step = 0;
  double loss_scale = 1;
  // Tokens whose label counts, over all micro-batches and data ranks.
  int64_t valid_labels = 0;
  // The same of labels_2, labels_3 ..
  std::vector<int64_t> further_valid_labels;
  int64_t valid(int predicted) const {
    return predicted < 2 ? valid_labels : further_valid_labels.at(size_t(predicted - 2));
  }
  // One more micro-batch of this rank, borrowed; its labels that are not masked are counted. Labels
  // of other data ranks are not seen here.
  void add(const data::Batch& batch);
};

struct StepOutput {
  // By output name, over all data ranks, reduced as the port's flags say: a PORT_SUM over all valid labels of its kind, else the
  // mean over micro-batches; then the mean over the layers that have an output of that name.
  std::map<std::string, double> losses;
  std::map<std::string, double> metrics;
};

// What make_schedule wants to know of a store: stages, buffers, and where backward ends.
model::ScheduleOptions schedule_options(const shard::Store& store, int depth_first,
                                        int breadth_first, bool training);

class Executor {
 public:
  // Binds the layers of this rank. Throws when the model wants a batch entry that this host cannot deliver.
  Executor(model::Model& model, shard::Store& store, const ExecutorOptions& options);
  ~Executor();
  // Forward and backward of all micro-batches; leaves reduced gradients in the grads shard. Weights
  // are restored as needed. observer: null: none.
  StepOutput train(const StepInput& input, const std::vector<model::Step>& schedule,
                   Observer* observer = nullptr);
  // Forward only, no saves, no dropout.
  StepOutput evaluate(const StepInput& input, const std::vector<model::Step>& schedule,
                      Observer* observer = nullptr);

  // Memory of activations and their gradients: the most that was in use at once, and how often the
  // system was asked for a block so far (a step after the first one of its shape asks for none).
  int64_t peak_activation_bytes() const;
  int64_t activation_allocations() const;
  int64_t activation_bytes() const;  // in use now

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastllm::train
