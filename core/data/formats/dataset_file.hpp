// A dataset in one file, *.fast_llm_dataset, as later releases of the reference write it
// (docs/compatibility.md). Read from a memory map; every size and offset that the file claims is
// checked when it is opened, so that reading tokens touches nothing outside.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.hpp"
#include "core/data/formats/document_file.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

class DatasetFile final : public DocumentFile {
 public:
  explicit DatasetFile(const std::filesystem::path& path, const MemmapExpectations& expected = {});

  int64_t num_documents() const override { return documents_; }
  int64_t num_tokens() const override { return num_tokens_; }
  int64_t document_size(int64_t document) const override;
  bool has_spans() const override { return masked_.counts != nullptr; }
  void expect(const MemmapExpectations& expected) const override;

  TokenType token_type() const { return type_; }
  // The preferred and the refused parts of documents. Kept for whoever wants them; training does
  // not.
  bool has_preference_spans() const { return chosen_.counts != nullptr; }
  std::vector<Span> chosen_spans(int64_t document) const {
    return preference_spans(chosen_, document);
  }
  std::vector<Span> rejected_spans(int64_t document) const {
    return preference_spans(rejected_, document);
  }

 private:
  // Ranges of all documents: document i has those from counts[i] to counts[i + 1].
  struct Ranges {
    const std::byte* pairs = nullptr;   // i32 begin, end
    const std::byte* counts = nullptr;  // i32, one more than documents; null: the part is absent
  };
  friend class DatasetFileOpener;
  void open();
  void read_tokens(int64_t document, int64_t offset, std::span<int64_t> tokens) const override;
  void append_spans(int64_t document, std::vector<Span>& spans) const override;
  std::vector<std::string> make_fingerprints() const override;
  // Ranges of the file are half-open; the spans given out are inclusive, as everywhere here.
  std::vector<Span> preference_spans(const Ranges& ranges, int64_t document) const;
  void append_ranges(const Ranges& ranges, int64_t document, std::vector<Span>& spans) const;

  MappedFile file_;
  TokenType type_ = TokenType::kInt32;
  int64_t itemsize_ = 0;  // bytes a token
  int64_t documents_ = 0, num_tokens_ = 0;
  const std::byte* tokens_ = nullptr;
  const std::byte* ends_ = nullptr;  // i64, one more than documents: tokens before each
  Ranges masked_, chosen_, rejected_;
};

// Whether the first bytes are those of such a file. False when it cannot be read.
bool is_dataset_file(const std::filesystem::path& path);

}  // namespace fastllm::data
