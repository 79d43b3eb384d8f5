// fastllm-host --plugin gpt [train.yaml] [a.b=VALUE ...]: the order of what is said is the
// reference's (docs/compatibility.md).
#include <omp.h>

#include <chrono>
#include <optional>

#include "apps/host/commands/commands.hpp"
#include "apps/host/job.hpp"
#include "apps/host/run.hpp"
#include "core/base/cancel.hpp"
#include "core/checkpoint/lock.hpp"
#include "core/checkpoint/manager.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/plugin/stage_tables.hpp"
#include "core/train/trainer.hpp"

namespace fastllm::host {

int run_train(const Options& options, const std::string& command_line) {
  const auto started = std::chrono::steady_clock::now();
  install_stop_handlers();  // from here on a signal means: finish, save, tell
  Job job(options);
  resolve(job, command_line, options.verbosity);
  const train::Settings& settings = job.settings();
  if (options.validate) {
    print_configuration(job, command_line, options.verbosity);
    tell_plan(job);
    return kDone;
  }
  if (settings.run.threads) omp_set_num_threads(int(*settings.run.threads));

  std::optional<checkpoint::ExperimentLock> lock;
  if (settings.run.experiment_dir) lock.emplace(*settings.run.experiment_dir);
  std::optional<train::RunDirectory> run =
      open_run_folder(job, command_line, options.verbosity, true);

  RunningJob running(job);
  train::TrainerParts parts = trainer_parts(job, run ? &*run : nullptr, started);
  parts.memory_ready = [&](shard::Store& store) { running.memory_is(store); };
  if (run) {
    parts.make_checkpoints = [&](const train::Datasets& datasets) {
      checkpoint::ManagerOptions manager;
      manager.format =
          &job.registry().format("distributed");  // loads its plugin: the provenance names it, too
      config::Node provenance = make_provenance(job, datasets);
      checkpoint::write_provenance(run->run(), provenance);
      manager.experiment_dir = run->experiment();
      manager.stages = plugin::stages_table();
      manager.model = job.identity();
      manager.config = checkpoint_configuration(job);
      const auto& save = settings.training.checkpoint;
      manager.retention = {save.when, save.keep, save.keep_every};
      manager.provenance = std::move(provenance);
      return std::make_unique<checkpoint::CheckpointManager>(std::move(manager));
    };
  }
  train::Trainer trainer(parts);
  switch (trainer.run()) {
    case train::Outcome::kInterrupted:
      return kInterrupted;
    case train::Outcome::kDiverged:
      return kDiverged;
    case train::Outcome::kCompleted:
    case train::Outcome::kPlannedStop:
      break;
  }
  return kDone;
}

}  // namespace fastllm::host
