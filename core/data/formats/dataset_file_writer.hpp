// Writes a one-file dataset (docs/compatibility.md), byte for byte as the reference does. Tokens go
// to a file aside as they come; finish() gives it its name after it reached the disk. Without
// finish() nothing stays. One thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/data/formats/document_output.hpp"

namespace fastllm::data {

// The two ends of a file, for whoever writes the tokens between them. First what stands before them:
std::string dataset_file_head();
// Then, with `fd` where the tokens of documents [first, last) of the index end: what stands after
// them, and the place of the configuration in the head. spans: whether documents carry lists of
// them, empty or not.
void finish_dataset_file(int fd, const std::filesystem::path& path, const DocumentIndex& index,
                         size_t first, size_t last, bool spans);

class DatasetFileWriter {
 public:
  DatasetFileWriter(const std::filesystem::path& path, TokenType type);

  // spans: inclusive token positions; nullopt when documents carry none; all documents do, or none.
  void add(std::span<const int64_t> tokens,
           const std::optional<std::vector<Span>>& spans = std::nullopt) {
    documents_.add(tokens, spans);
  }
  void finish();

 private:
  DocumentOutput documents_;
};

}  // namespace fastllm::data
