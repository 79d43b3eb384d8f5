// Makes micro-batch number n of a loader: reads its samples into place, checks ids, sets labels,
// positions and attention ranges. Any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "core/data/batch.hpp"
#include "core/data/loader.hpp"

namespace fastllm::data {

class BatchBuilder {
 public:
  BatchBuilder(const SampledDataset& dataset, const LoaderOptions& options)
      : dataset_(dataset), options_(options) {}
  std::unique_ptr<Batch> build(int64_t number) const;

 private:
  void read_sample(int64_t index, Sample& sample) const;
  void check_ids(int64_t index, const Sample& sample) const;
  // Of one row: the tokens `distance` further, where they count.
  void set_labels(const Sample& sample, int64_t distance, std::span<int64_t> labels) const;
  void set_documents(const Sample& sample, int64_t row, Batch& batch) const;
  // Of each row only what this one of the ranks that share it takes.
  void keep_part(Batch& batch) const;

  const SampledDataset& dataset_;
  const LoaderOptions& options_;
};

}  // namespace fastllm::data
