// Permutations are those of the reference's libraries (random.hpp); all else is when to build one and
// when to forget it.
#include "core/data/sampling/document_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/data/sampling/random.hpp"

namespace fastllm::data {
namespace {

constexpr uint64_t kEpochSeedStep = 571;
constexpr size_t kFewestKept = 2;  // runs: a sample may lie on both sides of a border
constexpr int64_t kMostAtOnce = kFewestKept + 1;  // of large ones: the next is made before one goes

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
  return index_bytes(count) == sizeof(uint32_t) ? shuffled_run<uint32_t>(dataset, count, seed)
                                                : shuffled_run<uint64_t>(dataset, count, seed);
}

}  // namespace

const char* shuffle_name(Shuffle shuffle) {
  for (auto& [text, known] : kShuffles) {
    if (known == shuffle) return text;
  }
  return "?";
}

Shuffle parse_shuffle(std::string_view name) {
  std::string names;
  for (auto& [text, shuffle] : kShuffles) {
    if (text == name) return shuffle;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", text);
  }
  throw Error(Status::kInvalid, fmt::format("expected a shuffle of {}, found '{}'", names, name));
}

std::vector<uint32_t> legacy_document_order(std::mt19937& generator, int64_t documents,
                                            int64_t epochs, bool last_epoch_apart) {
  std::vector<uint32_t> order(size_t(documents * epochs), 0);
  for (size_t i = 0; i < order.size(); ++i) order[i] = uint32_t(i % size_t(documents));
  size_t main = last_epoch_apart ? order.size() - size_t(documents) : order.size();
  numpy_shuffle(generator, std::span(order).first(main));
  if (last_epoch_apart) numpy_shuffle(generator, std::span(order).subspan(main));
  return order;
}

DocumentOrder::DocumentOrder(IndexedPointer dataset, const Options& options)
    : dataset_(std::move(dataset)),
      options_(options),
      documents_(dataset_->num_documents()),
      run_length_(documents_),
      run_tokens_(dataset_->num_tokens()) {
  const Shuffle shuffle = options_.shuffle;
  const bool across = shuffle == Shuffle::kFull || shuffle == Shuffle::kLegacy;
  memory_ = {.dataset = dataset_->name(),
             .shuffle = shuffle_name(shuffle),
             .documents = documents_,
             .epochs = across ? options_.epochs : 1,
             .samples = options_.ordered_samples,
             .runs = across ? 1 : std::clamp<int64_t>(options_.epochs, 1, kMostAtOnce)};
  if (shuffle != Shuffle::kDisabled) memory_.announce(options_.memory_limit);
  if (!across) return;
  if (__builtin_mul_overflow(documents_, options_.epochs, &run_length_) ||
      __builtin_mul_overflow(dataset_->num_tokens(), options_.epochs, &run_tokens_)) {
    throw Error(Status::kInvalid,
                fmt::format("expected fewer than 2^63 tokens over all epochs, found {} epochs of "
                            "dataset {} of {} tokens; shuffle by epoch",
                            options_.epochs, dataset_->name(), dataset_->num_tokens()));
  }
}

std::shared_ptr<const DocumentRun> DocumentOrder::run(int64_t number) const {
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
    entry->run = memory_.guard([&] { return std::make_shared<const DocumentRun>(build(number)); });
    make_room(entry->run->memory_bytes());
  }
  return entry->run;
}

// Many stay when they are small.
void DocumentOrder::make_room(size_t bytes_each) const {
  constexpr size_t kKeepBytes = size_t(64) << 20, kMost = 1024;
  size_t keep = std::clamp(kKeepBytes / (bytes_each + 1), kFewestKept, kMost);
  std::lock_guard lock(mutex_);
  while (entries_.size() > keep) {
    entries_.erase(std::min_element(entries_.begin(), entries_.end(), [](auto& a, auto& b) {
      return a.second->last_used < b.second->last_used;
    }));
  }
}

DocumentRun DocumentOrder::build(int64_t number) const {
  auto documents = uint64_t(documents_);
  switch (options_.shuffle) {
    case Shuffle::kDisabled:
      break;
    case Shuffle::kEpoch:
      return shuffled_run(*dataset_, documents, options_.seed + kEpochSeedStep * uint64_t(number));
    case Shuffle::kSkipFirstEpoch:
      if (number == 0) break;
      return shuffled_run(*dataset_, documents,
                          options_.seed + kEpochSeedStep * uint64_t(number - 1));
    case Shuffle::kFull:
      return shuffled_run(*dataset_, uint64_t(run_length_), options_.seed);
    case Shuffle::kLegacy: {
      std::mt19937 generator = make_generator(options_.seed);
      return DocumentRun(*dataset_, legacy_document_order(generator, documents_, options_.epochs,
                                                          options_.last_epoch_apart));
    }
  }
  return DocumentRun(*dataset_);
}

}  // namespace fastllm::data
