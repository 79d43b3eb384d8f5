// The endless order in which the documents of a dataset are sampled (docs/compatibility.md): a pure
// function of the seed. It comes in runs of equal length, an epoch each or, where epochs are shuffled
// together, all of them at once; a run is built when first needed. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string_view>

#include "core/data/indexed.hpp"
#include "core/data/sampling/document_run.hpp"
#include "core/data/sampling/order_memory.hpp"

namespace fastllm::data {

enum class Shuffle { kDisabled, kEpoch, kSkipFirstEpoch, kFull, kLegacy };

const char* shuffle_name(Shuffle shuffle);  // as parse_shuffle reads it
// "disabled", "epoch", "skip_first_epoch", "full", "legacy"; others: Error(kInvalid) that lists
// them.
Shuffle parse_shuffle(std::string_view name);

// Megatron-LM's order of documents over some epochs. Draws from the generator, which goes on with the
// order of samples.
std::vector<uint32_t> legacy_document_order(std::mt19937& generator, int64_t documents,
                                            int64_t epochs, bool last_epoch_apart);

class DocumentOrder {
 public:
  struct Options {
    Shuffle shuffle = Shuffle::kEpoch;
    uint64_t seed = 0;
    int64_t epochs = 1;             // for orders across epochs
    bool last_epoch_apart = false;  // legacy alone
    int64_t ordered_samples = 0;    // legacy alone: samples that have an order, too
    uint64_t memory_limit = fastllm::memory_limit();  // bytes that there are
  };
  // Tells what a long order takes in memory; an Error when that is too much.
  DocumentOrder(IndexedPointer dataset, const Options& options);

  int64_t run_length() const { return run_length_; }  // documents
  int64_t run_tokens() const { return run_tokens_; }
  std::shared_ptr<const DocumentRun> run(int64_t number) const;

 private:
  struct Entry {
    std::mutex mutex;  // held while building, so that others wait for it alone
    std::shared_ptr<const DocumentRun> run;  // guarded by mutex
    uint64_t last_used = 0;                  // guarded by mutex_ of the order
  };
  DocumentRun build(int64_t number) const;
  void make_room(size_t bytes_each) const;

  IndexedPointer dataset_;
  Options options_;
  OrderMemory memory_;
  int64_t documents_ = 0;
  int64_t run_length_ = 0, run_tokens_ = 0;

  // Runs by number, the least recently used dropped.
  mutable std::mutex mutex_;
  mutable std::map<int64_t, std::shared_ptr<Entry>> entries_;
  mutable uint64_t uses_ = 0;
};

}  // namespace fastllm::data
