// Options checked once; then workers build micro-batches ahead and hand them over in order.
#include "core/data/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/profile.hpp"
#include "core/data/batch_builder.hpp"
#include "core/data/ordered_workers.hpp"

namespace fastllm::data {
namespace {

const LoaderOptions& checked(const LoaderOptions& options) {
  auto at_least = [](const char* name, int64_t value, int64_t least) {
    if (value < least) {
      throw Error(Status::kInvalid, fmt::format("expected {} of the loader from {} up, found {}",
                                                name, least, value));
    }
  };
  at_least("first_sample", options.first_sample, 0);
  at_least("micro_batch_size", options.micro_batch_size, 1);
  at_least("sequence_length", options.sequence_length, 1);
  at_least("predicted_tokens", options.predicted_tokens, 1);
  at_least("batch_data_rank", options.batch_data_rank, 0);
  at_least("batch_data_size", options.batch_data_size, options.batch_data_rank + 1);
  at_least("sequence_data_rank", options.sequence_data_rank, 0);
  at_least("sequence_data_size", options.sequence_data_size, options.sequence_data_rank + 1);
  if (options.sequence_length % options.sequence_data_size != 0) {
    throw Error(Status::kInvalid,
                fmt::format("expected a sequence_length of the loader that is a multiple of "
                            "sequence_data_size {}, found {}; choose another length",
                            options.sequence_data_size, options.sequence_length));
  }
  at_least("threads", options.threads, 0);
  at_least("prefetch", options.prefetch, 1);
  at_least("step_batches", options.step_batches, 1);
  if (options.micro_batch_size > std::numeric_limits<int32_t>::max() / options.sequence_length) {
    throw Error(
        Status::kInvalid,
        fmt::format(
            "expected less than 2^31 tokens in a micro-batch, found micro_batch_size {} times "
            "sequence_length {}; lower one of them",
            options.micro_batch_size, options.sequence_length));
  }
  return options;
}

// Whole micro-batches of all data ranks that fit between first_sample and the end.
int64_t count_batches(const SampledDataset& dataset, const LoaderOptions& options) {
  int64_t left = std::max<int64_t>(0, dataset.size() - options.first_sample);
  return left / options.micro_batch_size / options.batch_data_size;
}

}  // namespace

int64_t read_ahead(const LoaderOptions& options) {
  return std::max(int64_t(options.threads) * options.prefetch, 2 * options.step_batches);
}

struct Loader::Impl {
  Impl(std::shared_ptr<const SampledDataset> dataset_in, const LoaderOptions& options_in)
      : dataset(std::move(dataset_in)),
        options(checked(options_in)),
        builder(*dataset, options),
        workers(count_batches(*dataset, options), options.threads, read_ahead(options),
                [this](int64_t number) {
                  const profile::Span span("data", "micro-batch", number);
                  return builder.build(number);
                }) {}

  const std::shared_ptr<const SampledDataset> dataset;
  const LoaderOptions options;
  const BatchBuilder builder;
  OrderedWorkers<std::unique_ptr<Batch>> workers;  // last: its threads use the others
};

Loader::Loader(std::shared_ptr<const SampledDataset> dataset, const LoaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), options)) {}

Loader::~Loader() = default;

std::unique_ptr<Batch> Loader::next() {
  if (impl_->workers.done()) {
    const LoaderOptions& options = impl_->options;
    throw Error(Status::kInvalid,
                fmt::format("expected {} more samples in dataset {}, found the end: it has {}, and "
                            "reading began at "
                            "sample {}; train fewer iterations, or sample more",
                            options.micro_batch_size * options.batch_data_size,
                            impl_->dataset->name(), impl_->dataset->size(), options.first_sample));
  }
  return impl_->workers.next();
}

const LoaderOptions& Loader::options() const { return impl_->options; }

double Loader::waited_ms() const { return impl_->workers.waited_ms(); }

}  // namespace fastllm::data
