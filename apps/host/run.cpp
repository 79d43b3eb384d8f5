#include "apps/host/run.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/config/resolve.hpp"
#include "core/plugin/collectives_table.hpp"
#include "core/train/datasets/make_dataset.hpp"
#include "core/train/executor/wiring.hpp"
#include "core/train/sampling_settings.hpp"

namespace fastllm::host {
namespace {

const char* const kTitle = "TrainerConfig";
constexpr double kLongestWait_s = 1e9;  // some thirty years

// Ids of tokens must lie below the model's `vocab_size` (a convention of model plugins, see
// model.h); 0: it has none.
int64_t vocab_size(const config::Node& configuration) {
  return configuration.get_optional<int64_t>("model.base_model.vocab_size").value_or(0);
}

// Where the configuration does not say which rank this is, the launcher may; others than rank 0 are
// to keep quiet.
void speak_as_launched() {
  const auto launch = distributed::LaunchEnvironment::from_process();
  log::configure(
      {.rank = int(launch.rank.value_or(0)), .world_size = int(launch.world_size.value_or(1))});
}

std::chrono::milliseconds to_wait(double seconds) {
  return std::chrono::milliseconds(int64_t(std::min(seconds, kLongestWait_s) * 1000));
}

}  // namespace

Run::OfferedGroups::OfferedGroups(const std::unique_ptr<distributed::Session>& session) {
  if (distributed::LaunchEnvironment::from_process().world_size.value_or(1) == 1) return;
  plugin::offer_collectives([&session](std::string_view name) -> distributed::Communicator* {
    if (!session) {
      throw Error(Status::kInvalid,
                  "expected a question about other ranks once all have met (from bind() on), found "
                  "it before");
    }
    const auto kind = distributed::group_of_name(name);
    return kind ? &session->group(*kind) : nullptr;
  });
}

Run::OfferedGroups::~OfferedGroups() { plugin::offer_collectives({}); }

Run::Run(Options options, std::string command_line)
    : options_(std::move(options)), command_line_(std::move(command_line)), job_(options_) {
  try {
    job_.resolve();
  } catch (const Error&) {
    speak_as_launched();
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

int Run::carry_out(const std::function<int()>& body) {
  try {
    const int code = body();
    if (session_ && session_->world().size() > 1)
      log::info(distributed::traffic_text(session_->communicators()));
    if (session_) session_->finish();
    return code;
  } catch (const std::bad_alloc&) {
    if (session_) session_->fail("out of memory");
    throw;
  } catch (const Error& e) {
    if (session_) session_->fail(e.what(), e.status());
    throw;
  } catch (const std::exception& e) {
    if (session_) session_->fail(e.what());
    throw;
  }
}

void Run::join() {
  const train::DistributedSettings& d = settings().distributed;
  const auto launch = distributed::LaunchEnvironment::from_process();
  if (d.world_size > 1 && !launch.world_size) {
    throw Error(
        Status::kInvalid,
        fmt::format("{0}: expected 1, since no launcher started other processes, found {1}; "
                    "start with fastllm-host --nproc {1}, torchrun or srun",
                    config::where(job_.configuration(), "model.distributed.world_size"),
                    d.world_size));
  }
  distributed::SessionOptions options;
  options.timeout = to_wait(d.timeout_s);
  options.watch = distributed::WatchOptions::within(to_wait(d.heartbeat_timeout_s));
  options.watch.interrupted_code = kInterrupted;
  session_ = distributed::Session::join(launch, d.world(), int(d.rank), options);
  config::Node shared = config::dump(job_.schema(), job_.configuration(), 0);
  // What may differ: a rank's number, and how many are on its computer.
  for (const char* own : {"model.distributed.rank", "model.distributed.local_world_size"})
    if (config::Node* value = shared.find(own)) *value = config::Node::integer(0);
  session_->agree("configuration", config::to_yaml(shared));
  std::string plugins;
  for (const plugin::LibraryInfo& library : job_.registry().loaded())
    plugins += fmt::format("{} {} {}\n", library.id, library.version, library.sha256);
  session_->agree("plugins", plugins);
}

train::Ranks Run::ranks() {
  if (!session_ || session_->world().size() == 1) return {};
  const auto of = [this](distributed::GroupKind kind) {
    distributed::Communicator& group = session_->group(kind);
    return group.size() > 1 ? &group : nullptr;
  };
  const auto limit = to_wait(settings().training.timeout_s.value_or(kLongestWait_s));
  return {
      .world = of(distributed::GroupKind::kWorld),
      .data = of(distributed::GroupKind::kData),
      .pipeline = of(distributed::GroupKind::kPipeline),
      .tensor = of(distributed::GroupKind::kTensor),
      .add_group = [this](const distributed::Group& group) { return &session_->add_group(group); },
      .meet = [this, limit](const std::string& place) { session_->meet(place, limit); },
      .agree = [this](const std::string& what,
                      const std::string& text) { session_->agree(what, text); }};
}

void Run::begin(Kind kind) {
  FASTLLM_ASSERT(session_);
  if (settings().run.threads) omp_set_num_threads(int(*settings().run.threads));
  if (settings().run.experiment_dir) open_folder(kind);
  print_configuration();
  tell_plan();
  running_.emplace(job_);
  sources_.emplace(settings().training.num_workers);
}

void Run::open_folder(Kind kind) {
  const std::filesystem::path experiment = *settings().run.experiment_dir;
  const int rank = session_->rank(), size = session_->world().size();
  if (rank == 0) {
    if (kind == Kind::kTraining) lock_.emplace(experiment);
    folder_.emplace(experiment, size);
  }
  const int64_t number = ranks().of_main(folder_ ? folder_->number() : 0);
  if (rank != 0) folder_.emplace(experiment, size, rank, int(number));
  if (settings().run.structured_logs) log::set_file(folder_->log_file());
  if (rank != 0) return;
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
  parts.ranks = ranks();
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

void tell_once(const std::string& problem, int code) {
  constexpr std::chrono::seconds kLongest(10);
  std::optional<distributed::LaunchEnvironment> launch;
  try {
    launch = distributed::LaunchEnvironment::from_process();
  } catch (const Error&) {  // no way to meet
    return;
  }
  try {
    distributed::share_problem(*launch, problem, kLongest);
  } catch (const distributed::ToldByAnother&) {
    throw ToldElsewhere{code};
  }
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
