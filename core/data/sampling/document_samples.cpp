#include "core/data/sampling/document_samples.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.hpp"

namespace fastllm::data {

DocumentSamples::DocumentSamples(IndexedPointer dataset, const SamplingOptions& options)
    : dataset_(std::move(dataset)), options_(options) {}

void DocumentSamples::check_index(int64_t index) const {
  if (index >= 0 && index < size()) return;
  throw Error(Status::kInvalid,
              fmt::format("expected a sample from 0 to {} of dataset {}, found {}", size() - 1,
                          name(), index));
}

void DocumentSamples::empty_lists(Sample& sample) const {
  FASTLLM_ASSERT(int64_t(sample.tokens.size()) == sample_tokens());
  sample.loss_masking_spans.clear();
  sample.document_lengths.clear();
}

void DocumentSamples::append(int64_t document, int64_t offset, int64_t begin, int64_t count,
                             Sample& sample) const {
  const size_t known = sample.loss_masking_spans.size();
  dataset_->get(document, offset, sample.tokens.subspan(size_t(begin), size_t(count)),
                options_.use_loss_masking_spans ? &sample.loss_masking_spans : nullptr);
  for (size_t i = known; i < sample.loss_masking_spans.size(); ++i) {
    sample.loss_masking_spans[i].first += begin;
    sample.loss_masking_spans[i].last += begin;
  }
}

}  // namespace fastllm::data
