#include "apps/host/run.hpp"

#include <fmt/format.h>
#include <omp.h>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/base/version.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/config/resolve.hpp"
#include "core/plugin/stage_tables.hpp"
#include "core/train/datasets.hpp"
#include "core/train/executor/wiring.hpp"

namespace fastllm::host {
namespace {

const char* const kTitle = "TrainerConfig";

// Ids of tokens must lie below the model's `vocab_size` (a convention of model plugins, see
// model.h); 0: it has none.
int64_t vocab_size(const config::Node& configuration) {
  return configuration.get_optional<int64_t>("model.base_model.vocab_size").value_or(0);
}

std::shared_ptr<const data::SampledDataset> make_named_dataset(Job& job, const std::string& name,
                                                               int64_t samples,
                                                               train::DatasetSources& sources) {
  const auto& settings = job.settings();
  const config::Node& definition = settings.data.dataset(name);
  FASTLLM_ASSERT(
      !definition.is_null());  // settings refuse a phase that takes samples and has no dataset
  return train::make_dataset(
      definition,
      train::sampling_settings(settings, name, samples, vocab_size(job.configuration()),
                               train::predicted_tokens(job.model().description())),
      settings.data.legacy_definition ? "data" : "data.datasets." + name, sources);
}

}  // namespace

void print_configuration(Job& job, const std::string& command_line, int verbosity) {
  log::info("Command run:\n" + command_line);
  log::info(config::printed(config::dump(job.schema(), job.configuration(), verbosity), kTitle));
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
  for (const auto& [name, dataset] : datasets) {
    config::Node lines = config::Node::list();
    for (const auto& line : dataset->fingerprints()) lines.append(config::Node::text(line));
    record.data.set_child(name, std::move(lines));
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

void resolve(Job& job, const std::string& command_line, int verbosity) {
  try {
    job.resolve();
  } catch (const Error&) {
    if (job.configuration().size() > 0) print_configuration(job, command_line, verbosity);
    throw;
  }
  const train::Settings& settings = job.settings();
  log::configure({settings.run.log_timestamps, int(settings.distributed.rank),
                  int(settings.distributed.world_size), log::Level::kInfo});
}

void tell_plan(Job& job) {
  for (const auto& warning : job.warnings()) log::warning(warning);
  for (const auto& note : job.settings().notes) log::info(note);
  for (const auto& line : train::plan_lines(job.settings())) log::info(line);
}

std::optional<train::RunDirectory> open_run_folder(Job& job, const std::string& command_line,
                                                   int verbosity, bool writes_experiment) {
  const train::Settings& settings = job.settings();
  std::optional<train::RunDirectory> run;
  if (settings.run.experiment_dir) {
    const std::filesystem::path experiment = *settings.run.experiment_dir;
    run.emplace(experiment, int(settings.distributed.rank), int(settings.distributed.world_size));
    if (settings.run.structured_logs) log::set_file(run->log_file());
    auto write = [&](const std::filesystem::path& path, int level) {
      write_file_atomic(path,
                        config::to_yaml(config::dump(job.schema(), job.configuration(), level)));
    };
    if (writes_experiment) {
      write(experiment / "config.yaml", 0);
      write(experiment / "config_verbose.yaml", 20);
    }
    write(run->run() / "config.yaml", -1);
  }
  print_configuration(job, command_line, verbosity);
  tell_plan(job);
  return run;
}

RunningJob::RunningJob(Job& job) {
  plugin::set_describer([&job](const config::Node& metadata) { return job.describe(metadata); });
}

RunningJob::~RunningJob() {
  plugin::set_running(nullptr, nullptr);
  plugin::set_describer({});
}

void RunningJob::memory_is(shard::Store& store) {
  plugin::set_running(&store.layout(), &store, store.rank());
}

train::TrainerParts trainer_parts(Job& job, train::RunDirectory* run,
                                  std::chrono::steady_clock::time_point started) {
  train::TrainerParts parts{job.settings(), job.model()};
  parts.vocab_size = vocab_size(job.configuration());
  parts.run = run;
  auto sources = std::make_shared<train::DatasetSources>(job.settings().training.num_workers);
  parts.make_dataset = [&job, sources](const std::string& name, int64_t samples) {
    return make_named_dataset(job, name, samples, *sources);
  };
  parts.clock = [started] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  return parts;
}

}  // namespace fastllm::host
