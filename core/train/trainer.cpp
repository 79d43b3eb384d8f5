// The loop, evaluations, saves and stops (docs/compatibility.md). What a step is, is the executor's; what
// is printed, metrics'.
#include "core/train/trainer.hpp"

#include <fmt/format.h>

#include <cctype>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/data/loader.hpp"
#include "core/train/initialize.hpp"
#include "core/train/metrics.hpp"
#include "core/train/wiring.hpp"
#include "core/train/workspace.hpp"

namespace fastllm::train {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

// "training": in log lines; data.datasets and checkpoints spell phases with a capital.
std::string lower_name(Phase phase) {
  std::string name = phase_name(phase);
  name[0] = char(std::tolower(static_cast<unsigned char>(name[0])));
  return name;
}

std::string signal_name(int number) {
  return number == 2 ? "SIGINT" : number == 15 ? "SIGTERM" : fmt::format("{}", number);
}

// Means over the iterations since the last log.
class Means {
 public:
  void add(const std::map<std::string, double>& values) {
    for (const auto& [name, value] : values) sums_[name] += value;
    ++count_;
  }
  // Those names, in that order; nan where nothing was added. Starts again.
  std::vector<std::pair<std::string, double>> take(const std::vector<std::string>& names) {
    std::vector<std::pair<std::string, double>> means;
    for (const auto& name : names) {
      means.emplace_back(name, count_ ? sums_[name] / double(count_) : Metrics::kMissing);
    }
    clear();
    return means;
  }
  std::vector<std::pair<std::string, double>> take_all() {
    std::vector<std::pair<std::string, double>> means;
    for (const auto& [name, sum] : sums_) means.emplace_back(name, sum / double(count_));
    clear();
    return means;
  }

 private:
  void clear() {
    sums_.clear();
    count_ = 0;
  }
  std::map<std::string, double> sums_;
  int64_t count_ = 0;
};

}  // namespace

struct Trainer::Impl {
  explicit Impl(const TrainerParts& p) : parts(p), settings(p.settings) {}

  TrainerParts parts;
  const Settings& settings;
  std::optional<Workspace> workspace;
  Datasets datasets;
  std::unique_ptr<checkpoint::CheckpointManager> checkpoints;
  std::unique_ptr<data::Loader> validation_loader;
  MemoryProbe memory;
  int64_t completed = 0;  // iterations done, as a checkpoint counts them
  int64_t last_saved = -1;
  int64_t skipped_iters = 0;  // whose update loss scaling skipped, since the last log
  int64_t nan_iters = 0;      // with a loss that is not finite, since the last log
  int64_t diverged_at = 0;  // first iteration with anything that is not finite; 0: none
  config::Node last_metrics =
      config::Node::map();  // by phase, of the current iteration: goes into a checkpoint

  // ---------------------------------------------------------------- setup

  void create_datasets() {
    log::info("Preparing datasets...");
    for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest}) {
      const int64_t samples = settings.samples(phase);
      if (samples > 0) datasets[phase] = parts.make_dataset(phase, samples);
    }
  }

  void create_state() {
    if (parts.make_checkpoints) checkpoints = parts.make_checkpoints(datasets);
    if (auto found = checkpoints ? checkpoints->find_latest() : std::nullopt) {
      log::info(fmt::format("Loading checkpoint from iteration {}...", found->iteration));
      checkpoint::TrainingState state =
          checkpoints->load(*found, workspace->store, workspace->scaler.type());
      completed = last_saved = state.completed_steps;
      workspace->optimizer.current_step = state.optimizer_step;
      workspace->scaler.restore(state.scaler.scale, state.scaler.growth, state.scaler.hysteresis);
      return;
    }
    log::info("Initializing training state from scratch...");
    workspace->scaler.start();
    initialize(workspace->store, parts.model, settings.distributed.initialization_seed);
  }

  // ---------------------------------------------------------------- data

  data::LoaderOptions loader_options(int64_t first_sample) const {
    data::LoaderOptions o;
    o.first_sample = first_sample;
    o.micro_batch_size = settings.batch.micro_batch_size;
    o.sequence_length = settings.batch.sequence_length;
    o.predicted_tokens = predicted_tokens(parts.model.description());
    o.vocab_size = parts.vocab_size;
    o.cross_document_attention = settings.batch.cross_document_attention;
    o.threads = settings.training.num_workers;
    o.prefetch = settings.training.prefetch_factor;
    o.sample_warn_ms = settings.data.sample_warn_ms;
    return o;
  }

  // The micro-batches of one step, and how many labels count in them.
  struct StepBatches {
    std::vector<std::unique_ptr<data::Batch>> owned;
    StepInput input;
  };
  StepBatches next_batches(data::Loader& loader, int64_t step) {
    const auto begin = Clock::now();
    StepBatches batches;
    for (int64_t i = 0; i < settings.batch.sequential_micro_batches; ++i) {
      batches.owned.push_back(loader.next());
      batches.input.micro_batches.push_back(batches.owned.back().get());
      const data::Batch& batch = *batches.owned.back();
      batches.input.valid_labels += batch.valid_labels;
      batches.input.further_valid_labels.resize(batch.further_labels.size());
      for (size_t k = 0; k < batch.further_labels.size(); ++k)
        batches.input.further_valid_labels[k] += batch.further_labels[k].valid;
    }
    batches.input.step = step;
    const double took = milliseconds(Clock::now() - begin);
    if (took > settings.data.batch_warn_ms) {
      log::warning(fmt::format("Data loading took {} ms", with_commas(took, 2)));
    }
    return batches;
  }

  // ---------------------------------------------------------------- numbers out

  Metrics base_metrics(Phase phase, int64_t iteration) {
    Metrics m;
    m.phase = lower_name(phase);
    m.iteration = iteration;
    m.train_iters = settings.training.train_iters;
    m.batch_size = settings.batch.batch_size;
    m.sequence_length = settings.batch.sequence_length;
    m.world_size = int(settings.distributed.world_size);
    m.memory = memory.read();
    return m;
  }

  void publish(Phase phase, const Metrics& metrics) {
    const std::time_t now = std::time(nullptr);
    log::info(log_line(metrics, now));
    config::Node numbers = to_node(metrics, now);
    last_metrics.set_child(phase_name(phase), numbers);
    if (!parts.run) return;
    config::Node line = config::Node::map();
    line.set_child("phase", config::Node::text(metrics.phase));
    for (size_t i = 0; i < numbers.size(); ++i) line.set_child(numbers.key(i), numbers.at(i));
    parts.run->write_metrics(line);
  }

  void show_progress(int64_t i, const StepOutput& out, Clock::time_point begin, int64_t first) {
    const double per_step = milliseconds(Clock::now() - begin) / double(i - first) / 1000;
    const int64_t total = settings.training.train_iters;
    std::string losses;
    for (const auto& name : workspace->loss_names)
      losses += fmt::format(" | {} {:.4f}", name, out.losses.at(name));
    const double tokens = double(settings.batch.batch_size * settings.batch.sequence_length);
    log::progress(fmt::format("step {}/{}{} | {} tokens/s | {} left", i, total, losses,
                              with_commas(tokens / per_step, 0),
                              duration_text(per_step * double(total - i))));
  }

  // ---------------------------------------------------------------- evaluation

  // Forward-only steps on a loader that goes on where the last evaluation stopped.
  // False: a signal came; what was counted so far is dropped.
  bool evaluate(Phase phase, data::Loader& loader, int64_t iterations, int64_t first_step,
                int64_t iteration) {
    Means losses, metrics;
    const auto begin = Clock::now();
    for (int64_t k = 0; k < iterations; ++k) {
      if (stop_requested()) {
        log::warning(fmt::format("The {} at iteration {} was interrupted and is not repeated.",
                                 lower_name(phase), iteration));
        return false;
      }
      StepBatches batches = next_batches(loader, first_step + k);
      StepOutput out = workspace->executor.evaluate(batches.input, workspace->evaluation_schedule);
      losses.add(out.losses);
      metrics.add(out.metrics);
      log::progress(fmt::format("{} {}/{}", lower_name(phase), k + 1, iterations));
    }
    Metrics m = base_metrics(phase, iteration);
    m.step_time_ms = milliseconds(Clock::now() - begin) / double(iterations);
    m.model_flops = m.hardware_flops = workspace->flops.evaluation;
    m.losses = losses.take(workspace->loss_names);
    m.others = metrics.take_all();
    publish(phase, m);
    return true;
  }

  bool validate(int64_t iteration) {
    const int64_t iterations = settings.training.validation_iterations;
    const int64_t done = iterations * settings.training.validation.count(iteration - 1);
    if (!validation_loader) {
      validation_loader = std::make_unique<data::Loader>(
          datasets.at(Phase::kValidation), loader_options(done * settings.batch.batch_size));
    }
    return evaluate(Phase::kValidation, *validation_loader, iterations, done, iteration);
  }

  bool test() {
    log::info("Running test phase ...");
    data::Loader loader(datasets.at(Phase::kTest), loader_options(0));
    return evaluate(Phase::kTest, loader, settings.training.test_iters, 0, completed);
  }

  // ---------------------------------------------------------------- training

  // An update that loss scaling skipped leaves everything as it was. Without it none is skipped: what is not a number goes
  // into the weights, and stays. That is told once, and nothing is saved any more, so that the last good checkpoint stays the
  // newest.
  void watch(int64_t i, const StepOutput& out, const optim::StepReport& update) {
    bool finite = update.skipped || std::isfinite(update.gradient_norm);
    for (const auto& [name, value] : out.losses) {
      if (std::isfinite(value)) continue;
      finite = update.skipped;
      ++nan_iters;
      break;
    }
    if (finite || diverged_at > 0) return;
    diverged_at = i;
    log::warning(
        fmt::format("Expected finite losses and gradients at iteration {}, found some that are "
                    "not; nothing is saved "
                    "from here on: stop, lower optimizer.learning_rate.base, and go on from the "
                    "last checkpoint.",
                    i));
  }

  void save() {
    if (diverged_at > 0) {
      log::warning(fmt::format(
          "Iteration {} is not saved: losses or gradients are not finite since iteration {}.",
          completed, diverged_at));
      return;
    }
    checkpoint::TrainingState state;
    state.completed_steps = completed;
    state.optimizer_step = workspace->optimizer.current_step;
    const optim::LossScaler& scaler = workspace->scaler;
    state.scaler = {scaler.type(), scaler.scale(), scaler.growth(), scaler.hysteresis()};
    state.metrics = last_metrics;
    checkpoints->save(state, workspace->store);
    last_saved = completed;
  }

  Outcome train_loop() {
    const auto& t = settings.training;
    Workspace& w = *workspace;
    const int64_t first_sample = completed * settings.batch.batch_size;
    log::info(fmt::format("Initializing PhaseType.training data iterator from sample {}...",
                          first_sample));
    data::Loader loader(datasets.at(Phase::kTraining), loader_options(first_sample));
    log::info("Training ...");

    Means losses, metrics;
    const auto loop_begin = Clock::now();
    const int64_t loop_first = completed;
    auto last_log = loop_begin;
    int64_t last_logged = completed;
    double waited_at_log = 0;
    bool validated = true;  // the last validation that was due came to its end
    while (completed < t.train_iters) {
      if (stop_requested()) return stopped();
      const int64_t i = completed + 1;
      last_metrics = config::Node::map();
      StepBatches batches = next_batches(loader, i);
      batches.input.loss_scale = w.scaler.scale();
      StepOutput out = w.executor.train(batches.input, w.training_schedule);
      const double learning_rate =
          settings.optimizer.learning_rate.at(w.optimizer.current_step + 1);
      const optim::StepReport update =
          w.optimizer.step(learning_rate, {w.scaler.scale(), w.scaler.skips_non_finite()});
      w.scaler.update(update.skipped);
      watch(i, out, update);
      if (update.skipped) {
        ++skipped_iters;
      } else {
        losses.add(out.losses);
        metrics.add(out.metrics);
      }
      completed = i;

      if (t.logs.enabled(i)) {
        const auto now = Clock::now();
        const double steps = double(i - last_logged);
        Metrics m = base_metrics(Phase::kTraining, i);
        m.step_time_ms = milliseconds(now - last_log) / steps;
        m.model_flops = w.flops.training;
        m.hardware_flops = w.flops.training_hardware;
        Metrics::Training& training = m.training.emplace();
        training.loss_scale = w.scaler.scale();
        if (!update.skipped) {
          training.learning_rate = learning_rate;
          training.grad_norm = update.gradient_norm;
        }
        training.skipped_iters = std::exchange(skipped_iters, 0);
        training.nan_iters = std::exchange(nan_iters, 0);
        training.step_time_average_ms = milliseconds(now - loop_begin) / double(i - loop_first);
        training.data_wait_ms = (loader.waited_ms() - waited_at_log) / steps;
        if (parts.run) training.run = parts.run->number();
        m.losses = losses.take(w.loss_names);
        m.others = metrics.take_all();
        waited_at_log = loader.waited_ms();
        last_log = now;
        last_logged = i;
        publish(Phase::kTraining, m);
      }
      show_progress(i, out, loop_begin, loop_first);

      const bool done = i >= t.train_iters, planned = t.shutdown.enabled(i);
      if (datasets.contains(Phase::kValidation) && (done || t.validation.enabled(i)))
        validated = validate(i);
      if (stop_requested() && !done) return stopped();
      // The end and a planned stop save off the interval, too, when there is one at all.
      if (checkpoints &&
          (done || planned ? t.checkpoint.when.enabled() : t.checkpoint.when.enabled(i)))
        save();
      if (planned && !done) return Outcome::kPlannedStop;
    }
    return validated ? Outcome::kCompleted : stopped();
  }

  // A signal came: what is done is saved wherever there is an experiment folder, interval or not.
  Outcome stopped() {
    if (checkpoints && last_saved != completed && completed > 0) save();
    return Outcome::kInterrupted;
  }

  void tell_interruption() {
    std::string saved = ", everything is saved";
    if (!checkpoints)
      saved = ", nothing is saved (run.experiment_dir is not set)";
    else if (last_saved != completed)
      saved = diverged_at > 0 ? ", which is not saved"
                              : ", nothing is saved since no iteration was done";
    log::info(fmt::format("Interrupt signal {} received: stopped after iteration {}{}.",
                          signal_name(stop_signal().load()), completed, saved));
  }

  Outcome run() {
    const auto& t = settings.training;
    workspace.emplace(settings, parts.model);
    if (parts.memory_ready) parts.memory_ready(workspace->store);
    create_datasets();
    create_state();
    log::info("done with setup ...");
    const MemoryUse use = memory.read();
    log::info(fmt::format("After initial setup:  allocated {} MiB | max allocated {} MiB",
                          with_commas(use.now, 2), with_commas(use.peak, 2)));
    Outcome outcome = Outcome::kCompleted;
    if (completed < t.train_iters) {
      outcome = train_loop();
    } else if (t.train_iters > 0) {
      log::info("Training already completed, nothing to do ...");
    }
    if (outcome == Outcome::kCompleted && datasets.contains(Phase::kTest) && !test())
      outcome = stopped();
    log::progress("");
    if (outcome == Outcome::kInterrupted) tell_interruption();
    return outcome;
  }
};

Trainer::Trainer(const TrainerParts& parts) : impl_(std::make_unique<Impl>(parts)) {}
Trainer::~Trainer() = default;
Outcome Trainer::run() { return impl_->run(); }

}  // namespace fastllm::train
