// The loop, saves and stops (docs/compatibility.md). What a step is, is the executor's; what is
// printed, metrics'.
#include "core/train/trainer.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"
#include "core/data/loader.hpp"
#include "core/train/decisions.hpp"
#include "core/train/evaluator.hpp"
#include "core/train/executor/initialize.hpp"
#include "core/train/executor/wiring.hpp"
#include "core/train/means.hpp"
#include "core/train/metrics/metrics.hpp"
#include "core/train/profiling.hpp"
#include "core/train/reporter.hpp"
#include "core/train/step_batches.hpp"
#include "core/train/tensor_agreement.hpp"
#include "core/train/tensor_log.hpp"
#include "core/train/update.hpp"
#include "core/train/workspace.hpp"

namespace fastllm::train {

struct Trainer::Impl {
  explicit Impl(const TrainerParts& p)
      : parts(p), settings(p.settings), reporter(p.settings, p.run) {
    if (!parts.clock) {
      const auto begin = std::chrono::steady_clock::now();
      parts.clock = [begin] {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      };
    }
  }

  TrainerParts parts;
  const Settings& settings;
  Reporter reporter;
  std::optional<Workspace> workspace;
  Datasets datasets;
  std::unique_ptr<checkpoint::CheckpointManager> checkpoints;
  std::optional<TensorLog> tensors;
  std::optional<Evaluator> evaluator;
  std::optional<Updater> updater;
  int64_t completed = 0;  // iterations done, as a checkpoint counts them
  int64_t last_saved = -1;
  Means losses, metrics;         // since training was last logged
  std::vector<std::string> due;  // phases of evaluations after `completed` that a signal cut short

  // ---------------------------------------------------------------- setup

  void create_datasets() {
    log::info("Preparing datasets...");
    auto create = [&](const std::string& name, int64_t samples) {
      if (samples > 0) datasets[name] = parts.make_dataset(name, samples);
    };
    create(phase_name(Phase::kTraining), settings.samples(Phase::kTraining));
    for (const ValidationSet& set : settings.training.validation)
      create(set.dataset(), settings.samples(set));
    create(phase_name(Phase::kTest), settings.samples(Phase::kTest));
    agree_on_datasets(datasets, parts.ranks);
  }

  // What rank 0 finds: the others may see the folder as it was a moment ago.
  std::optional<checkpoint::Found> latest() const {
    if (!checkpoints) return std::nullopt;
    std::optional<checkpoint::Found> found;
    if (parts.ranks.main()) found = checkpoints->find_latest();
    const int64_t iteration = parts.ranks.of_main(found ? found->iteration : -1);
    return iteration >= 0 ? std::optional(checkpoints->named(iteration)) : std::nullopt;
  }

  void create_state() {
    if (parts.make_checkpoints) checkpoints = parts.make_checkpoints(datasets);
    if (auto found = latest()) {
      log::info(fmt::format("Loading checkpoint from iteration {}...", found->iteration));
      checkpoint::TrainingState state =
          checkpoints->load(*found, workspace->store, workspace->scaler.type());
      completed = last_saved = state.completed_steps;
      due = std::move(state.due_evaluations);
      losses.restore(std::move(state.since_log.losses));
      metrics.restore(std::move(state.since_log.metrics));
      updater->restore(state.since_log.skipped_iters, state.since_log.nan_iters);
      workspace->optimizer.current_step = state.optimizer_step;
      workspace->scaler.restore(state.scaler.scale, state.scaler.growth, state.scaler.hysteresis);
      return;
    }
    log::info("Initializing training state from scratch...");
    workspace->scaler.start();
    initialize(workspace->store, parts.model, settings.distributed.initialization_seed);
  }

  // ---------------------------------------------------------------- training

  struct Loop {  // what the loop keeps from one step to the next
    Loop(std::shared_ptr<const data::SampledDataset> data, const data::LoaderOptions& options,
         int64_t completed, const TrainingSettings& training, const Clock& clock,
         distributed::Communicator* world)
        : loader(std::move(data), options),
          decider(training, clock, world),
          first(completed),
          begin(clock()),
          last_logged(completed),
          last_log(begin) {}
    data::Loader loader;
    Decider decider;
    const int64_t first;  // iterations that were done before
    const double begin;   // seconds of the clock
    int64_t last_logged;  // iteration of the last log, and when
    double last_log;
    double waited_at_log = 0;
  };

  void show_progress(int64_t i, const StepOutput& out, const Loop& loop) {
    const double per_step = (parts.clock() - loop.begin) / double(i - loop.first);
    const int64_t total = settings.training.train_iters;
    std::string shown;
    for (const auto& name : workspace->loss_names)
      shown += fmt::format(" | {} {:.4f}", name, out.losses.at(name));
    const double tokens = double(settings.batch.batch_size * settings.batch.sequence_length);
    log::progress(fmt::format("step {}/{}{} | {} tokens/s | {} left", i, total, shown,
                              with_commas(tokens / per_step, 0),
                              duration_text(per_step * double(total - i))));
  }

  // What a signal cuts short, and all after it, stays due.
  void validate(const std::vector<const ValidationSet*>& sets) {
    due.clear();
    for (const ValidationSet* set : sets) {
      if (!due.empty() || !evaluator->validate(*set, completed))
        due.push_back(Evaluator::phase(*set));
    }
  }

  // What was cut short when the checkpoint was written.
  void validate_due() {
    std::vector<const ValidationSet*> sets;
    for (const ValidationSet& set : settings.training.validation) {
      const bool has_samples =
          completed <= settings.training.train_iters && datasets.contains(set.dataset());
      if (has_samples && std::erase(due, Evaluator::phase(set)) > 0) sets.push_back(&set);
    }
    for (const std::string& phase : due) {
      log::warning(
          fmt::format("The {} that was interrupted after iteration {} is left out, since "
                      "this configuration has none there.",
                      phase, completed));
    }
    validate(sets);
  }

  void tell_end_by_divergence() {
    const std::string kept = last_saved >= 0
                                 ? fmt::format("checkpoint {} is the last good one", last_saved)
                                 : std::string("there is no checkpoint to go on from");
    // Of all ranks' together; to standard output rank 0 alone says it.
    log::write(
        parts.ranks.main() ? log::Level::kError : log::Level::kInfo,
        fmt::format("Stopped after iteration {} since the next diverged; {}, and its weights "
                    "are untouched: lower optimizer.learning_rate.base and start again, or "
                    "see training.divergence.",
                    completed, kept));
  }

  void save() {
    if (const int64_t at = updater->diverged_at(); at > 0) {
      log::warning(
          fmt::format("Iteration {} is not saved: it diverged in iteration {}.", completed, at));
      return;
    }
    const profile::Span span("checkpoint", "save", completed);
    checkpoint::TrainingState state;
    state.completed_steps = completed;
    state.optimizer_step = workspace->optimizer.current_step;
    const optim::LossScaler& scaler = workspace->scaler;
    state.scaler = {scaler.type(), scaler.scale(), scaler.growth(), scaler.hysteresis()};
    state.metrics = reporter.published();
    state.due_evaluations = due;
    state.since_log = {losses.sums(), metrics.sums(), updater->skipped(), updater->nan()};
    checkpoints->save(state, workspace->store);
    last_saved = completed;
  }

  Outcome train_loop() {
    const int64_t first_sample = completed * settings.batch.batch_size;
    log::info(fmt::format("Initializing PhaseType.training data iterator from sample {}...",
                          first_sample));
    Loop loop(datasets.at(phase_name(Phase::kTraining)),
              loader_options(settings, parts.vocab_size,
                             predicted_tokens(parts.model.description()), first_sample),
              completed, settings.training, parts.clock, parts.ranks.world);
    if (settings.debug_schedule)
      log::info("Training schedule:\n" + schedule_text(workspace->training_schedule));
    log::info("Training ...");
    Profiling profiling(settings, parts.run);
    std::optional<Outcome> ended;
    while (!ended && completed < settings.training.train_iters) {
      const int64_t i = completed + 1, n = i - loop.first;
      profiling.begin(n);
      {
        const profile::Span span("iteration", "training", i);
        ended = iterate(i, loop);
      }
      profiling.end(i, n, workspace->training_schedule);
    }
    profiling.finish(completed);
    return ended.value_or(due.empty() ? Outcome::kCompleted : stopped());
  }

  // One step and what is due after it. nullopt: the run goes on.
  std::optional<Outcome> iterate(int64_t i, Loop& loop) {
    Workspace& w = *workspace;
    std::optional<StepBatches> taken =
        next_batches(loop.loader, settings, i, parts.clock, w.ranks, Decider::signalled);
    if (!taken) return stopped();
    reporter.clear();
    StepBatches& batches = *taken;
    batches.input.loss_scale = w.scaler.scale();
    StepOutput out = w.executor.train(batches.input, w.training_schedule, &*tensors);
    tensors->gradients(w.store);
    const std::optional<Updater::Update> update = updater->update(i, batches.input, out);
    tensors->updated_parameters(w.store);
    compare_tensor_ranks(i);
    tensors->save(fmt::format("train_{}", i));
    if (!update) return Outcome::kDiverged;
    if (update->done) {
      losses.add(out.losses);
      metrics.add(out.metrics);
    }
    completed = i;
    const Decisions decisions = loop.decider.decide(i);
    if (decisions.log) report(i, *update, loop);
    show_progress(i, out, loop);
    if (decisions.time_is_up)
      log::info(
          fmt::format("Reached training.wall_clock_limit ({} s): stopping after iteration {}.",
                      *settings.training.wall_clock_limit, i));
    validate(decisions.validate);
    if ((decisions.signal || !due.empty()) && !decisions.last) return stopped();
    if (decisions.save && checkpoints) save();
    loop.decider.carried_out(decisions);
    if (decisions.stop_is_planned()) return Outcome::kPlannedStop;
    return std::nullopt;
  }

  void compare_tensor_ranks(int64_t i) {
    if (!settings.multi_stage.debug_tensor_parallel) return;
    for (const char* state : {"grads", "weights"})
      check_tensor_ranks(workspace->store, state, parts.ranks,
                         fmt::format("after iteration {}", i));
  }

  void report(int64_t i, const Updater::Update& update, Loop& loop) {
    const double now = parts.clock(), steps = double(i - loop.last_logged);
    Metrics m = reporter.base("training", i);
    m.step_time_ms = (now - loop.last_log) * 1000 / steps;
    m.model_flops = workspace->flops.training;
    m.hardware_flops = workspace->flops.training_hardware;
    Metrics::Training& training = m.training.emplace();
    training.loss_scale = workspace->scaler.scale();
    training.learning_rate = update.learning_rate;
    training.grad_norm = update.gradient_norm;
    training.skipped_iters = updater->take_skipped();
    training.nan_iters = updater->take_nan();
    training.step_time_average_ms = (now - loop.begin) * 1000 / double(i - loop.first);
    training.data_wait_ms = (loop.loader.waited_ms() - loop.waited_at_log) / steps;
    if (parts.run) training.run = parts.run->number();
    m.losses = losses.take(workspace->loss_names);
    m.others = metrics.take_all();
    loop.waited_at_log = loop.loader.waited_ms();
    loop.last_logged = i;
    loop.last_log = now;
    reporter.publish(m);
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
      saved = updater->diverged_at() > 0 ? ", which is not saved"
                                         : ", nothing is saved since no iteration was done";
    else if (!due.empty())
      saved += fmt::format("; the next start does the {} first", fmt::join(due, ", "));
    const int signal = int(parts.ranks.most(stop_signal().load(std::memory_order_relaxed)));
    log::info(fmt::format("Interrupt signal {} received: stopped after iteration {}{}.",
                          signal_name(signal), completed, saved));
  }

  Outcome run() {
    const auto& t = settings.training;
    workspace.emplace(settings, parts.model, parts.ranks);
    if (parts.memory_ready) parts.memory_ready(workspace->store);
    create_datasets();
    tensors.emplace(settings, parts.model.description(), parts.run);
    evaluator.emplace(Evaluator::Parts{settings, *workspace, datasets, reporter, parts.clock,
                                       parts.vocab_size, &*tensors, Decider::signalled});
    updater.emplace(settings, *workspace);
    create_state();
    tensors->initial_parameters(workspace->store);
    tensors->save("init");
    compare_tensor_ranks(completed);
    log::info("done with setup ...");
    const MemoryUse use = reporter.memory.read();
    log::info(fmt::format("After initial setup:  allocated {} MiB | max allocated {} MiB",
                          with_commas(use.now, 2), with_commas(use.peak, 2)));
    validate_due();
    Outcome outcome = Outcome::kCompleted;
    if (!due.empty()) {
      outcome = stopped();
    } else if (completed < t.train_iters) {
      outcome = train_loop();
    } else if (t.train_iters > 0) {
      log::info("Training already completed, nothing to do ...");
    }
    if (outcome == Outcome::kCompleted && datasets.contains(phase_name(Phase::kTest)) &&
        !evaluator->test(completed))
      outcome = stopped();
    log::progress("");
    if (outcome == Outcome::kInterrupted) tell_interruption();
    if (outcome == Outcome::kDiverged) tell_end_by_divergence();
    return outcome;
  }
};

Trainer::Trainer(const TrainerParts& parts) : impl_(std::make_unique<Impl>(parts)) {}
Trainer::~Trainer() = default;
Outcome Trainer::run() { return impl_->run(); }

}  // namespace fastllm::train
