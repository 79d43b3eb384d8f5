// fastllm-host --plugin gpt [train.yaml] [a.b=VALUE ...]: the order of what is said is the reference's (docs/compatibility.md).
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/host/commands/commands.hpp"
#include "apps/host/job.hpp"
#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/base/version.hpp"
#include "core/checkpoint/lock.hpp"
#include "core/checkpoint/manager.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/plugin/stage_tables.hpp"
#include "core/train/datasets.hpp"
#include "core/train/run_directory.hpp"
#include "core/train/trainer.hpp"
#include "core/train/wiring.hpp"

namespace fastllm::host {
namespace {

const char* const kTitle = "TrainerConfig";

void print_configuration(Job& job, const std::string& command_line, int verbosity) {
  log::info("Command run:\n" + command_line);
  log::info(config::printed(config::dump(job.schema(), job.configuration(), verbosity), kTitle));
}

// Ids of tokens must lie below the model's `vocab_size` (a convention of model plugins, see model.h); 0: it has none.
int64_t vocab_size(const config::Node& configuration) {
  return configuration.get_optional<int64_t>("model.base_model.vocab_size").value_or(0);
}

std::shared_ptr<const data::SampledDataset> make_phase_dataset(Job& job, train::Phase phase,
                                                               int64_t samples) {
  const auto& settings = job.settings();
  const config::Node& definition = settings.data.dataset(phase);
  FASTLLM_ASSERT(
      !definition.is_null());  // settings refuse a phase that takes samples and has no dataset
  const std::string name = train::phase_name(phase);
  return train::make_dataset(
      definition,
      train::sampling_settings(settings, name, samples, vocab_size(job.configuration()),
                               train::predicted_tokens(job.model().description())),
      settings.data.legacy_definition ? "data" : "data.datasets." + name);
}

config::Node make_provenance(Job& job, const train::Datasets& datasets) {
  checkpoint::Provenance record;
  record.host_version = version_text();
  record.host_sha256 = sha256_file_hex("/proc/self/exe");
  record.threads = omp_get_max_threads();
  for (const auto& library : job.registry().loaded()) {
    record.libraries.push_back({library.id, library.version, library.path, library.sha256});
    for (const auto& need : library.needs) {
      if (need.starts_with("torch==")) record.libtorch = need.substr(7);
    }
  }
  record.data = config::Node::map();
  for (const auto& [phase, dataset] : datasets) {
    config::Node lines = config::Node::list();
    for (const auto& line : dataset->fingerprints()) lines.append(config::Node::text(line));
    record.data.set_child(train::phase_name(phase), std::move(lines));
  }
  record.seed = int64_t(job.settings().distributed.seed);
  record.config = job.configuration();
  return record.to_node();
}

// What a checkpoint keeps of the configuration: the model's part, at verbosity 0.
config::Node checkpoint_configuration(Job& job) {
  config::Node dumped = config::dump(job.schema(), job.configuration(), 0);
  const config::Node* model = dumped.find("model");
  return model ? *model : config::Node::map();
}

// Checkpoint formats may ask where the running job lies, and what another configuration describes, while this lives.
class RunningJob {
 public:
  explicit RunningJob(Job& job) {
    plugin::set_describer([&job](const config::Node& metadata) { return job.describe(metadata); });
  }
  ~RunningJob() {
    plugin::set_running(nullptr, nullptr);
    plugin::set_describer({});
  }
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;
  void memory_is(shard::Store& store) {
    plugin::set_running(&store.layout(), &store, store.rank());
  }
};

// What a user should know before the first step: old names, keys without effect, reduced offsets, how work is kept.
void tell_plan(Job& job) {
  for (const auto& warning : job.warnings()) log::warning(warning);
  for (const auto& note : job.settings().notes) log::info(note);
  for (const auto& line : train::plan_lines(job.settings())) log::info(line);
}

}  // namespace

int run_train(const Options& options, const std::string& command_line) {
  install_stop_handlers();  // from here on a signal means: finish, save, tell
  Job job(options);
  try {
    job.resolve();
  } catch (const Error&) {
    // What could be made out is shown even so: a wrong key is easier to see beside the right ones.
    if (job.configuration().size() > 0) print_configuration(job, command_line, options.verbosity);
    throw;
  }
  const train::Settings& settings = job.settings();
  log::configure({settings.run.log_timestamps, int(settings.distributed.rank),
                  int(settings.distributed.world_size), log::Level::kInfo});
  if (options.validate) {
    print_configuration(job, command_line, options.verbosity);
    tell_plan(job);
    return kDone;
  }
  if (settings.run.threads) omp_set_num_threads(int(*settings.run.threads));

  std::optional<checkpoint::ExperimentLock> lock;
  std::optional<train::RunDirectory> run;
  if (settings.run.experiment_dir) {
    const std::filesystem::path experiment = *settings.run.experiment_dir;
    lock.emplace(experiment);
    run.emplace(experiment, int(settings.distributed.rank), int(settings.distributed.world_size));
    if (settings.run.structured_logs) log::set_file(run->log_file());
    write_file_atomic(experiment / "config.yaml",
                      config::to_yaml(config::dump(job.schema(), job.configuration(), 0)));
    write_file_atomic(experiment / "config_verbose.yaml",
                      config::to_yaml(config::dump(job.schema(), job.configuration(), 20)));
    write_file_atomic(run->run() / "config.yaml",
                      config::to_yaml(config::dump(job.schema(), job.configuration(), -1)));
  }
  print_configuration(job, command_line, options.verbosity);
  tell_plan(job);

  RunningJob running(job);
  train::TrainerParts parts{settings, job.model()};
  parts.vocab_size = vocab_size(job.configuration());
  parts.run = run ? &*run : nullptr;
  parts.make_dataset = [&](train::Phase phase, int64_t samples) {
    return make_phase_dataset(job, phase, samples);
  };
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
  return trainer.run() == train::Outcome::kInterrupted ? kInterrupted : kDone;
}

}  // namespace fastllm::host
