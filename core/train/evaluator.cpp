#include "core/train/evaluator.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/train/executor/wiring.hpp"
#include "core/train/means.hpp"

namespace fastllm::train {

std::string Evaluator::phase(const ValidationSet& set) {
  return set.name.empty() ? "validation" : "validation/" + set.name;
}

void agree_on_datasets(const Datasets& datasets, const Ranks& ranks) {
  if (!ranks.agree) return;
  if (ranks.meet) ranks.meet("preparing datasets");
  std::string text;
  for (const auto& [name, dataset] : datasets)
    for (const std::string& line : dataset->fingerprints()) text += name + ": " + line + "\n";
  ranks.agree("data", text);
}

bool Evaluator::validate(const ValidationSet& set, int64_t iteration) {
  const int64_t first = Settings::first_validation_step(set, iteration);
  std::unique_ptr<data::Loader>& loader = loaders_[set.name];
  if (!loader || !set.when.interval) {
    loader = std::make_unique<data::Loader>(
        parts_.datasets.at(set.dataset()),
        loader_options(parts_.settings, parts_.vocab_size,
                       predicted_tokens(parts_.workspace.layout.description()),
                       first * parts_.settings.batch.batch_size));
  }
  return run(phase(set), *loader, set.iterations, first, iteration);
}

bool Evaluator::test(int64_t iteration) {
  log::info("Running test phase ...");
  data::Loader loader(parts_.datasets.at(phase_name(Phase::kTest)),
                      loader_options(parts_.settings, parts_.vocab_size,
                                     predicted_tokens(parts_.workspace.layout.description()), 0));
  return run("test", loader, parts_.settings.training.test_iters, 0, iteration);
}

bool Evaluator::run(const std::string& phase, data::Loader& loader, int64_t steps,
                    int64_t first_step, int64_t iteration) {
  const profile::Span span("evaluation", phase, iteration);
  Workspace& w = parts_.workspace;
  Means losses, metrics;
  const double begin = parts_.clock();
  for (int64_t k = 0; k < steps; ++k) {
    std::optional<StepBatches> batches =
        next_batches(loader, parts_.settings, first_step + k, parts_.clock, w.ranks, parts_.stop);
    if (!batches) {
      log::warning(fmt::format("The {} at iteration {} was interrupted: it gives no result.", phase,
                               iteration));
      return false;
    }
    StepOutput out = w.executor.evaluate(batches->input, w.evaluation_schedule, parts_.tensors);
    if (parts_.tensors) {
      std::string name = phase;
      std::replace(name.begin(), name.end(), '/', '_');
      parts_.tensors->save(fmt::format("{}_{}_{}", name, iteration, k));
    }
    losses.add(out.losses);
    metrics.add(out.metrics);
    log::progress(fmt::format("{} {}/{}", phase, k + 1, steps));
  }
  Metrics m = parts_.reporter.base(phase, iteration);
  m.step_time_ms = (parts_.clock() - begin) * 1000 / double(steps);
  m.model_flops = m.hardware_flops = w.flops.evaluation;
  m.losses = losses.take(w.loss_names);
  m.others = metrics.take_all();
  parts_.reporter.publish(m);
  return true;
}

}  // namespace fastllm::train
