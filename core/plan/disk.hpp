// What a run writes: checkpoints, how many of them are there at once, exports.
#pragma once

#include <cstdint>
#include <optional>

#include "core/shard/layout.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::plan {

struct Saves {
  int64_t bytes = 0;  // of the tensors of one; its texts are a few KiB a rank
  // Saves that are there at the end of the run, and the most there ever are: a save is complete
  // before an old one goes. nullopt: they are made by time, and all are kept.
  std::optional<int64_t> kept = 0, most = 0;
};

// How many saves a run of so many iterations keeps.
Saves saves_of(const train::SaveSettings& save, int64_t train_iters, int64_t bytes);

struct Disk {
  Saves checkpoints, exports;
  std::optional<int64_t> most_bytes() const;  // of both
};
Disk disk(const shard::Layout& layout, const train::TrainingSettings& training,
          bool export_optimizer_state);

}  // namespace fastllm::plan
