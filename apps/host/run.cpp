#include "apps/host/run.hpp"

#include <omp.h>

#include <filesystem>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/config/resolve.hpp"
#include "core/train/datasets/make_dataset.hpp"
#include "core/train/executor/wiring.hpp"
#include "core/train/sampling_settings.hpp"

namespace fastllm::host {
namespace {

const char* const kTitle = "TrainerConfig";

// Ids of tokens must lie below the model's `vocab_size` (a convention of model plugins, see
// model.h); 0: it has none.
int64_t vocab_size(const config::Node& configuration) {
  return configuration.get_optional<int64_t>("model.base_model.vocab_size").value_or(0);
}

}  // namespace

Run::Run(Options options, std::string command_line)
    : options_(std::move(options)), command_line_(std::move(command_line)), job_(options_) {
  try {
    job_.resolve();
  } catch (const Error&) {
    if (job_.configuration().size() > 0) print_configuration();
    throw;
  }
  log::configure({settings().run.log_timestamps, int(settings().distributed.rank),
                  int(settings().distributed.world_size), log::Level::kInfo});
}

void Run::print_configuration() {
  log::info("Command run:\n" + command_line_);
  log::info(config::printed(config::dump(job_.schema(), job_.configuration(), options_.verbosity),
                            kTitle));
}

void Run::tell_plan() const {
  for (const auto& warning : job_.warnings()) log::warning(warning);
  for (const auto& note : settings().notes) log::info(note);
  for (const auto& line : train::plan_lines(settings())) log::info(line);
}

void Run::begin(Kind kind) {
  if (settings().run.threads) omp_set_num_threads(int(*settings().run.threads));
  if (settings().run.experiment_dir) open_folder(kind);
  print_configuration();
  tell_plan();
  running_.emplace(job_);
  sources_.emplace(settings().training.num_workers);
}

void Run::open_folder(Kind kind) {
  const std::filesystem::path experiment = *settings().run.experiment_dir;
  if (kind == Kind::kTraining) lock_.emplace(experiment);
  folder_.emplace(experiment, int(settings().distributed.rank),
                  int(settings().distributed.world_size));
  if (settings().run.structured_logs) log::set_file(folder_->log_file());
  auto write = [&](const std::filesystem::path& path, int level) {
    write_file_atomic(path,
                      config::to_yaml(config::dump(job_.schema(), job_.configuration(), level)));
  };
  if (kind == Kind::kTraining) {
    write(experiment / "config.yaml", 0);
    write(experiment / "config_verbose.yaml", 20);
  }
  write(folder_->run() / "config.yaml", -1);
}

train::TrainerParts Run::parts() {
  FASTLLM_ASSERT(running_.has_value());
  train::TrainerParts parts{settings(), job_.model()};
  parts.vocab_size = vocab_size(job_.configuration());
  parts.run = folder();
  parts.make_dataset = [this](const std::string& name, int64_t samples) {
    return make_dataset(name, samples);
  };
  parts.memory_ready = [this](shard::Store& store) { running_->memory_is(store); };
  parts.clock = [started = started_] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  };
  return parts;
}

std::shared_ptr<const data::SampledDataset> Run::make_dataset(const std::string& name,
                                                              int64_t samples) {
  const config::Node& definition = settings().data.dataset(name);
  // Settings refuse a phase that takes samples and has no dataset.
  FASTLLM_ASSERT(!definition.is_null());
  return train::make_dataset(
      definition,
      train::sampling_settings(settings(), name, samples, vocab_size(job_.configuration()),
                               train::predicted_tokens(job_.model().description())),
      settings().data.legacy_definition ? "data" : "data.datasets." + name, *sources_);
}

int exit_code(train::Outcome outcome) {
  switch (outcome) {
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
