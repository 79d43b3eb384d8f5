// Memory-mapped datasets: a pair {prefix}.idx, {prefix}.bin of versions 1 to 3
// (docs/compatibility.md).
// The suffix is appended to the prefix as given, dots and all. Everything the index claims is
// checked against the sizes of the two files when it is opened; only then are tokens read, straight
// from the map.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/file.hpp"
#include "core/data/formats/document_file.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

// The two files of a prefix. A prefix that ends in .idx or .bin is refused with the right spelling.
struct MemmapPaths {
  explicit MemmapPaths(const std::filesystem::path& prefix);
  std::filesystem::path index, tokens;
};

class MemmapDataset final : public DocumentFile {
 public:
  explicit MemmapDataset(const std::filesystem::path& prefix,
                         const MemmapExpectations& expected = {});

  int64_t num_documents() const override { return documents_; }
  int64_t num_tokens() const override { return num_tokens_; }
  int64_t document_size(int64_t document) const override;
  bool has_spans() const override { return span_counts_ != nullptr; }
  void expect(const MemmapExpectations& expected) const override;

  int version() const { return version_; }
  TokenType token_type() const { return type_; }
  // Version 3 only: the preferred and the refused part of a document. Kept for whoever wants them;
  // training does not.
  bool has_preference_spans() const { return chosen_ != nullptr; }
  Span chosen_span(int64_t document) const;
  Span rejected_span(int64_t document) const;

 private:
  MemmapDataset(const std::filesystem::path& prefix, const MemmapPaths& paths);
  void open(const MemmapExpectations& expected);
  void read_documents();
  void read_spans(uint64_t at);
  void read_tokens(int64_t document, int64_t offset, std::span<int64_t> tokens) const override;
  void append_spans(int64_t document, std::vector<Span>& spans) const override;
  std::vector<std::string> make_fingerprints() const override;

  MappedFile index_, data_;
  int version_ = 0;
  TokenType type_ = TokenType::kInt32;
  int64_t itemsize_ = 0;  // bytes a token
  int64_t documents_ = 0, num_tokens_ = 0;
  // Into index_, unaligned, checked: i32 sizes, i64 byte offsets; i32 span counts and pairs; i32
  // pairs.
  const std::byte* sizes_ = nullptr;
  const std::byte* offsets_ = nullptr;
  const std::byte* span_counts_ = nullptr;
  const std::byte* spans_ = nullptr;
  const std::byte* chosen_ = nullptr;
  const std::byte* rejected_ = nullptr;
  std::vector<int64_t> spans_before_;  // spans of all documents before every kSpanStride-th
};

}  // namespace fastllm::data
