#include "core/train/evaluation_run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/train/decisions.hpp"
#include "core/train/reporter.hpp"
#include "core/train/tensor_log.hpp"
#include "core/train/workspace.hpp"

namespace fastllm::train {
namespace {

// Those a training would take, so that the order of the samples is the same; never fewer than this
// evaluation needs.
Datasets make_datasets(const TrainerParts& parts, int64_t iteration) {
  const Settings& settings = parts.settings;
  Datasets datasets;
  auto create = [&](const std::string& name, const std::string& reader, int64_t samples) {
    if (settings.data.dataset(name).is_null()) {
      throw Error(Status::kInvalid,
                  fmt::format("data.datasets.{}: expected a dataset for {}, found none; write for "
                              "example {{type: memmap, path: PREFIX}}",
                              name, reader));
    }
    datasets[name] = parts.make_dataset(name, samples);
  };
  for (const ValidationSet& set : settings.training.validation) {
    const int64_t end = Settings::first_validation_step(set, iteration) + set.iterations;
    create(set.dataset(), set.key(),
           std::max(settings.samples(set), end * settings.batch.batch_size));
  }
  if (const int64_t samples = settings.samples(Phase::kTest); samples > 0)
    create(phase_name(Phase::kTest), "training.test_iters", samples);
  return datasets;
}

}  // namespace

Outcome run_evaluation(const TrainerParts& parts, const std::function<int64_t(shard::Store&)>& load,
                       const std::function<void(const Datasets&)>& data_ready) {
  const Settings& settings = parts.settings;
  if (settings.training.validation.empty() && settings.training.test_iters == 0) {
    throw Error(Status::kInvalid,
                "expected something to evaluate, found neither training.validation.iterations (of "
                "a set, with or without a name) nor training.test_iters; set one of them");
  }
  Workspace workspace(settings, parts.model, parts.ranks);
  if (parts.memory_ready) parts.memory_ready(workspace.store);
  const int64_t iteration = load(workspace.store);
  log::info("Preparing datasets...");
  const Datasets datasets = make_datasets(parts, iteration);
  agree_on_datasets(datasets, parts.ranks);
  data_ready(datasets);
  Reporter reporter(settings, parts.run);
  TensorLog tensors(settings, parts.model.description(), parts.run);
  Evaluator evaluator({settings, workspace, datasets, reporter, parts.clock, parts.vocab_size,
                       &tensors, Decider::signalled});
  log::info("done with setup ...");
  bool done = true;
  for (const ValidationSet& set : settings.training.validation)
    done = done && evaluator.validate(set, iteration);
  if (settings.training.test_iters > 0) done = done && evaluator.test(iteration);
  log::progress("");
  return done ? Outcome::kCompleted : Outcome::kInterrupted;
}

}  // namespace fastllm::train
