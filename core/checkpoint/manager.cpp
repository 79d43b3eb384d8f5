// Ties finder, loader, saver and keep rule together; what each does is in its own file.
#include "core/checkpoint/manager.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/checkpoint/saver.hpp"

namespace fastllm::checkpoint {
namespace {

namespace fs = std::filesystem;
using config::Node;

void require(const Format& format, uint32_t cap, const char* what) {
  if (format.caps() & cap) return;
  throw Error(
      Status::kInvalid,
      fmt::format(
          "expected a checkpoint format that can {}, found {}, which cannot; use distributed", what,
          format.type()));
}

}  // namespace

CheckpointManager::CheckpointManager(ManagerOptions options)
    : options_(std::move(options)), aside_(options_.experiment_dir / ".saving") {
  FASTLLM_ASSERT(options_.format != nullptr);
  require(*options_.format, FASTLLM_CAN_LOAD, "load");
  require(*options_.format, FASTLLM_CAN_SAVE, "save");
  require(*options_.format, FASTLLM_CAN_OPTIMIZER, "hold optimizer state");
  if (options_.base.empty()) {
    const fs::path older = options_.experiment_dir / "checkpoints";
    options_.base = options_.experiment_dir / "checkpoint";
    if (!path_exists(options_.base) && path_exists(older)) options_.base = older;
  }
  if (options_.rank != 0) return;
  remove_leftovers(aside_);
  remove_leftovers(options_.base / ".saving");
}

std::optional<Found> CheckpointManager::find_latest() const {
  return checkpoint::find_latest(options_.base);
}

Found CheckpointManager::named(int64_t iteration) const {
  return {iteration, options_.base / std::to_string(iteration)};
}

TrainingState CheckpointManager::load(const Found& checkpoint, shard::Store& store,
                                      const std::string& scaler_type) {
  store.zero_optimizer_and_gradients();
  const LoadResult result = checkpoint::load({.format = *options_.format,
                                              .path = checkpoint.path,
                                              .states = states_of(store),
                                              .model = options_.model,
                                              .stages = options_.stages,
                                              .verify_checksums = options_.verify_checksums,
                                              .meet = options_.meet});
  store.invalidate();
  const TrainingState state = state_of(result.metadata, checkpoint);
  if (state.scaler.type != scaler_type) {
    throw Error(
        Status::kInvalid,
        fmt::format(
            "expected gradient scaler {} in {}, found {}; resume with the training_dtype and "
            "optimizer.gradient_scaler it was made with",
            scaler_type, checkpoint.path.string(), state.scaler.type));
  }
  const Node before = read_provenance(checkpoint.path);
  if (!before.is_null() && !options_.provenance.is_null()) {
    for (const std::string& line : differences(before, options_.provenance))
      log::info("Changed since the checkpoint: " + line);
  }
  return state;
}

fs::path CheckpointManager::save(const TrainingState& state, shard::Store& store) {
  const std::string name =
      options_.base.filename() == "checkpoints" ? "checkpoint" : options_.base.filename().string();
  log::info(fmt::format("Saving {} at iteration {}", name, state.completed_steps));
  Node metadata = Node::map();
  metadata.set_child("model", Node::text(options_.model.type));
  metadata.set_child("config", options_.config);
  metadata.set_child("metadata", state.to_node());
  SaveRequest request{.format = *options_.format,
                      .states = states_of(store),
                      .metadata = std::move(metadata),
                      .base = options_.base,
                      .iteration = state.completed_steps,
                      .aside = aside_,
                      .read_back = options_.read_back,
                      .meet = options_.meet};
  if (!options_.provenance.is_null())
    request.extra_files[kProvenanceName] = config::to_yaml(options_.provenance);
  const fs::path path = checkpoint::save(request);
  log::info(fmt::format("Saved {} to {}", name, path.string()));
  if (options_.rank == 0) {
    try {
      write_file_atomic(options_.experiment_dir / "latest",
                        fmt::format("{}\n", state.completed_steps));
    } catch (const Error& e) {
      log::warning(e.what());  // a hint only
    }
    apply(options_.retention, options_.base, aside_);
  }
  // Deleting can take long, too long for a collective that waits for rank 0.
  if (options_.meet) options_.meet(fmt::format("deleting old saves in {}", options_.base.string()));
  return path;
}

}  // namespace fastllm::checkpoint
