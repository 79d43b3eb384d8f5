// Documents on their way to a file: tokens go to a file aside as they come, the index stays in memory.
// Whoever writes a format adds what stands before and after the tokens. Unless published, nothing stays.
// One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/data/formats/document_index.hpp"

namespace fastllm::data {

class DocumentOutput {
 public:
  // path: the name the file is to get; errors speak of it.
  DocumentOutput(const std::filesystem::path& path, TokenType type);
  ~DocumentOutput();
  DocumentOutput(const DocumentOutput&) = delete;
  DocumentOutput& operator=(const DocumentOutput&) = delete;

  // spans: inclusive token positions; nullopt when documents carry none; all documents do, or none.
  void add(std::span<const int64_t> tokens, const std::optional<std::vector<Span>>& spans);

  // Throws Error(kInvalid) when there is no document.
  void check_not_empty() const;
  // To the disk; nothing can be added any more.
  void close();
  // Gives the closed file its name.
  void publish();

  const DocumentIndex& index() const { return index_; }
  const std::filesystem::path& aside() const { return aside_; }
  int descriptor() const { return fd_; }  // of the file aside, at its end

 private:
  std::filesystem::path path_, aside_;
  int fd_ = -1;
  bool published_ = false;
  DocumentIndex index_;
  std::vector<std::byte> buffer_;  // one document, in the type of the file
};

}  // namespace fastllm::data
