// fastllm-host --plugin gpt [train.yaml] [a.b=VALUE ...]: the order of what is said is the
// reference's (docs/compatibility.md).
#include "apps/host/commands/commands.hpp"
#include "apps/host/provenance.hpp"
#include "apps/host/run.hpp"
#include "core/base/cancel.hpp"
#include "core/checkpoint/manager.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/config/resolve.hpp"
#include "core/plugin/stage_tables.hpp"

namespace fastllm::host {
namespace {

// What a checkpoint keeps of the configuration: the model's part, at verbosity 0.
config::Node checkpoint_configuration(Job& job) {
  config::Node dumped = config::dump(job.schema(), job.configuration(), 0);
  const config::Node* model = dumped.find("model");
  return model ? *model : config::Node::map();
}

std::unique_ptr<checkpoint::CheckpointManager> make_checkpoints(Job& job,
                                                                const train::RunDirectory& folder,
                                                                const train::Datasets& datasets,
                                                                const checkpoint::Meet& meet) {
  checkpoint::ManagerOptions manager;
  manager.format =
      &job.registry().format("distributed");  // loads its plugin: the provenance names it, too
  config::Node provenance = make_provenance(job, datasets);
  if (job.settings().distributed.rank == 0) checkpoint::write_provenance(folder.run(), provenance);
  manager.experiment_dir = folder.experiment();
  manager.stages = plugin::stages_table();
  manager.model = job.identity();
  manager.config = checkpoint_configuration(job);
  const train::SaveSettings& save = job.settings().training.checkpoint;
  manager.retention = {save.when, save.keep, save.keep_every};
  manager.provenance = std::move(provenance);
  manager.rank = int(job.settings().distributed.rank);
  manager.meet = meet;
  return std::make_unique<checkpoint::CheckpointManager>(std::move(manager));
}

}  // namespace

int run_train(const Options& options, const std::string& command_line) {
  install_stop_handlers();  // from here on a signal means: finish, save, tell
  const auto made = before_meeting([&] { return std::make_unique<Run>(options, command_line); });
  Run& run = *made;
  if (options.validate) {
    run.print_configuration();
    run.tell_plan();
    return kDone;
  }
  return run.carry_out([&run] {
    run.join();
    run.begin(Run::Kind::kTraining);
    train::TrainerParts parts = run.parts();
    if (run.folder()) {
      parts.make_checkpoints = [&run, &parts](const train::Datasets& datasets) {
        return make_checkpoints(run.job(), *run.folder(), datasets, parts.ranks.meet);
      };
    }
    return exit_code(train::Trainer(parts).run());
  });
}

}  // namespace fastllm::host
