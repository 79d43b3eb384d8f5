#include "core/plan/disk.hpp"

#include <algorithm>

#include "core/plan/schedule.hpp"

namespace fastllm::plan {
namespace {

constexpr int64_t kElementBytes = 4;  // of weights and optimizer state in files
constexpr int64_t kOptimizerStates = 2;

}  // namespace

Saves saves_of(const train::SaveSettings& save, int64_t train_iters, int64_t bytes) {
  Saves saves{bytes};
  if (!save.when.enabled() || train_iters == 0) return saves;
  if (!save.when.interval) {  // by time: as many as come to be
    if (save.keep) {
      saves.kept = *save.keep;
      saves.most = *save.keep + 1;
    } else {
      saves.kept = saves.most = std::nullopt;
    }
    return saves;
  }
  // Iteration 0 counts, but is not saved.
  const int64_t first = save.when.count(0), last = save.when.count(train_iters);
  // Saved at the end in any case, and never deleted when that is not on the interval.
  const int64_t extra = save.when.enabled(train_iters) ? 0 : 1;
  if (!save.keep) {
    saves.kept = saves.most = last - first + extra;
    return saves;
  }
  int64_t forever = 0, forever_at_end = 0;
  if (save.keep_every) {
    forever = last / *save.keep_every - first / *save.keep_every;
    forever_at_end = last > first && last % *save.keep_every == 0 ? 1 : 0;
  }
  const int64_t others = last - first - forever;
  saves.kept = std::min(others, *save.keep) + forever + extra;
  saves.most = saves.kept;
  if (others > *save.keep) {  // when the last of them is written
    const bool before = !save.keep_every || *save.keep_every > 1;
    saves.most = std::max(*saves.kept, *save.keep + 1 + forever - (before ? forever_at_end : 0));
  }
  return saves;
}

std::optional<int64_t> Disk::most_bytes() const {
  if (!checkpoints.most || !exports.most) return std::nullopt;
  return *checkpoints.most * checkpoints.bytes + *exports.most * exports.bytes;
}

Disk disk(const shard::Layout& layout, const train::TrainingSettings& training,
          bool export_optimizer_state) {
  int64_t elements = 0;
  for (const RankKind& kind : rank_kinds(layout.world()))
    elements += int64_t(kind.ranks.size()) *
                (layout.state_elements(kind.first, "weights") +
                 kOptimizerStates * layout.state_elements(kind.first, "exp_avgs"));
  int64_t weights = 0, trainable = 0;
  for (const model::Parameter& p : layout.description().parameters) {
    weights += p.elements();
    trainable += p.frozen() ? 0 : p.elements();
  }
  Disk disk;
  disk.checkpoints = saves_of(training.checkpoint, training.train_iters, elements * kElementBytes);
  disk.exports = saves_of(
      training.exports, training.train_iters,
      (weights + (export_optimizer_state ? kOptimizerStates * trainable : 0)) * kElementBytes);
  return disk;
}

}  // namespace fastllm::plan
