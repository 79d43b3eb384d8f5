// The order in which the blocks are read, and what follows from settings alone.
#include "core/train/settings/settings.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {

using config::Node;

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::kTraining:
      return "Training";
    case Phase::kValidation:
      return "Validation";
    case Phase::kTest:
      return "Test";
  }
  return "?";
}

std::string ValidationSet::dataset() const {
  return name.empty() ? phase_name(Phase::kValidation) : name;
}

const Node& DataSettings::dataset(const std::string& name) const {
  static const Node none;
  const Node* found = datasets.child(name);
  return found ? *found : none;
}

int64_t Settings::samples(Phase phase) const {
  switch (phase) {
    case Phase::kTraining:
      return batch.batch_size * training.train_iters;
    case Phase::kTest:
      return batch.batch_size * training.test_iters;
    case Phase::kValidation:
      break;
  }
  return 0;
}

int64_t Settings::samples(const ValidationSet& set) const {
  // Nothing is evaluated when nothing is trained; else a last evaluation comes at the end in any
  // case.
  if (!set.when.enabled() || training.train_iters == 0) return 0;
  if (!set.when.interval) return batch.batch_size * set.iterations;
  int64_t evaluations =
      set.when.count(training.train_iters) + (set.when.enabled(training.train_iters) ? 0 : 1);
  return batch.batch_size * set.iterations * evaluations;
}

int64_t Settings::first_validation_step(const ValidationSet& set, int64_t iteration) {
  return set.iterations * set.when.count(iteration - 1);
}

Settings make_settings(Node& root, const Environment& environment) {
  Reader reader(root);
  Settings settings;
  settings.run = read_run(reader);
  settings.multi_stage = read_multi_stage(reader);
  settings.distributed = read_distributed(reader, environment);
  settings.batch = read_batch(reader, settings.distributed);
  settings.training = read_training(reader);
  settings.data = read_data(reader);
  settings.optimizer = read_optimizer(reader, settings.distributed.training_dtype);
  settings.tensor_logs = read_tensor_logs(reader);
  settings.profiling = read_profiling(reader);
  read_schedule(reader, settings);
  check_intervals(reader, settings.training);
  check_formats(reader);
  check_sizes(reader, settings.training, settings.batch);
  reader.problems.throw_if_any();
  settings.notes = std::move(reader.notes);
  return settings;
}

std::vector<std::string> plan_lines(const Settings& settings) {
  std::vector<std::string> lines;
  const TrainingSettings& training = settings.training;
  if (training.train_iters == 0) return lines;
  const SaveSettings& save = training.checkpoint;
  if (!save.when.enabled()) {
    lines.push_back("checkpoints: none - all progress is lost if the run stops");
  } else {
    std::string kept = save.keep ? fmt::format("the last {} are kept", *save.keep) : "all are kept";
    if (save.keep_every) kept += fmt::format(", and each {}th for good", *save.keep_every);
    std::string when;
    if (save.when.interval) {
      when = fmt::format("every {} iterations{}", *save.when.interval,
                         save.when.offset ? fmt::format(" from {}", save.when.offset) : "");
    }
    if (save.when.seconds)
      when += fmt::format("{}every {} s", when.empty() ? "" : ", ", *save.when.seconds);
    lines.push_back(fmt::format("checkpoints: {} and at the end, {}", when, kept));
  }
  return lines;
}

}  // namespace fastllm::train
