// Tokens first; sums, ranges and the configuration follow when all documents are known, and the
// configuration's place goes into the head last.
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

// The spans of documents as the file has them.
struct Ranges {
  std::vector<int32_t> numbers;  // begin, end of each
  std::vector<int32_t> ends;     // ranges before each document, and all
};
Ranges half_open(const MemmapIndex& index, size_t first, size_t last, const fs::path& path) {
  constexpr auto kMost = std::numeric_limits<int32_t>::max();
  size_t at = 0;
  for (size_t i = 0; i < first; ++i) at += size_t(index.span_counts[i]);
  Ranges ranges;
  ranges.ends.push_back(0);
  for (size_t i = first; i < last; ++i) {
    if (index.span_counts[i] > kMost - ranges.ends.back()) {
      throw Error(Status::kInvalid, fmt::format("expected at most {} spans in {}, found more at "
                                                "document {}; write several files",
                                                kMost, path.string(), i - first));
    }
    ranges.ends.push_back(ranges.ends.back() + index.span_counts[i]);
    for (size_t end = at + size_t(index.span_counts[i]); at < end; ++at) {
      ranges.numbers.push_back(int32_t(index.spans[at].first));
      ranges.numbers.push_back(int32_t(index.spans[at].last + 1));
    }
  }
  return ranges;
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

std::string dataset_file_head() {
  return fmt::format("{}{}{}{}", kMagic, std::string(sizeof(uint64_t), '\0'), kLanguageModel.begin,
                     kTokens.begin);
}

void finish_dataset_file(int fd, const fs::path& path, const MemmapIndex& index, size_t first,
                         size_t last, bool spans) {
  const TokenTypeInfo type = token_type_info(index.type);
  std::vector<int64_t> ends{0};  // tokens before each document, and all
  ends.reserve(last - first + 1);
  for (size_t i = first; i < last; ++i) ends.push_back(ends.back() + index.sizes[i]);
  constexpr uint64_t kTokensAt = kHeaderBytes + kLanguageModel.begin.size();
  Output out(fd, path,
             kTokensAt + kTokens.begin.size() + uint64_t(ends.back()) * uint64_t(type.bytes));
  out.table(ends);
  out.text(kTokens.end);
  const uint64_t tokens_end = out.at();

  std::string parts;
  for (std::string_view name : kOptionalParts) {
    std::string description = R"({"type": "none"})";
    if (spans && name == "loss_masking_spans") {
      const Ranges ranges = half_open(index, first, last, path);
      out.text(kRanges.begin);
      out.table(ranges.numbers);
      out.table(ranges.ends);
      out.text(kRanges.end);
      description = fmt::format(
          R"({{"type": "{}", "begin": {}, "end": {}, "num_documents": {}, "num_ranges": {}}})",
          kRanges.type, tokens_end, out.at(), last - first, ranges.ends.back());
    }
    parts += fmt::format(R"(, "{}": {})", name, description);
  }
  out.text(kLanguageModel.end);
  const uint64_t end = out.at();
  std::string configuration = fmt::format(
      R"({{"type": "{}", "begin": {}, "end": {}, "{}": {{"type": "{}", "begin": {}, "end": {}, )"
      R"("num_documents": {}, "num_tokens": {}, "data_type": "{}"}}{}}})",
      kLanguageModel.type, kHeaderBytes, end, kTokensPart, kTokens.type, kTokensAt, tokens_end,
      last - first, ends.back(), type.name, parts);
  out.text(big_endian(configuration.size(), sizeof(uint32_t)));
  out.text(configuration);
  seek_output(fd, kMagic.size(), path);
  Output(fd, path, kMagic.size()).text(big_endian(end, sizeof(uint64_t)));
}

DatasetFileWriter::DatasetFileWriter(const fs::path& path, TokenType type)
    : path_(path), aside_(path) {
  index_.type = type;
  if (path.extension() != kSuffix) {
    throw Error(Status::kInvalid, fmt::format("expected the path of a dataset to end in {}, found "
                                              "{}; write {}{}",
                                              kSuffix, path.string(), path.string(), kSuffix));
  }
  if (path.has_parent_path()) make_directories(path.parent_path());
  aside_ += fmt::format(".tmp.{}", ::getpid());
  fd_ = create_output(aside_);
  Output(fd_, aside_, 0).text(dataset_file_head());
}

DatasetFileWriter::~DatasetFileWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(aside_.c_str());
}

void DatasetFileWriter::add(std::span<const int64_t> tokens,
                            const std::optional<std::vector<Span>>& spans) {
  FASTLLM_ASSERT(fd_ >= 0);
  size_t document = index_.sizes.size();
  check_document(tokens, index_.type, spans, document, path_);
  if (document > 0 && spans.has_value() != !index_.span_counts.empty())
    refuse_mixed_spans(document, spans.has_value(), path_);
  if (spans) {
    index_.span_counts.push_back(int32_t(spans->size()));
    index_.spans.insert(index_.spans.end(), spans->begin(), spans->end());
  }
  index_.sizes.push_back(int32_t(tokens.size()));
  buffer_.resize(tokens.size() * size_t(token_type_info(index_.type).bytes));
  narrow_tokens(index_.type, tokens, buffer_);
  write_all(fd_, buffer_, aside_);
}

void DatasetFileWriter::finish() {
  FASTLLM_ASSERT(fd_ >= 0);
  if (index_.sizes.empty()) {
    throw Error(Status::kInvalid,
                fmt::format("expected at least one document for {}, found none", path_.string()));
  }
  finish_dataset_file(fd_, aside_, index_, 0, index_.sizes.size(), !index_.span_counts.empty());
  close_output(fd_, aside_);
  rename_output(aside_, path_);
}

}  // namespace fastllm::data
