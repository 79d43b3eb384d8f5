// What both ways of sampling (sampling.cpp, packed_sampling.cpp) share. Internal to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/indexed.hpp"
#include "core/data/sampling/sampling.hpp"

namespace fastllm::data {

// Samples from the documents of one dataset.
class DocumentSamples : public SampledDataset {
 public:
  int64_t size() const final { return options_.num_samples; }
  std::string name() const final { return dataset_->name(); }
  bool has_spans() const final { return options_.use_loss_masking_spans && dataset_->has_spans(); }
  std::vector<std::string> fingerprints() const final { return dataset_->fingerprints(); }

 protected:
  DocumentSamples(IndexedPointer dataset, const SamplingOptions& options);

  void check_index(int64_t index) const;
  // Empties the lists of a sample that has room for sample_tokens().
  void empty_lists(Sample& sample) const;
  // Tokens [offset, offset + count) of a document become [begin, begin + count) of the sample, spans
  // with them when they are wanted.
  void append(int64_t document, int64_t offset, int64_t begin, int64_t count, Sample& sample) const;

  const IndexedPointer& dataset() const { return dataset_; }
  const SamplingOptions& options() const { return options_; }
  int64_t sample_tokens() const { return options_.sequence_length + options_.predicted_tokens; }

 private:
  IndexedPointer dataset_;
  SamplingOptions options_;
};

}  // namespace fastllm::data
