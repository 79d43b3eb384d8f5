// What a data set's file says of its documents, which lie one after the other.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

// Tokens; an i32 in the index.
inline constexpr int64_t kLongestDocument = std::numeric_limits<int32_t>::max();

// Some 10 bytes a document, 16 a span.
struct DocumentIndex {
  TokenType type = TokenType::kInt32;
  std::vector<int32_t> sizes;        // tokens of each document
  std::vector<int32_t> span_counts;  // of each document; empty: none carries spans
  std::vector<Span> spans;           // of all documents, in order
};

}  // namespace fastllm::data
