#include "core/train/step_batches.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/profile.hpp"
#include "core/base/text.hpp"

namespace fastllm::train {

data::LoaderOptions loader_options(const Settings& settings, int64_t vocab_size,
                                   int64_t predicted_tokens, int64_t first_sample) {
  data::LoaderOptions o;
  o.first_sample = first_sample;
  o.micro_batch_size = settings.batch.micro_batch_size;
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

std::optional<StepBatches> next_batches(data::Loader& loader, const Settings& settings,
                                        int64_t step, const Clock& clock) try {
  const profile::Span span("wait", "data");
  const double begin = clock();
  StepBatches batches;
  for (int64_t i = 0; i < settings.batch.sequential_micro_batches; ++i) {
    batches.owned.push_back(loader.next());
    batches.input.add(*batches.owned.back());
  }
  batches.input.step = step;
  const double took_ms = (clock() - begin) * 1000;
  if (took_ms > settings.data.batch_warn_ms)
    log::warning(fmt::format("Data loading took {} ms", with_commas(took_ms, 2)));
  return batches;
} catch (const Error& error) {
  if (error.status() == Status::kCancelled) return std::nullopt;
  throw;
}

}  // namespace fastllm::train
