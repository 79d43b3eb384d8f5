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

#include "core/data/formats/document_output.hpp"
#include "core/data/formats/memmap.hpp"

namespace fastllm::data {

// The bytes of a version-2 index of documents [first, last), which lie at the beginning of the .bin.
std::string encode_memmap_index(const DocumentIndex& index, size_t first, size_t last);

class MemmapWriter {
 public:
  MemmapWriter(const std::filesystem::path& prefix, TokenType type);

  // spans: nullopt when documents carry none; all documents do, or none.
  void add(std::span<const int64_t> tokens,
           const std::optional<std::vector<Span>>& spans = std::nullopt) {
    documents_.add(tokens, spans);
  }
  void finish();

 private:
  MemmapPaths paths_;
  DocumentOutput documents_;
};

}  // namespace fastllm::data
