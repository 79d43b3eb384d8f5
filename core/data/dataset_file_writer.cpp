// Tokens first; sums, ranges and the configuration follow when all documents are known, and the
// configuration's place goes into the header last.
#include "core/data/dataset_file_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <limits>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/data/dataset_file_format.hpp"
#include "core/data/output_file.hpp"
#include "core/data/token_checks.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;
using namespace dataset_file;

std::string big_endian(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = bytes; i-- > 0;) text += char(value >> (8 * i) & 0xFF);
  return text;
}

// Counts what it writes, so that blocks know where they are.
class Output {
 public:
  Output(int fd, const fs::path& path, uint64_t at) : fd_(fd), path_(path), at_(at) {}
  uint64_t at() const { return at_; }
  void text(std::string_view text) { bytes(std::as_bytes(std::span(text))); }
  template <class T>
  void table(const std::vector<T>& values) {
    bytes(std::as_bytes(std::span(values)));  // little-endian, as token_type.cpp asserts
  }

 private:
  void bytes(std::span<const std::byte> bytes) {
    write_all(fd_, bytes, path_);
    at_ += bytes.size();
  }
  int fd_;
  const fs::path& path_;
  uint64_t at_;
};

}  // namespace

DatasetFileWriter::DatasetFileWriter(const fs::path& path, TokenType type)
    : path_(path), aside_(path), type_(type) {
  if (path.extension() != kSuffix) {
    throw Error(Status::kInvalid, fmt::format("expected the path of a dataset to end in {}, found "
                                              "{}; write {}{}",
                                              kSuffix, path.string(), path.string(), kSuffix));
  }
  if (path.has_parent_path()) make_directories(path.parent_path());
  aside_ += fmt::format(".tmp.{}", ::getpid());
  fd_ = create_output(aside_);
  Output(fd_, aside_, 0)
      .text(fmt::format("{}{}{}{}", kMagic, std::string(sizeof(uint64_t), '\0'),
                        kLanguageModel.begin, kTokens.begin));
}

DatasetFileWriter::~DatasetFileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(aside_.c_str());
}

void DatasetFileWriter::add(std::span<const int64_t> tokens,
                            const std::optional<std::vector<Span>>& spans) {
  FASTLLM_ASSERT(fd_ >= 0);
  size_t document = ends_.size() - 1;
  check_document(tokens, type_, spans, document, path_);
  if (document > 0 && spans.has_value() != !span_ends_.empty())
    refuse_mixed_spans(document, spans.has_value(), path_);
  if (spans) {
    if (span_ends_.empty()) span_ends_.push_back(0);
    size_t total = size_t(span_ends_.back()) + spans->size();
    if (total > size_t(std::numeric_limits<int32_t>::max())) {
      throw Error(Status::kInvalid,
                  fmt::format("expected at most {} spans in {}, found more at document {}; write "
                              "several files",
                              std::numeric_limits<int32_t>::max(), path_.string(), document));
    }
    span_ends_.push_back(int32_t(total));
    for (const Span& span : *spans) {
      ranges_.push_back(int32_t(span.first));
      ranges_.push_back(int32_t(span.last + 1));
    }
  }
  ends_.push_back(ends_.back() + int64_t(tokens.size()));
  buffer_.resize(tokens.size() * size_t(token_type_info(type_).bytes));
  narrow_tokens(type_, tokens, buffer_);
  write_all(fd_, buffer_, aside_);
}

void DatasetFileWriter::finish() {
  FASTLLM_ASSERT(fd_ >= 0);
  auto documents = int64_t(ends_.size()) - 1;
  if (documents == 0) {
    throw Error(Status::kInvalid,
                fmt::format("expected at least one document for {}, found none", path_.string()));
  }
  const TokenTypeInfo type = token_type_info(type_);
  constexpr uint64_t kTokensAt = kHeaderBytes + kLanguageModel.begin.size();
  Output out(fd_, aside_,
             kTokensAt + kTokens.begin.size() + uint64_t(ends_.back()) * uint64_t(type.bytes));
  out.table(ends_);
  out.text(kTokens.end);
  const uint64_t tokens_end = out.at();

  std::string parts;
  for (std::string_view name : kOptionalParts) {
    std::string description = R"({"type": "none"})";
    if (name == "loss_masking_spans" && !span_ends_.empty()) {
      out.text(kRanges.begin);
      out.table(ranges_);
      out.table(span_ends_);
      out.text(kRanges.end);
      description = fmt::format(
          R"({{"type": "{}", "begin": {}, "end": {}, "num_documents": {}, "num_ranges": {}}})",
          kRanges.type, tokens_end, out.at(), documents, span_ends_.back());
    }
    parts += fmt::format(R"(, "{}": {})", name, description);
  }
  out.text(kLanguageModel.end);
  const uint64_t end = out.at();
  std::string configuration = fmt::format(
      R"({{"type": "{}", "begin": {}, "end": {}, "{}": {{"type": "{}", "begin": {}, "end": {}, )"
      R"("num_documents": {}, "num_tokens": {}, "data_type": "{}"}}{}}})",
      kLanguageModel.type, kHeaderBytes, end, kTokensPart, kTokens.type, kTokensAt, tokens_end,
      documents, ends_.back(), type.name, parts);
  out.text(big_endian(configuration.size(), sizeof(uint32_t)));
  out.text(configuration);
  seek_output(fd_, kMagic.size(), aside_);
  Output(fd_, aside_, kMagic.size()).text(big_endian(end, sizeof(uint64_t)));
  close_output(fd_, aside_);
  rename_output(aside_, path_);
}

}  // namespace fastllm::data
