// One pass through documents in some order (an epoch, or everything for the orders that shuffle
// across epochs), with a quick way from a token position to its document. Immutable once built; any
// thread. Memory: 4 bytes a document while numbers fit 32 bits, none when the order is plain, plus
// 8 bytes every kStride-th.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/data/indexed.hpp"

namespace fastllm::data {

// Of an index below `count`: 4 while all of them fit 32 bits, else 8.
constexpr uint64_t index_bytes(uint64_t count) { return count <= uint64_t(1) << 32 ? 4 : 8; }

class DocumentRun {
 public:
  static constexpr int64_t kStride = 32;  // documents a lookup walks at most
  // All documents of the dataset in their own order.
  explicit DocumentRun(const IndexedDataset& dataset);
  // In the given order; a document may come several times.
  DocumentRun(const IndexedDataset& dataset, std::vector<uint32_t> order);
  DocumentRun(const IndexedDataset& dataset, std::vector<uint64_t> order);

  int64_t length() const { return length_; }      // documents, repeats counted
  int64_t num_tokens() const { return tokens_; }  // over all of them
  int64_t document(int64_t place) const;
  size_t memory_bytes() const;

  struct Place {
    int64_t place, offset;  // in the order; tokens into that document
  };
  // Where token `position` in [0, num_tokens()) is.
  Place find(const IndexedDataset& dataset, int64_t position) const;

 private:
  void count_tokens(const IndexedDataset& dataset);

  int64_t length_ = 0, tokens_ = 0;
  std::vector<uint32_t> narrow_;  // the order, in one of the two; plain: in none
  std::vector<uint64_t> wide_;
  std::vector<int64_t> tokens_before_;  // every kStride-th place
};

}  // namespace fastllm::data
