// Delivers micro-batches in order, ahead of the step, from background threads. The order is a pure
// function of the first sample: nothing to save for a resume.
#pragma once

#include <cstdint>
#include <memory>

#include "core/data/batch.hpp"

namespace fastllm::data {

struct LoaderOptions {
  int64_t first_sample = 0;        // completed iterations * batch_size
  int64_t micro_batch_size = 1;    // samples
  int64_t sequence_length = 2048;  // tokens
  int64_t predicted_tokens = 1;    // labels a position has; a sample has as many tokens more
  int64_t vocab_size =
      0;  // ids outside [0, vocab_size) are refused with file, document and id; 0: no check
  int batch_data_rank = 0, batch_data_size = 1;
  // Of the ranks that share each sample: each has an equal part of its tokens, in order.
  int sequence_data_rank = 0, sequence_data_size = 1;
  bool cross_document_attention = true;
  int threads = 2;               // training.num_workers; 0: prepares in next()
  int prefetch = 2;              // micro-batches ready ahead, per thread
  int64_t step_batches = 1;      // micro-batches that a step takes together
  double sample_warn_ms = 1000;  // a slower sample warns (docs/compatibility.md)
};

// Micro-batches that are ready, or being made, ahead of next(): `prefetch` for each thread, but no
// fewer than two steps take. A step takes all of its own before it computes, and its computation is
// the time in which the next ones are made.
int64_t read_ahead(const LoaderOptions& options);

class Loader {
 public:
  Loader(std::shared_ptr<const SampledDataset> dataset, const LoaderOptions& options);
  ~Loader();
  Loader(const Loader&) = delete;
  // Blocks until the next micro-batch is ready. Throws what the worker met; throws Error(kInvalid)
  // past the end.
  std::unique_ptr<Batch> next();
  double waited_ms() const;  // in next(), since construction
  const LoaderOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastllm::data
