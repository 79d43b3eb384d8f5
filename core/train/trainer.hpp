// The life of a run after its parts exist: memory, data, training state, the loop, the test phase
// (docs/compatibility.md). Everything it meets comes through interfaces; apps/host wires plugins and
// files to it. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/checkpoint/manager.hpp"
#include "core/data/batch.hpp"
#include "core/model/model.hpp"
#include "core/shard/store.hpp"
#include "core/train/evaluator.hpp"
#include "core/train/metrics/run_directory.hpp"
#include "core/train/ranks.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

struct TrainerParts {
  const Settings& settings;
  model::Model& model;
  int64_t vocab_size =
      0;  // token ids outside [0, vocab_size) are refused; 0: the model does not say
  // A dataset of data.datasets with that many samples, or an Error that says which key defines it.
  std::function<std::shared_ptr<const data::SampledDataset>(const std::string& name,
                                                            int64_t samples)>
      make_dataset = {};
  // Memory is there, nothing in it yet: who serves checkpoint formats is told where it lies.
  std::function<void(shard::Store&)> memory_ready = {};
  // Called once the datasets are there (their fingerprints belong to what a checkpoint keeps).
  // Null: no experiment folder, nothing is saved.
  std::function<std::unique_ptr<checkpoint::CheckpointManager>(const Datasets&)> make_checkpoints =
      {};
  RunDirectory* run = nullptr;
  Ranks ranks = {};
  Clock clock = {};  // null: from the making of the trainer on
};

enum class Outcome { kCompleted, kPlannedStop, kInterrupted, kDiverged };

class Trainer {
 public:
  explicit Trainer(const TrainerParts& parts);
  ~Trainer();
  // Setup, loop, test phase. Prints what the reference prints, in its order.
  Outcome run();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastllm::train
