// What would make a run smaller: the same with one thing changed, in the order of what it costs.
#include <fmt/format.h>

#include "core/plan/plan.hpp"

namespace fastllm::plan {
namespace {

class Advice {
 public:
  explicit Advice(const Question& question) : question_(question), now_(bytes_with(question)) {}

  template <class Change>
  void add(const std::string& words, const std::string& why, Change&& change) {
    train::Settings other = question_.settings;
    change(other);
    // Layers keep in proportion to the samples of a micro-batch.
    std::vector<int64_t> kept = question_.kept;
    for (int64_t& bytes : kept)
      bytes = bytes * other.batch.micro_batch_size / question_.settings.batch.micro_batch_size;
    const auto bytes = bytes_with({other, question_.model, {}, false, std::move(kept)});
    if (bytes && now_ && *bytes < *now_) result.push_back({words, why, *bytes});
  }

  std::vector<Alternative> result;

 private:
  const Question& question_;
  const std::optional<int64_t> now_;
};

void set_zero(train::Settings& settings, int stage) {
  settings.multi_stage.zero_stage = stage;
  settings.multi_stage.num_gradient_buffers = 2;
  if (stage > 2) settings.multi_stage.num_weight_buffers = 2;
}

// Half as many data ranks, each with twice the micro-batches.
bool halve_data(train::Settings& settings) {
  train::DistributedSettings& ranks = settings.distributed;
  if (ranks.batch_data_parallel % 2) return false;
  ranks.data_parallel /= 2;
  ranks.batch_data_parallel /= 2;
  train::BatchSettings& batch = settings.batch;
  batch.sequential_micro_batches *= 2;
  (ranks.pipeline_parallel > 1 ? batch.breadth_first_micro_batches
                               : batch.depth_first_micro_batches) *= 2;
  return true;
}

}  // namespace

std::vector<Alternative> alternatives(const Question& question) {
  const train::Settings& settings = question.settings;
  Advice advice(question);
  const train::DistributedSettings& ranks = settings.distributed;
  const int zero = settings.multi_stage.zero_stage;
  // Where nothing is frozen it makes nothing smaller, and is not told.
  advice.add("model.multi_stage.store_frozen_weights_in_optimization_precision=false",
             "frozen weights in the training type alone",
             [](train::Settings& s) { s.multi_stage.wide_frozen_weights = false; });
  if (zero < 2)
    advice.add("model.multi_stage.zero_stage=2", "gradients of two stages at a time",
               [](train::Settings& s) { set_zero(s, 2); });
  if (!settings.training.recompute_activations)
    advice.add("training.recompute_activations=true", "one more forward in each step",
               [](train::Settings& s) { s.training.recompute_activations = true; });
  if (zero < 3) {
    advice.add("model.multi_stage.zero_stage=3", "weights are gathered for forward and backward",
               [](train::Settings& s) { set_zero(s, 3); });
    if (!settings.training.recompute_activations)
      advice.add("model.multi_stage.zero_stage=3 training.recompute_activations=true", "both",
                 [](train::Settings& s) {
                   set_zero(s, 3);
                   s.training.recompute_activations = true;
                 });
  }
  if (settings.batch.micro_batch_size % 2 == 0)
    advice.add(fmt::format("batch.micro_batch_size={}", settings.batch.micro_batch_size / 2),
               "more and smaller micro-batches", [&](train::Settings& s) {
                 s.batch.micro_batch_size /= 2;
                 (ranks.pipeline_parallel > 1 ? s.batch.breadth_first_micro_batches
                                              : s.batch.depth_first_micro_batches) *= 2;
               });
  for (const bool tensor : {true, false}) {
    train::Settings other = settings;
    if (!halve_data(other)) break;
    const int64_t ranks_then = (tensor ? ranks.tensor_parallel : ranks.pipeline_parallel) * 2;
    // A batch of one micro-batch that went depth first goes breadth first between stages.
    advice.add(
        fmt::format("model.distributed.{}_parallel={}", tensor ? "tensor" : "pipeline", ranks_then),
        "half as many data-parallel ranks", [&](train::Settings& s) {
          s = other;
          (tensor ? s.distributed.tensor_parallel : s.distributed.pipeline_parallel) = ranks_then;
          if (tensor) return;
          s.batch.breadth_first_micro_batches = s.batch.sequential_micro_batches;
          s.batch.depth_first_micro_batches = 1;
        });
  }
  return advice.result;
}

}  // namespace fastllm::plan
