// What a data set's file says of its documents, which lie one after the other.
#pragma once

#include <cstdint>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

// Some 10 bytes a document, 16 a span.
struct DocumentIndex {
  TokenType type = TokenType::kInt32;
  std::vector<int32_t> sizes;        // tokens of each document
  std::vector<int32_t> span_counts;  // of each document; empty: none carries spans
  std::vector<Span> spans;           // of all documents, in order
};

}  // namespace fastllm::data
