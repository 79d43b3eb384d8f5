// What the trainer knows of checkpoints: find the newest, load it, save, and let the keep rule
// delete. One per rank of a run, which has an ExperimentLock on the same folder, held by rank 0.
// One thread.
//
//   ExperimentLock lock(experiment_dir);
//   CheckpointManager checkpoints(options);
//   // resumes, and says what changed
//   if (auto found = checkpoints.find_latest()) state = checkpoints.load(*found, store);
//   ...
//   checkpoints.save(state, store);  // complete or absent; then the keep rule
#pragma once

#include <fastllm/stage.h>

#include <filesystem>
#include <optional>
#include <string>

#include "core/checkpoint/finder.hpp"
#include "core/checkpoint/format.hpp"
#include "core/checkpoint/loader.hpp"
#include "core/checkpoint/retention.hpp"
#include "core/checkpoint/training_state.hpp"
#include "core/config/node.hpp"
#include "core/shard/store.hpp"

namespace fastllm::checkpoint {

struct ManagerOptions {
  std::filesystem::path experiment_dir;
  // Empty: {experiment_dir}/checkpoint, or the older checkpoints/ where only that exists.
  std::filesystem::path base;
  // Borrowed for the manager's life; must load, save and hold optimizer state.
  Format* format = nullptr;
  // The host's table, for moving whole shards; null: by name.
  const fastllm_stages* stages = nullptr;
  ModelIdentity model;
  // base_model, multi_stage, distributed: as dumped into checkpoints (verbosity 0).
  config::Node config;
  Retention retention;
  config::Node provenance;       // Provenance::to_node(), kept in every checkpoint; null: none
  bool verify_checksums = true;  // when loading
  bool read_back = true;         // when saving
  int rank = 0;                  // the folder is rank 0's to tidy up
  Meet meet = {};                // of all ranks; null: one rank
};

class CheckpointManager {
 public:
  // Checks the format's abilities; removes what a killed save left.
  explicit CheckpointManager(ManagerOptions options);

  const std::filesystem::path& base() const { return options_.base; }

  // The newest complete checkpoint; warns about newer incomplete ones. nullopt: a fresh start. Only
  // incomplete ones: Error.
  std::optional<Found> find_latest() const;
  // The place of that one.
  Found named(int64_t iteration) const;

  // Weights, optimizer state and counters. Logs what changed since the checkpoint was made, and
  // parameters whose optimizer state starts at zero. completed_steps must equal the folder's
  // number, the gradient scaler's type the given one.
  TrainingState load(const Found& checkpoint, shard::Store& store,
                     const std::string& scaler_type = "NoopGradScaler");

  // All ranks call, for this and for load().
  // Saves under the number state.completed_steps, notes it in {experiment_dir}/latest (a hint,
  // never read), then deletes what the keep rule names. Error: older checkpoints are untouched; of
  // this one nothing is left, or of several ranks what the next start removes.
  std::filesystem::path save(const TrainingState& state, shard::Store& store);

 private:
  ManagerOptions options_;
  std::filesystem::path aside_;
};

}  // namespace fastllm::checkpoint
