#include "core/train/step_batches.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"
#include "core/distributed/sums.hpp"

namespace fastllm::train {

data::LoaderOptions loader_options(const Settings& settings, int64_t vocab_size,
                                   int64_t predicted_tokens, int64_t first_sample) {
  data::LoaderOptions o;
  o.first_sample = first_sample;
  o.micro_batch_size = settings.batch.micro_batch_size;
  const distributed::World world = settings.distributed.world();
  o.batch_data_rank = world.batch_data_rank(int(settings.distributed.rank));
  o.batch_data_size = world.batch_data();
  o.sequence_data_rank = world.sequence_data_rank(int(settings.distributed.rank));
  o.sequence_data_size = world.sequence_data;
  o.sequence_length = settings.batch.sequence_length;
  o.predicted_tokens = predicted_tokens;
  o.vocab_size = vocab_size;
  o.cross_document_attention = settings.batch.cross_document_attention;
  o.threads = settings.training.num_workers;
  o.prefetch = settings.training.prefetch_factor;
  o.step_batches = settings.batch.sequential_micro_batches;
  o.sample_warn_ms = settings.data.sample_warn_ms;
  return o;
}

namespace {

// On this rank. False: a signal ended the wait.
bool take_batches(data::Loader& loader, const Settings& settings, const Clock& clock,
                  StepBatches& batches) try {
  const profile::Span span("wait", "data");
  const double begin = clock();
  for (int64_t i = 0; i < settings.batch.sequential_micro_batches; ++i) {
    batches.owned.push_back(loader.next());
    batches.input.add(*batches.owned.back());
  }
  const double took_ms = (clock() - begin) * 1000;
  if (took_ms > settings.data.batch_warn_ms)
    log::warning(fmt::format("Data loading took {} ms", with_commas(took_ms, 2)));
  return true;
} catch (const Error& error) {
  if (error.status() == Status::kCancelled) return false;
  throw;
}

// The labels of the others' micro-batches join, and the wish of one rank to stop holds for all:
// gives whether all have their batches.
bool agree_on_step(StepInput& input, bool taken, int64_t further, const Ranks& ranks) {
  if (!ranks.world) return taken;
  input.further_valid_labels.resize(size_t(further));  // a rank that stops has no batch
  std::vector<double> sums{double(!taken), double(input.valid_labels)};
  sums.insert(sums.end(), input.further_valid_labels.begin(), input.further_valid_labels.end());
  distributed::sum_over(ranks.world, sums);
  // Each of the replicas counted the same labels.
  const auto labels = [&](double sum) { return int64_t(sum) / ranks.replicas(); };
  input.valid_labels = labels(sums[1]);
  for (size_t k = 2; k < sums.size(); ++k) input.further_valid_labels[k - 2] = labels(sums[k]);
  return sums[0] == 0;
}

}  // namespace

std::optional<StepBatches> next_batches(data::Loader& loader, const Settings& settings,
                                        int64_t step, const Clock& clock, const Ranks& ranks,
                                        const std::function<bool()>& stop) {
  StepBatches batches;
  batches.input.step = step;
  const bool taken = !(stop && stop()) && take_batches(loader, settings, clock, batches);
  if (!agree_on_step(batches.input, taken, loader.options().predicted_tokens - 1, ranks))
    return std::nullopt;
  return batches;
}

}  // namespace fastllm::train
