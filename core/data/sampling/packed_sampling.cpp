// Where a sample begins follows from all documents before it. Beginnings of every n-th sample are kept,
// found in order as far as anybody has asked; from there it is a short walk over sizes.
#include "core/data/sampling/packed_sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/data/sampling/document_samples.hpp"

namespace fastllm::data {
namespace {

constexpr int64_t kStride = 8;  // samples; a lookup walks over at most this many

class Packed final : public DocumentSamples {
 public:
  Packed(IndexedPointer dataset, const SamplingOptions& options)
      : DocumentSamples(std::move(dataset), options),
        capacity_(sample_tokens()),
        longest_(options.maximum_document_length > 0
                     ? std::min(options.maximum_document_length, capacity_)
                     : capacity_),
        order_(this->dataset(), {.shuffle = options.shuffle,
                                 .seed = options.seed,
                                 .epochs = epochs(),
                                 .last_epoch_apart = false,
                                 .memory_limit = memory_limit(options.processes)}) {}

  void get(int64_t index, Sample& sample) const override {
    empty_lists(sample);
    int64_t filled = visit_sample(index, [&](int64_t document, int64_t begin, int64_t tokens) {
      append(document, 0, begin, tokens, sample);
      sample.document_lengths.push_back(tokens);
    });
    sample.padding = capacity_ - filled;
    if (sample.padding == 0) return;
    std::fill(sample.tokens.begin() + filled, sample.tokens.end(), kIgnoredLabel);
    sample.document_lengths.push_back(sample.padding);
  }

  std::string locate(int64_t index, int64_t position) const override {
    std::string place = fmt::format("the padding of sample {} of dataset {}", index, name());
    visit_sample(index, [&](int64_t document, int64_t begin, int64_t tokens) {
      if (position >= begin && position < begin + tokens)
        place = fmt::format("position {} of {}", position - begin, dataset()->locate(document));
    });
    return place;
  }

 private:
  // Goes through the order of documents, from any place on. Places count over all runs.
  class Cursor {
   public:
    Cursor(const Packed& packed, int64_t place) : packed_(packed), place_(place) {}

    // visit(document, begin, tokens) for each that the next sample holds; returns their tokens.
    template <class Visit>
    int64_t next_sample(const Visit& visit) {
      int64_t filled = 0;
      while (true) {
        int64_t document = current();
        int64_t tokens = packed_.dataset()->document_size(document);
        if (tokens > 0 && tokens <= packed_.longest_) {
          if (filled + tokens > packed_.capacity_) return filled;
          visit(document, filled, tokens);
          filled += tokens;
        }
        ++place_;
        if (filled == packed_.capacity_) return filled;
      }
    }
    int64_t place() const { return place_; }

   private:
    int64_t current() {
      int64_t length = packed_.order_.run_length(), number = place_ / length;
      if (!run_ || number != number_) {
        run_ = packed_.order_.run(number);
        number_ = number;
      }
      return run_->document(place_ % length);
    }
    const Packed& packed_;
    int64_t place_, number_ = -1;
    std::shared_ptr<const DocumentRun> run_;
  };

  template <class Visit>
  int64_t visit_sample(int64_t index, const Visit& visit) const {
    check_index(index);
    Cursor cursor(*this, place_before(index / kStride));
    for (int64_t i = index - index % kStride; i < index; ++i) skip(cursor);
    return cursor.next_sample(visit);
  }
  static void skip(Cursor& cursor) {
    cursor.next_sample([](int64_t, int64_t, int64_t) {});
  }

  // Where sample number * kStride begins.
  int64_t place_before(int64_t number) const {
    std::lock_guard lock(mutex_);
    if (int64_t(places_.size()) <= number) {
      Cursor cursor(*this, places_.back());
      while (int64_t(places_.size()) <= number) {
        for (int64_t i = 0; i < kStride; ++i) skip(cursor);
        places_.push_back(cursor.place());
      }
    }
    return places_[size_t(number)];
  }

  // Tells what is left out. Enough epochs for all samples: ceil(their tokens / tokens kept).
  int64_t epochs() const {
    int64_t kept = 0, left_out = 0;
    const int64_t documents = dataset()->num_documents();
    for (int64_t document = 0; document < documents; ++document) {
      int64_t tokens = dataset()->document_size(document);
      kept += tokens <= longest_ ? tokens : 0;
      left_out += tokens > longest_;
    }
    if (kept == 0) {
      throw Error(Status::kInvalid,
                  fmt::format("expected documents of at most {} tokens in dataset {}, since they "
                              "are not truncated, found none; raise batch.sequence_length or "
                              "maximum_document_length, or write truncate_documents: true",
                              longest_, dataset()->name()));
    }
    if (left_out > 0) {
      log::warning(
          fmt::format("{} of {} documents of dataset {} are longer than {} tokens and "
                      "left out, since documents are not truncated",
                      left_out, documents, dataset()->name(), longest_));
    }
    return (capacity_ * options().num_samples - 1) / kept + 1;
  }

  int64_t capacity_, longest_;  // tokens of a sample, of a document
  DocumentOrder order_;
  mutable std::mutex mutex_;
  mutable std::vector<int64_t> places_ = {0};  // of every kStride-th sample; guarded by mutex_
};

}  // namespace

std::shared_ptr<const SampledDataset> make_packed(IndexedPointer dataset,
                                                  const SamplingOptions& options) {
  if (options.shuffle == Shuffle::kLegacy) {
    throw Error(Status::kInvalid,
                fmt::format("expected truncate_documents: true with shuffle legacy, which cuts "
                            "documents, found false for dataset {}; shuffle by epoch",
                            dataset->name()));
  }
  return std::make_shared<Packed>(std::move(dataset), options);
}

}  // namespace fastllm::data
