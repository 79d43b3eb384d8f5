// Writes a memory-mapped pair, version 2. Documents are appended to {prefix}.bin's file aside;
// finish() gives both files their names after they reached the disk, the index last: an index under
// its final name has a complete .bin. Without finish() nothing stays. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/memmap.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

// The bytes of a version-2 index of documents that lie one after the other.
// spans: null, or the spans of all documents in order, span_counts[i] for document i.
struct MemmapIndex {
  TokenType type = TokenType::kInt32;
  std::vector<int32_t> sizes;
  std::vector<int32_t> span_counts;  // empty: no document carries spans
  std::vector<Span> spans;
};
// Documents [first, last) of it.
std::string encode_memmap_index(const MemmapIndex& index, size_t first, size_t last);

class MemmapWriter {
 public:
  MemmapWriter(const std::filesystem::path& prefix, TokenType type);
  ~MemmapWriter();
  MemmapWriter(const MemmapWriter&) = delete;
  MemmapWriter& operator=(const MemmapWriter&) = delete;

  // spans: nullopt when documents carry none; all documents do, or none.
  void add(std::span<const int64_t> tokens,
           const std::optional<std::vector<Span>>& spans = std::nullopt);
  void finish();

 private:
  MemmapPaths paths_;
  std::filesystem::path aside_;
  int fd_ = -1;
  MemmapIndex index_;
  std::vector<std::byte> buffer_;
};

}  // namespace fastllm::data
