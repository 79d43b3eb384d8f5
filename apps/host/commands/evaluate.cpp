// fastllm-host evaluate --plugin gpt WHAT: the validation sets and the test set on a checkpoint, no
// training. WHAT: a configuration, or the folder of an experiment, of a run or of a checkpoint.
#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "apps/host/commands/commands.hpp"
#include "apps/host/provenance.hpp"
#include "apps/host/run.hpp"
#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/checkpoint/finder.hpp"
#include "core/checkpoint/loader.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/checkpoint/training_state.hpp"
#include "core/plugin/stage_tables.hpp"
#include "core/train/evaluation_run.hpp"

namespace fastllm::host {
namespace {

namespace fs = std::filesystem;

// What a folder on the command line stands for.
struct Source {
  fs::path config, experiment;
  std::optional<fs::path> checkpoint;  // none: the newest
};

constexpr const char* kCheckpointFolders[] = {"checkpoint", "checkpoints"};  // in this order

bool is_checkpoints_folder(const fs::path& path) {
  return path.filename() == kCheckpointFolders[0] || path.filename() == kCheckpointFolders[1];
}

Source source_of(const fs::path& given) {
  fs::path folder = fs::absolute(given).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();  // a slash at the end
  if (is_checkpoints_folder(folder.parent_path())) {
    const fs::path experiment = folder.parent_path().parent_path();
    return {experiment / "config.yaml", experiment, folder};
  }
  if (path_exists(folder / "metrics.jsonl"))
    return {folder / "config.yaml", folder.parent_path().parent_path(), {}};
  if (path_exists(folder / "config.yaml")) return {folder / "config.yaml", folder, {}};
  throw Error(
      Status::kInvalid,
      fmt::format("expected the folder of an experiment, of one of its runs or of one of its "
                  "checkpoints, found no config.yaml in {}; name such a folder, or a "
                  "configuration file",
                  given.string()));
}

checkpoint::Found chosen_checkpoint(const fs::path& chosen) {
  if (std::string lacks = checkpoint::what_it_lacks(chosen); !lacks.empty()) {
    throw Error(Status::kInvalid,
                fmt::format("expected a complete checkpoint at {}, found that it lacks {}",
                            chosen.string(), lacks));
  }
  for (const checkpoint::Found& found : checkpoint::scan(chosen.parent_path()).complete)
    if (found.path.filename() == chosen.filename()) return found;
  throw Error(Status::kInvalid, fmt::format("expected a folder named after its iteration, found {}",
                                            chosen.string()));
}

checkpoint::Found newest_checkpoint(const fs::path& experiment) {
  for (const char* name : kCheckpointFolders)
    if (auto found = checkpoint::find_latest(experiment / name)) return *found;
  throw Error(Status::kInvalid,
              fmt::format("expected a checkpoint in {} to evaluate, found none; train with "
                          "training.checkpoint.interval set, or name another folder",
                          experiment.string()));
}

// Rank 0 looks, for all: a training that goes on may save one meanwhile.
checkpoint::Found find_checkpoint(const fs::path& experiment, const std::optional<fs::path>& chosen,
                                  const train::Ranks& ranks) {
  if (ranks.agree)
    ranks.agree("checkpoint to evaluate", chosen ? chosen->string() : std::string("the newest"));
  checkpoint::Found found;
  if (ranks.main()) found = chosen ? chosen_checkpoint(*chosen) : newest_checkpoint(experiment);
  found.iteration = ranks.of_main(found.iteration);
  const bool second = ranks.of_main(found.path.parent_path().filename() == kCheckpointFolders[1]);
  if (!ranks.main()) {
    const fs::path folder =
        chosen ? chosen->parent_path() : experiment / kCheckpointFolders[second ? 1 : 0];
    found.path = folder / std::to_string(found.iteration);
  }
  return found;
}

// Weights alone. Gives the iterations they were trained for.
int64_t load_weights(Job& job, const checkpoint::Found& found, shard::Store& store,
                     const checkpoint::Meet& meet) {
  log::info(fmt::format("Loading checkpoint from iteration {}...", found.iteration));
  checkpoint::FlatStates states = checkpoint::states_of(store);
  states.states.resize(1);
  const checkpoint::ModelIdentity identity = job.identity();
  const checkpoint::LoadResult result =
      checkpoint::load({.format = job.registry().format("distributed"),
                        .path = found.path,
                        .states = states,
                        .model = identity,
                        .stages = plugin::stages_table(),
                        .meet = meet});
  store.invalidate();
  return checkpoint::state_of(result.metadata, found).completed_steps;
}

// Where a folder is named instead of a configuration, its configuration is read; gives the
// checkpoint that the folder stands for, if it is one.
std::optional<fs::path> replace_folder(Options& options) {
  if (!fs::is_directory(options.config_file)) return std::nullopt;
  const Source source = source_of(options.config_file);
  options.config_file = source.config.string();
  // Where the experiment is now, not where it was when it was trained; and by the ranks of now.
  std::vector<std::string> now = {"run.experiment_dir=" +
                                  config::to_json(config::Node::text(source.experiment.string()))};
  for (const char* key : {"model.distributed.world_size", "model.distributed.rank",
                          "model.distributed.local_world_size", "batch.depth_first_micro_batches",
                          "batch.breadth_first_micro_batches", "batch.sequential_micro_batches"})
    now.push_back(std::string(key) + "=null");
  options.overrides.insert(options.overrides.begin(), now.begin(), now.end());
  return source.checkpoint;
}

}  // namespace

int run_evaluate(const Options& given, const std::string& command_line) {
  install_stop_handlers();
  Options options = given;
  std::optional<fs::path> chosen;
  const auto made = before_meeting([&] {
    chosen = replace_folder(options);
    auto run = std::make_unique<Run>(options, command_line);
    if (!options.validate && !run->settings().run.experiment_dir) {
      throw Error(
          Status::kInvalid,
          "run.experiment_dir: expected the folder with the checkpoint to evaluate, found null; "
          "set it, or name the folder instead of a configuration");
    }
    return run;
  });
  Run& run = *made;
  if (options.validate) {
    run.print_configuration();
    run.tell_plan();
    return kDone;
  }
  return run.carry_out([&] {
    run.join();
    // Before anything is made: without a checkpoint no folder of a run is left behind.
    const checkpoint::Found found =
        find_checkpoint(*run.settings().run.experiment_dir, chosen, run.ranks());
    run.begin(Run::Kind::kEvaluation);
    const train::TrainerParts parts = run.parts();
    return exit_code(train::run_evaluation(
        parts,
        [&](shard::Store& store) {
          return load_weights(run.job(), found, store, parts.ranks.meet);
        },
        [&](const train::Datasets& datasets) {
          if (!parts.ranks.main()) return;
          checkpoint::write_provenance(run.folder()->run(), make_provenance(run.job(), datasets));
        }));
  });
}

}  // namespace fastllm::host
