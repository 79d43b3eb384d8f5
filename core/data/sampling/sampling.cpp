// Documents as a stream that is cut every S tokens: the walk from a sample to the pieces in it.
#include "core/data/sampling/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/data/sampling/document_samples.hpp"
#include "core/data/sampling/packed_sampling.hpp"
#include "core/data/sampling/random.hpp"

namespace fastllm::data {
namespace {

// Megatron-LM's order of samples: those of the stream shuffled; when the last epoch is mostly unused,
// it is kept apart at the end, of documents and of samples.
class LegacyOrder {
 public:
  LegacyOrder(const IndexedDataset& dataset, const SamplingOptions& options, int64_t epochs)
      : documents_(dataset.num_documents()), epochs_(epochs), seed_(options.seed) {
    const int64_t tokens = dataset.num_tokens(), predicted = options.predicted_tokens;
    int64_t all_documents = 0, all_tokens = 0;
    bool overflow = __builtin_mul_overflow(documents_, epochs_, &all_documents) ||
                    __builtin_mul_overflow(tokens, epochs_, &all_tokens);
    if (!overflow) samples_ = (all_tokens - predicted) / options.sequence_length;
    if (overflow || all_documents > std::numeric_limits<int32_t>::max() ||
        samples_ > int64_t(std::numeric_limits<uint32_t>::max())) {
      throw Error(
          Status::kInvalid,
          fmt::format("expected at most {} documents over all epochs and {} samples for the legacy "
                      "order of dataset {}, found {} documents, {} epochs and {} samples; {}",
                      std::numeric_limits<int32_t>::max(), std::numeric_limits<uint32_t>::max(),
                      dataset.name(), documents_, epochs_, options.num_samples, kShorterOrder));
    }
    main_ = std::max<int64_t>((epochs_ - 1) * tokens - predicted, 0) / options.sequence_length;
    auto per_epoch = double((tokens - predicted) / options.sequence_length);
    memory_ = {dataset.name(), shuffle_name(Shuffle::kLegacy), documents_, epochs_, samples_};
    last_epoch_apart_ = epochs_ > 1 && double(options.num_samples - main_) < 0.8 * per_epoch;
  }

  bool last_epoch_apart() const { return last_epoch_apart_; }
  int64_t samples() const { return samples_; }

  // The number in the stream of sample `index`.
  int64_t in_stream(int64_t index) const {
    std::call_once(built_, [this] { memory_.guard([this] { build(); }); });
    return order_[size_t(index)];
  }

 private:
  // One generator draws for the documents first and for the samples after them.
  void build() const {
    std::mt19937 generator = make_generator(seed_);
    legacy_document_order(generator, documents_, epochs_, last_epoch_apart_);  // for its draws
    order_.resize(size_t(samples_));
    std::iota(order_.begin(), order_.end(), uint32_t(0));
    size_t main = last_epoch_apart_ ? size_t(main_) : order_.size();
    numpy_shuffle(generator, std::span(order_).first(main));
    if (last_epoch_apart_) numpy_shuffle(generator, std::span(order_).subspan(main));
  }

  int64_t documents_, epochs_;
  uint64_t seed_;
  OrderMemory memory_;
  int64_t samples_ = 0, main_ = 0;
  bool last_epoch_apart_ = false;
  mutable std::once_flag built_;
  mutable std::vector<uint32_t> order_;
};

class Stream final : public DocumentSamples {
 public:
  Stream(IndexedPointer dataset, const SamplingOptions& options, int64_t epochs,
         std::unique_ptr<const LegacyOrder> legacy)
      : DocumentSamples(std::move(dataset), options),
        legacy_(std::move(legacy)),
        order_(this->dataset(), {.shuffle = options.shuffle,
                                 .seed = options.seed,
                                 .epochs = epochs,
                                 .last_epoch_apart = legacy_ && legacy_->last_epoch_apart(),
                                 .ordered_samples = legacy_ ? legacy_->samples() : 0,
                                 .memory_limit = memory_limit(options.processes)}) {}

  void get(int64_t index, Sample& sample) const override {
    empty_lists(sample);
    walk(index, [&](int64_t document, int64_t offset, int64_t begin, int64_t count) {
      append(document, offset, begin, count, sample);
      add_lengths(offset, count, sample.document_lengths);
    });
  }

  std::string locate(int64_t index, int64_t position) const override {
    std::string place;
    walk(index, [&](int64_t document, int64_t offset, int64_t begin, int64_t count) {
      if (position < begin || position >= begin + count) return;
      place =
          fmt::format("position {} of {}", offset + position - begin, dataset()->locate(document));
    });
    return place;
  }

 private:
  // visit(document, offset, begin, count): tokens [offset, offset + count) of the document are
  // [begin, begin + count) of the sample. Documents that give nothing are not visited.
  template <class Visit>
  void walk(int64_t index, const Visit& visit) const {
    check_index(index);
    int64_t position = (legacy_ ? legacy_->in_stream(index) : index) * options().sequence_length;
    int64_t number = position / order_.run_tokens();
    int64_t filled = 0;
    while (filled < sample_tokens()) {
      std::shared_ptr<const DocumentRun> run = order_.run(number);
      auto [place, offset] =
          run->find(*dataset(), filled == 0 ? position % order_.run_tokens() : 0);
      for (; place < run->length() && filled < sample_tokens(); ++place, offset = 0) {
        int64_t document = run->document(place);
        int64_t count =
            std::min(dataset()->document_size(document) - offset, sample_tokens() - filled);
        if (count == 0) continue;
        visit(document, offset, filled, count);
        filled += count;
      }
      ++number;
    }
  }

  // One length, or those of the chunks in it: they begin at multiples of the maximum.
  void add_lengths(int64_t offset, int64_t count, std::vector<int64_t>& lengths) const {
    const int64_t most = options().maximum_document_length;
    while (most > 0 && offset % most + count > most) {
      int64_t chunk = most - offset % most;
      lengths.push_back(chunk);
      offset += chunk;
      count -= chunk;
    }
    lengths.push_back(count);
  }

  std::unique_ptr<const LegacyOrder> legacy_;  // null: samples in the order of the stream
  DocumentOrder order_;
};

}  // namespace

std::shared_ptr<const SampledDataset> make_sampled(IndexedPointer dataset,
                                                   const SamplingOptions& options) {
  FASTLLM_ASSERT(options.predicted_tokens >= 1 && options.maximum_document_length >= 0);
  int64_t needed = 0;  // tokens of all samples
  int64_t each =
      options.sequence_length + (options.truncate_documents ? 0 : options.predicted_tokens);
  if (options.num_samples < 1 || options.sequence_length < 1 ||
      __builtin_mul_overflow(options.num_samples, each, &needed) ||
      needed > std::numeric_limits<int64_t>::max() / 2) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected from 1 sample and 1 token up for dataset {}, found {} samples of {} "
                    "tokens; check the number of iterations, batch size and sequence length",
                    dataset->name(), options.num_samples, options.sequence_length));
  }
  if (dataset->num_tokens() < 1) {
    throw Error(Status::kInvalid,
                fmt::format("expected documents with tokens in dataset {}, found {} documents "
                            "and no token; leave it out or prepare it again",
                            dataset->name(), dataset->num_documents()));
  }
  if (options.use_loss_masking_spans && !dataset->has_spans()) {
    log::warning(fmt::format(
        "use_loss_masking_spans has no effect: dataset {} holds no spans, all labels count",
        dataset->name()));
  }
  if (!options.truncate_documents) return make_packed(std::move(dataset), options);
  // Consecutive samples share P tokens: ceil((needed + P) / tokens of an epoch)
  int64_t epochs = (needed + options.predicted_tokens - 1) / dataset->num_tokens() + 1;
  std::unique_ptr<const LegacyOrder> legacy;
  if (options.shuffle == Shuffle::kLegacy)
    legacy = std::make_unique<LegacyOrder>(*dataset, options, epochs);
  return std::make_shared<Stream>(std::move(dataset), options, epochs, std::move(legacy));
}

}  // namespace fastllm::data
