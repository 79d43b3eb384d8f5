// Writes a one-file dataset (docs/compatibility.md), byte for byte as the reference does. Tokens go
// to a file aside as they come; finish() gives it its name after it reached the disk. Without
// finish() nothing stays. One thread. Memory: 8 bytes a document, 8 a span.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

class DatasetFileWriter {
 public:
  DatasetFileWriter(const std::filesystem::path& path, TokenType type);
  ~DatasetFileWriter();
  DatasetFileWriter(const DatasetFileWriter&) = delete;
  DatasetFileWriter& operator=(const DatasetFileWriter&) = delete;

  // spans: inclusive token positions; nullopt when documents carry none; all documents do, or none.
  void add(std::span<const int64_t> tokens,
           const std::optional<std::vector<Span>>& spans = std::nullopt);
  void finish();

 private:
  std::filesystem::path path_, aside_;
  TokenType type_;
  int fd_ = -1;
  std::vector<int64_t> ends_ = {0};  // tokens before each document, and all
  std::vector<int32_t> span_ends_;   // spans before each document, and all; empty: none carried
  std::vector<int32_t> ranges_;      // begin, end of each span, half-open
  std::vector<std::byte> buffer_;
};

}  // namespace fastllm::data
