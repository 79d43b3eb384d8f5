#include "core/train/trainer.hpp"

#include <fmt/format.h>

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
#include "core/model/schedule.hpp"
#include "core/optim/adamw.hpp"
#include "core/shard/layout.hpp"
#include "core/shard/store.hpp"
#include "core/train/executor.hpp"
#include "core/train/initialize.hpp"
#include "core/train/metrics.hpp"

namespace fastllm::train {
namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

const char* lower_name(Phase phase) {
  switch (phase) {
    case Phase::kTraining:
      return "training";
    case Phase::kValidation:
      return "validation";
    case Phase::kTest:
      return "test";
  }
  return "";
}

// "{1: 0, 2: 1, 0: 13}": stage to buffer, in buffer order.
std::string placement_text(const shard::BufferPlacement& placement) {
  std::vector<std::string> entries;
  for (size_t buffer = 0; buffer < placement.contents.size(); ++buffer) {
    for (int stage : placement.contents[buffer])
      entries.push_back(fmt::format("{}: {}", stage, buffer));
  }
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

// Sums over the successful iterations since the last log.
class LossMeans {
 public:
  void add(const std::map<std::string, double>& losses) {
    for (const auto& [name, value] : losses) sums_[name] += value;
    ++count_;
  }
  // In order of definition; nan where nothing was added.
  std::vector<std::pair<std::string, double>> take(const std::vector<std::string>& names) {
    std::vector<std::pair<std::string, double>> means;
    for (const auto& name : names) {
      means.emplace_back(name, count_ ? sums_[name] / double(count_) : Metrics::kMissing);
    }
    sums_.clear();
    count_ = 0;
    return means;
  }

 private:
  std::map<std::string, double> sums_;
  int64_t count_ = 0;
};

}  // namespace

struct Trainer::Impl {
  explicit Impl(const TrainerParts& p) : parts(p), settings(p.settings) {}

  TrainerParts parts;
  const Settings& settings;
  std::optional<shard::Layout> layout;
  std::optional<shard::Store> store;
  std::optional<Executor> executor;
  std::optional<optim::AdamW> optimizer;
  std::vector<model::Step> training_schedule, evaluation_schedule;
  std::vector<std::string> loss_names;
  Datasets datasets;
  std::unique_ptr<checkpoint::CheckpointManager> checkpoints;
  std::unique_ptr<data::Loader> evaluation_loader;
  double step_flops = 0, step_hardware_flops = 0, evaluation_flops = 0;  // of one whole batch
  MemoryProbe memory;
  int64_t completed = 0;  // iterations done, as a checkpoint counts them
  int64_t last_saved = -1;
  config::Node last_metrics =
      config::Node::map();  // by phase, of the current iteration: goes into a checkpoint
  bool interrupted = false;

  shard::World world() const {
    const auto& d = settings.distributed;
    return {int(d.tensor_parallel), int(d.pipeline_parallel), int(d.data_parallel),
            d.pipeline_first};
  }

  shard::StoreOptions store_options() const {
    const auto& m = settings.multi_stage;
    shard::StoreOptions options;
    options.full_precision_gradients = m.full_precision_gradients;
    options.zero_stage = m.zero_stage;
    options.num_weight_buffers = m.num_weight_buffers;
    options.num_gradient_buffers = m.num_gradient_buffers;
    return options;
  }

  void create_memory() {
    const auto& description = parts.model.description();
    log::info("Creating model...");
    layout.emplace(description, world(),
                   shard::LayoutOptions{settings.multi_stage.layers_per_stage, 1});
    const int rank = int(settings.distributed.rank);
    const shard::StoreOptions options = store_options();
    log::info(fmt::format("  Splitting the model into {} stages...", layout->stages().size()));
    log::info(
        fmt::format("  Total parameters: {} ", with_commas(double(layout->parameters_total()), 0)));
    store.emplace(*layout, rank, options);
    log::info("Weight buffer placement:\n" + placement_text(store->weight_buffers()));
    log::info("Grad buffer placement:\n" + placement_text(store->gradient_buffers()));
    for (const auto& line : shard::allocation_table(*layout, rank, options).lines())
      log::info(line);
    if (parts.memory_ready) parts.memory_ready(*store);
    executor.emplace(parts.model, *store,
                     ExecutorOptions{settings.training.recompute_activations,
                                     settings.distributed.training_seed});
    optimizer.emplace(*store, settings.optimizer.adamw);
    const int depth = int(settings.batch.depth_first_micro_batches),
              breadth = int(settings.batch.breadth_first_micro_batches);
    training_schedule = model::make_schedule(schedule_options(*store, depth, breadth, true));
    evaluation_schedule = model::make_schedule(schedule_options(*store, depth, breadth, false));

    for (size_t i = 0; i < description.layers.size(); ++i) {
      for (const auto& port : description.layers[i].outputs) {
        if (port.flags & FASTLLM_PORT_LOSS) loss_names.push_back(port.name);
      }
      auto flops =
          parts.model.flops(int(i), settings.batch.batch_size, settings.batch.sequence_length);
      evaluation_flops += flops.forward;
      step_flops += 3 * flops.forward;
      // A layer made again for its backward costs one more forward.
      step_hardware_flops +=
          (settings.training.recompute_activations ? 4 : 3) * flops.forward + flops.recomputed;
    }
  }

  void create_datasets() {
    log::info("Preparing datasets...");
    for (Phase phase : {Phase::kTraining, Phase::kValidation, Phase::kTest}) {
      int64_t samples = settings.samples(phase);
      if (samples > 0) datasets[phase] = parts.make_dataset(phase, samples);
    }
  }

  void create_state() {
    if (parts.make_checkpoints) checkpoints = parts.make_checkpoints(datasets);
    if (auto found = checkpoints ? checkpoints->find_latest() : std::nullopt) {
      log::info(fmt::format("Loading checkpoint from iteration {}...", found->iteration));
      checkpoint::TrainingState state = checkpoints->load(*found, *store);
      completed = last_saved = state.completed_steps;
      optimizer->current_step = state.optimizer_step;
      return;
    }
    log::info("Initializing training state from scratch...");
    initialize(*store, parts.model, settings.distributed.initialization_seed);
  }

  data::LoaderOptions loader_options(int64_t first_sample) const {
    data::LoaderOptions o;
    o.first_sample = first_sample;
    o.micro_batch_size = settings.batch.micro_batch_size;
    o.sequence_length = settings.batch.sequence_length;
    o.vocab_size = parts.vocab_size;
    o.cross_document_attention = settings.batch.cross_document_attention;
    o.use_loss_masking_spans = settings.data.use_loss_masking_spans;
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
    auto begin = Clock::now();
    StepBatches batches;
    for (int64_t i = 0; i < settings.batch.sequential_micro_batches; ++i) {
      batches.owned.push_back(loader.next());
      batches.input.micro_batches.push_back(batches.owned.back().get());
      batches.input.valid_labels += batches.owned.back()->valid_labels;
    }
    batches.input.step = step;
    double took = milliseconds(Clock::now() - begin);
    if (took > settings.data.batch_warn_ms) {
      log::warning(fmt::format("Data loading took {} ms", with_commas(took, 2)));
    }
    return batches;
  }

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
    std::time_t now = std::time(nullptr);
    log::info(log_line(metrics, now));
    config::Node numbers = to_node(metrics, now);
    last_metrics.set_child(phase_name(phase),
                           numbers);  // capitalised, as in the reference's checkpoints
    if (!parts.run) return;
    config::Node line = config::Node::map();
    line.set_child("phase", config::Node::text(metrics.phase));
    for (size_t i = 0; i < numbers.size(); ++i) line.set_child(numbers.key(i), numbers.at(i));
    parts.run->write_metrics(line);
  }

  // Forward-only steps on a loader that goes on where the last evaluation stopped.
  // False: a signal came; what was counted so far is dropped.
  bool evaluate(Phase phase, data::Loader& loader, int64_t iterations, int64_t first_step,
                int64_t iteration) {
    LossMeans means;
    auto begin = Clock::now();
    for (int64_t k = 0; k < iterations; ++k) {
      if (stop_requested()) {
        log::warning(fmt::format("{} at iteration {} was interrupted and is not repeated.",
                                 lower_name(phase), iteration));
        return false;
      }
      StepBatches batches = next_batches(loader, first_step + k);
      means.add(executor->evaluate(batches.input, evaluation_schedule).losses);
      log::progress(fmt::format("{} {}/{}", lower_name(phase), k + 1, iterations));
    }
    Metrics m = base_metrics(phase, iteration);
    m.step_time_ms = milliseconds(Clock::now() - begin) / double(iterations);
    m.model_flops = m.hardware_flops = evaluation_flops;
    m.losses = means.take(loss_names);
    publish(phase, m);
    return true;
  }

  bool validate(int64_t iteration) {
    const int64_t iterations = settings.training.validation_iterations;
    const int64_t done = iterations * settings.training.validation.count(iteration - 1);
    if (!evaluation_loader) {
      evaluation_loader = std::make_unique<data::Loader>(
          datasets.at(Phase::kValidation), loader_options(done * settings.batch.batch_size));
    }
    return evaluate(Phase::kValidation, *evaluation_loader, iterations, done, iteration);
  }

  void save(int64_t iteration) {
    checkpoint::TrainingState state;
    state.completed_steps = iteration;
    state.optimizer_step = optimizer->current_step;
    state.metrics = last_metrics;
    checkpoints->save(state, *store);
    last_saved = iteration;
  }

  Outcome train_loop() {
    const auto& t = settings.training;
    auto& dataset = datasets.at(Phase::kTraining);
    int64_t first_sample = completed * settings.batch.batch_size;
    log::info(fmt::format("Initializing PhaseType.training data iterator from sample {}...",
                          first_sample));
    data::Loader loader(dataset, loader_options(first_sample));
    log::info("Training ...");

    LossMeans means;
    auto loop_begin = Clock::now(), last_log = loop_begin;
    int64_t loop_first = completed, last_logged = completed;
    double waited_at_log = 0;
    Outcome outcome = Outcome::kCompleted;
    for (bool stop = stop_requested(); !stop;) {
      const int64_t i = completed + 1;
      last_metrics = config::Node::map();
      StepBatches batches = next_batches(loader, i);
      StepOutput out = executor->train(batches.input, training_schedule);
      double learning_rate = settings.optimizer.learning_rate.at(optimizer->current_step + 1);
      optim::StepReport update = optimizer->step(learning_rate);
      means.add(out.losses);
      completed = i;

      if (t.logs.enabled(i)) {
        auto now = Clock::now();
        Metrics m = base_metrics(Phase::kTraining, i);
        m.step_time_ms = milliseconds(now - last_log) / double(i - last_logged);
        m.model_flops = step_flops;
        m.hardware_flops = step_hardware_flops;
        Metrics::Training training;
        training.learning_rate = learning_rate;
        training.grad_norm = update.gradient_norm;
        training.step_time_average_ms = milliseconds(now - loop_begin) / double(i - loop_first);
        training.data_wait_ms = (loader.waited_ms() - waited_at_log) / double(i - last_logged);
        if (parts.run) training.run = parts.run->number();
        m.training = training;
        m.losses = means.take(loss_names);
        waited_at_log = loader.waited_ms();
        last_log = now;
        last_logged = i;
        publish(Phase::kTraining, m);
      }
      show_progress(i, out, loop_begin, loop_first);

      const bool done = i >= t.train_iters;
      stop = done || t.shutdown.enabled(i);
      if (stop && !done) outcome = Outcome::kPlannedStop;
      if (datasets.contains(Phase::kValidation) && (done || t.validation.enabled(i))) validate(i);
      if (stop_requested() && !done) {
        stop = true;
        outcome = Outcome::kInterrupted;
      }
      // A stop always saves when checkpoints are on; a signal also when only an experiment folder is there.
      const bool scheduled = stop ? t.checkpoint.when.enabled() : t.checkpoint.when.enabled(i);
      if (checkpoints && (scheduled || (stop && outcome == Outcome::kInterrupted))) save(i);
    }
    if (outcome == Outcome::kCompleted && completed < t.train_iters)
      outcome = Outcome::kInterrupted;
    log::progress("");
    return outcome;
  }

  void show_progress(int64_t i, const StepOutput& out, Clock::time_point begin, int64_t first) {
    double per_step = milliseconds(Clock::now() - begin) / double(i - first) / 1000;
    int64_t total = settings.training.train_iters;
    std::string losses;
    for (const auto& name : loss_names)
      losses += fmt::format(" | {} {:.4f}", name, out.losses.at(name));
    log::progress(fmt::format(
        "step {}/{}{} | {} tokens/s | {} left", i, total, losses,
        with_commas(double(settings.batch.batch_size * settings.batch.sequence_length) / per_step,
                    0),
        duration_text(per_step * double(total - i))));
  }

  Outcome run() {
    const auto& t = settings.training;
    create_memory();
    create_datasets();
    create_state();
    log::info("done with setup ...");
    MemoryUse use = memory.read();
    log::info(fmt::format("After initial setup:  allocated {} MiB | max allocated {} MiB",
                          with_commas(use.now, 2), with_commas(use.peak, 2)));
    Outcome outcome = Outcome::kCompleted;
    if (completed < t.train_iters) {
      outcome = train_loop();
    } else if (t.train_iters > 0) {
      log::info("Training already completed, nothing to do ...");
    }
    if (outcome == Outcome::kCompleted && datasets.contains(Phase::kTest)) {
      log::info("Running test phase ...");
      data::Loader loader(datasets.at(Phase::kTest), loader_options(0));
      if (!evaluate(Phase::kTest, loader, t.test_iters, 0, completed))
        outcome = Outcome::kInterrupted;
    }
    if (outcome == Outcome::kInterrupted) {
      int number = stop_signal().load();
      log::info(fmt::format("Interrupt signal {} received: stopped after iteration {}{}.",
                            number == 2    ? "SIGINT"
                            : number == 15 ? "SIGTERM"
                                           : std::to_string(number),
                            completed,
                            !checkpoints ? ", nothing is saved (run.experiment_dir is not set)"
                            : last_saved == completed ? ", everything is saved"
                                                      : ""));
    }
    return outcome;
  }
};

Trainer::Trainer(const TrainerParts& parts) : impl_(std::make_unique<Impl>(parts)) {}
Trainer::~Trainer() = default;
Outcome Trainer::run() { return impl_->run(); }

}  // namespace fastllm::train
