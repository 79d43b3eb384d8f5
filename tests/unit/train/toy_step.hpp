// One step of training on the toy model: two micro-batches of one sample in a workspace, as the
// trainer has them before it decides on the update.
#pragma once

#include <utility>
#include <vector>

#include "core/train/executor/initialize.hpp"
#include "core/train/workspace.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::test {

inline train::Settings toy_settings() {
  train::Settings settings;
  settings.batch.batch_size = 2;
  settings.batch.sequential_micro_batches = settings.batch.depth_first_micro_batches = 2;
  settings.batch.sequence_length = 5;
  return settings;
}

struct ToyStep {
  explicit ToyStep(const ToyOptions& options = {}, train::Settings s = toy_settings(),
                   const train::Ranks& ranks = {})
      : settings(std::move(s)), model(options), workspace(settings, model, ranks) {
    train::initialize(workspace.store, model, 5);
    for (int b = 0; b < 2; ++b) {
      data::Batch& batch = batches[b];
      batch.samples = 1;
      batch.length = 5;
      for (int64_t i = 0; i < 5; ++i) {
        batch.tokens.push_back((b + 3 * i) % 11);
        batch.labels.push_back((b + 3 * i + 3) % 11);
        batch.positions.push_back(i);
        batch.documents.push_back(0);
      }
      batch.cu_seqlens = {0, 5};
      batch.valid_labels = 5;
      input.add(batch);
    }
    input.step = 1;
  }
  // Forward and backward: gradients are in the grads shard.
  train::StepOutput run() { return workspace.executor.train(input, workspace.training_schedule); }
  std::vector<float> weights() {
    const float* flat = workspace.store.flat_data("weights");
    return {flat, flat + workspace.store.flat("weights")->shape[0]};
  }

  const train::Settings settings;
  ToyModel model;
  train::Workspace workspace;
  data::Batch batches[2];
  train::StepInput input;
};

}  // namespace fastllm::test
