// From a token position to its document: a table of every n-th document, then a short walk.
#include "core/data/sampling/document_run.hpp"

#include <algorithm>

#include "core/base/error.hpp"

namespace fastllm::data {
DocumentRun::DocumentRun(const IndexedDataset& dataset) : length_(dataset.num_documents()) {
  count_tokens(dataset);
}

DocumentRun::DocumentRun(const IndexedDataset& dataset, std::vector<uint32_t> order)
    : length_(int64_t(order.size())), narrow_(std::move(order)) {
  count_tokens(dataset);
}

DocumentRun::DocumentRun(const IndexedDataset& dataset, std::vector<uint64_t> order)
    : length_(int64_t(order.size())), wide_(std::move(order)) {
  count_tokens(dataset);
}

void DocumentRun::count_tokens(const IndexedDataset& dataset) {
  tokens_before_.reserve(size_t(length_ / kStride + 1));
  for (int64_t place = 0; place < length_; ++place) {
    if (place % kStride == 0) tokens_before_.push_back(tokens_);
    tokens_ += dataset.document_size(document(place));
  }
}

int64_t DocumentRun::document(int64_t place) const {
  if (!narrow_.empty()) return narrow_[size_t(place)];
  if (!wide_.empty()) return int64_t(wide_[size_t(place)]);
  return place;
}

size_t DocumentRun::memory_bytes() const {
  return narrow_.size() * sizeof(narrow_[0]) + wide_.size() * sizeof(wide_[0]) +
         tokens_before_.size() * sizeof(tokens_before_[0]);
}

DocumentRun::Place DocumentRun::find(const IndexedDataset& dataset, int64_t position) const {
  FASTLLM_ASSERT(position >= 0 && position < tokens_);
  auto after = std::upper_bound(tokens_before_.begin(), tokens_before_.end(), position);
  int64_t place = (after - tokens_before_.begin() - 1) * kStride;
  int64_t offset = position - *(after - 1);
  while (true) {
    int64_t size = dataset.document_size(document(place));
    if (offset < size) return {place, offset};
    offset -= size;
    ++place;
  }
}

}  // namespace fastllm::data
