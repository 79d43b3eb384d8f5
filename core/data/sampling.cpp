// Orders of documents, epoch by epoch, and the walk from a sample to the pieces of documents in it.
#include "core/data/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/data/document_run.hpp"
#include "core/data/random.hpp"

namespace fastllm::data {
namespace {

constexpr uint64_t kEpochSeedStep = 571;
constexpr int64_t kManyDocuments = 100'000'000;  // their order alone takes some 400 MB
constexpr uint64_t kNarrow = uint64_t(1) << 32;  // numbers below fit uint32_t

constexpr std::pair<const char*, Shuffle> kShuffles[] = {
    {"disabled", Shuffle::kDisabled},
    {"epoch", Shuffle::kEpoch},
    {"skip_first_epoch", Shuffle::kSkipFirstEpoch},
    {"full", Shuffle::kFull},
    {"legacy", Shuffle::kLegacy},
};

template <class Index>
DocumentRun shuffled_run(const IndexedDataset& dataset, uint64_t count, uint64_t seed) {
  std::vector<Index> order = torch_randperm<Index>(count, seed);
  auto documents = uint64_t(dataset.num_documents());
  if (count > documents) {
    for (Index& document : order) document = Index(document % documents);
  }
  return DocumentRun(dataset, std::move(order));
}

DocumentRun shuffled_run(const IndexedDataset& dataset, uint64_t count, uint64_t seed) {
  return count <= kNarrow ? shuffled_run<uint32_t>(dataset, count, seed)
                          : shuffled_run<uint64_t>(dataset, count, seed);
}

// Runs by number, each built once by whoever needs it first, the least recently used dropped. Any
// thread.
class RunCache {
 public:
  template <class Build>
  std::shared_ptr<const DocumentRun> get(int64_t number, const Build& build) {
    std::shared_ptr<Entry> entry;
    {
      std::lock_guard lock(mutex_);
      auto& slot = entries_[number];
      if (!slot) slot = std::make_shared<Entry>();
      entry = slot;
      entry->last_used = ++uses_;
    }
    std::lock_guard building(entry->mutex);
    if (!entry->run) {
      entry->run = std::make_shared<const DocumentRun>(build(number));
      make_room(entry->run->memory_bytes());
    }
    return entry->run;
  }

 private:
  struct Entry {
    std::mutex mutex;  // held while building, so that others wait for it alone
    std::shared_ptr<const DocumentRun> run;  // guarded by mutex
    uint64_t last_used = 0;                  // guarded by mutex_ of the cache
  };

  // At least two runs stay, since a sample may lie on both sides of a border; many when they are
  // small.
  void make_room(size_t bytes_each) {
    constexpr size_t kKeepBytes = size_t(64) << 20, kMost = 1024;
    size_t keep = std::clamp(kKeepBytes / (bytes_each + 1), size_t(2), kMost);
    std::lock_guard lock(mutex_);
    while (entries_.size() > keep) {
      entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](auto& a, auto& b) {
        return a.second->last_used < b.second->last_used;
      }));
    }
  }

  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Entry>> entries_;
  uint64_t uses_ = 0;
};

class Sampled final : public SampledDataset {
 public:
  Sampled(IndexedPointer dataset, int64_t num_samples, int64_t sequence_length, uint64_t seed,
          Shuffle shuffle, int64_t predicted_tokens)
      : dataset_(std::move(dataset)),
        size_(num_samples),
        length_(sequence_length),
        predicted_(predicted_tokens),
        seed_(seed),
        shuffle_(shuffle) {
    FASTLLM_ASSERT(predicted_ >= 1);
    documents_ = dataset_->num_documents();
    epoch_tokens_ = dataset_->num_tokens();
    int64_t needed = 0;  // tokens of all samples but the overlap, which consecutive ones share
    if (size_ < 1 || length_ < 1 || __builtin_mul_overflow(size_, length_, &needed) ||
        needed > std::numeric_limits<int64_t>::max() / 2) {
      throw Error(
          Status::kInvalid,
          fmt::format(
              "expected from 1 sample and 1 token up for dataset {}, found {} samples of {} "
              "tokens; check the number of iterations, batch size and sequence length",
              dataset_->name(), size_, length_));
    }
    if (epoch_tokens_ < 1) {
      throw Error(Status::kInvalid,
                  fmt::format("expected documents with tokens in dataset {}, found {} documents "
                              "and no token; leave it out or prepare it again",
                              dataset_->name(), documents_));
    }
    epochs_ = (needed + predicted_ - 1) / epoch_tokens_ + 1;  // ceil((needed + P) / epoch_tokens_)
    bool across = shuffle_ == Shuffle::kFull || shuffle_ == Shuffle::kLegacy;
    run_tokens_ = epoch_tokens_;
    run_length_ = documents_;
    if (across && (__builtin_mul_overflow(documents_, epochs_, &run_length_) ||
                   __builtin_mul_overflow(epoch_tokens_, epochs_, &run_tokens_) ||
                   run_length_ > int64_t(1) << 40)) {
      throw Error(Status::kInvalid,
                  fmt::format("expected an order of documents that fits the memory, found {} "
                              "documents times {} epochs of dataset {}; shuffle by epoch",
                              documents_, epochs_, dataset_->name()));
    }
    if (shuffle_ == Shuffle::kLegacy) plan_legacy();
    if (run_length_ > kManyDocuments && shuffle_ != Shuffle::kDisabled) {
      log::warning(fmt::format("shuffling {} documents of dataset {} takes a while and {} MB",
                               run_length_, dataset_->name(),
                               run_length_ * (run_length_ > int64_t(kNarrow) ? 8 : 4) / 1'000'000));
    }
  }

  int64_t size() const override { return size_; }
  std::string name() const override { return dataset_->name(); }
  bool has_spans() const override { return dataset_->has_spans(); }
  std::vector<std::string> fingerprints() const override { return dataset_->fingerprints(); }

  void get(int64_t index, Sample& sample) const override {
    FASTLLM_ASSERT(int64_t(sample.tokens.size()) == sample_tokens());
    sample.loss_masking_spans.clear();
    sample.document_lengths.clear();
    walk(index, [&](int64_t document, int64_t offset, int64_t begin, int64_t count) {
      size_t known = sample.loss_masking_spans.size();
      dataset_->get(document, offset, sample.tokens.subspan(size_t(begin), size_t(count)),
                    &sample.loss_masking_spans);
      for (size_t i = known; i < sample.loss_masking_spans.size(); ++i) {
        sample.loss_masking_spans[i].first += begin;
        sample.loss_masking_spans[i].last += begin;
      }
      sample.document_lengths.push_back(count);
    });
  }

  std::string locate(int64_t index, int64_t position) const override {
    std::string place;
    walk(index, [&](int64_t document, int64_t offset, int64_t begin, int64_t count) {
      if (position < begin || position >= begin + count) return;
      place =
          fmt::format("position {} of {}", offset + position - begin, dataset_->locate(document));
    });
    return place;
  }

 private:
  int64_t sample_tokens() const { return length_ + predicted_; }

  // visit(document, offset, begin, count): tokens [offset, offset + count) of the document are
  // [begin, begin + count) of the sample. Documents that give nothing are not visited.
  template <class Visit>
  void walk(int64_t index, const Visit& visit) const {
    if (index < 0 || index >= size_) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a sample from 0 to {} of dataset {}, found {}", size_ - 1,
                              dataset_->name(), index));
    }
    int64_t position = in_stream(index) * length_;
    int64_t number = position / run_tokens_;
    int64_t filled = 0;
    while (filled < sample_tokens()) {
      std::shared_ptr<const DocumentRun> run =
          runs_.get(number, [this](int64_t n) { return build(n); });
      auto [place, offset] = run->find(*dataset_, filled == 0 ? position % run_tokens_ : 0);
      for (; place < run->length() && filled < sample_tokens(); ++place, offset = 0) {
        int64_t document = run->document(place);
        int64_t count =
            std::min(dataset_->document_size(document) - offset, sample_tokens() - filled);
        if (count == 0) continue;
        visit(document, offset, filled, count);
        filled += count;
      }
      ++number;
    }
  }

  DocumentRun build(int64_t number) const {
    auto documents = uint64_t(documents_);
    switch (shuffle_) {
      case Shuffle::kDisabled:
        break;
      case Shuffle::kEpoch:
        return shuffled_run(*dataset_, documents, seed_ + kEpochSeedStep * uint64_t(number));
      case Shuffle::kSkipFirstEpoch:
        if (number == 0) break;
        return shuffled_run(*dataset_, documents, seed_ + kEpochSeedStep * uint64_t(number - 1));
      case Shuffle::kFull:
        return shuffled_run(*dataset_, uint64_t(run_length_), seed_);
      case Shuffle::kLegacy:
        return build_legacy();
    }
    return DocumentRun(*dataset_);
  }

  // Megatron-LM's order: documents of all epochs are shuffled, then the samples; when the last
  // epoch is mostly unused, it is kept apart at the end of both.
  void plan_legacy() {
    legacy_samples_ = (run_tokens_ - predicted_) / length_;
    if (run_length_ > std::numeric_limits<int32_t>::max() ||
        legacy_samples_ > int64_t(std::numeric_limits<uint32_t>::max())) {
      throw Error(
          Status::kInvalid,
          fmt::format("expected at most {} documents over all epochs and {} samples for the "
                      "legacy order of dataset {}, found {} and {}; shuffle by epoch",
                      std::numeric_limits<int32_t>::max(), std::numeric_limits<uint32_t>::max(),
                      dataset_->name(), run_length_, legacy_samples_));
    }
    legacy_main_ = std::max<int64_t>((epochs_ - 1) * epoch_tokens_ - predicted_, 0) / length_;
    auto per_epoch = double((epoch_tokens_ - predicted_) / length_);
    legacy_separate_ = epochs_ > 1 && double(size_ - legacy_main_) < 0.8 * per_epoch;
  }

  // One generator draws for the documents first and for the samples after them (in_stream()).
  DocumentRun build_legacy() const {
    std::mt19937 generator = make_generator(seed_);
    auto order = legacy_documents(generator);
    return DocumentRun(*dataset_, std::move(order));
  }

  std::vector<uint32_t> legacy_documents(std::mt19937& generator) const {
    std::vector<uint32_t> order(size_t(run_length_), 0);
    for (size_t i = 0; i < order.size(); ++i) order[i] = uint32_t(i % size_t(documents_));
    size_t main = legacy_separate_ ? order.size() - size_t(documents_) : order.size();
    numpy_shuffle(generator, std::span(order).first(main));
    if (legacy_separate_) numpy_shuffle(generator, std::span(order).subspan(main));
    return order;
  }

  // The number in the stream of sample `index`.
  int64_t in_stream(int64_t index) const {
    if (shuffle_ != Shuffle::kLegacy) return index;
    std::lock_guard lock(legacy_mutex_);
    if (legacy_order_.empty()) {
      std::mt19937 generator = make_generator(seed_);
      legacy_documents(generator);  // for its draws
      legacy_order_.resize(size_t(legacy_samples_));
      std::iota(legacy_order_.begin(), legacy_order_.end(), uint32_t(0));
      size_t main = legacy_separate_ ? size_t(legacy_main_) : legacy_order_.size();
      numpy_shuffle(generator, std::span(legacy_order_).first(main));
      if (legacy_separate_) numpy_shuffle(generator, std::span(legacy_order_).subspan(main));
    }
    return legacy_order_[size_t(index)];
  }

  IndexedPointer dataset_;
  int64_t size_, length_, predicted_;
  uint64_t seed_;
  Shuffle shuffle_;
  int64_t documents_ = 0, epoch_tokens_ = 0, epochs_ = 0;
  int64_t run_length_ = 0, run_tokens_ = 0;  // of a run: an epoch, or all of them
  mutable RunCache runs_;

  int64_t legacy_samples_ = 0, legacy_main_ = 0;
  bool legacy_separate_ = false;
  mutable std::mutex legacy_mutex_;
  mutable std::vector<uint32_t> legacy_order_;  // samples; guarded by legacy_mutex_
};

}  // namespace

Shuffle parse_shuffle(std::string_view name) {
  std::string names;
  for (auto& [text, shuffle] : kShuffles) {
    if (text == name) return shuffle;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", text);
  }
  throw Error(Status::kInvalid, fmt::format("expected a shuffle of {}, found '{}'", names, name));
}

std::shared_ptr<const SampledDataset> make_sampled(IndexedPointer dataset, int64_t num_samples,
                                                   int64_t sequence_length, uint64_t seed,
                                                   Shuffle shuffle, int64_t predicted_tokens) {
  return std::make_shared<Sampled>(std::move(dataset), num_samples, sequence_length, seed, shuffle,
                                   predicted_tokens);
}

}  // namespace fastllm::data
