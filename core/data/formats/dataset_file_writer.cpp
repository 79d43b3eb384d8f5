// Tokens first; sums, ranges and the configuration follow when all documents are known, and the
// configuration's place goes into the head last.
#include "core/data/formats/dataset_file_writer.hpp"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/output_file.hpp"
#include "core/data/formats/dataset_file_format.hpp"

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
Ranges half_open(const DocumentIndex& index, size_t first, size_t last, const fs::path& path) {
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

const fs::path& checked_name(const fs::path& path) {
  if (path.extension() == kSuffix) return path;
  throw Error(Status::kInvalid, fmt::format("expected the path of a dataset to end in {}, found "
                                            "{}; write {}{}",
                                            kSuffix, path.string(), path.string(), kSuffix));
}

}  // namespace

std::string dataset_file_head() {
  return fmt::format("{}{}{}{}", kMagic, std::string(sizeof(uint64_t), '\0'), kLanguageModel.begin,
                     kTokens.begin);
}

void finish_dataset_file(int fd, const fs::path& path, const DocumentIndex& index, size_t first,
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
    : documents_(checked_name(path), type) {
  Output(documents_.descriptor(), documents_.aside(), 0).text(dataset_file_head());
}

void DatasetFileWriter::finish() {
  documents_.check_not_empty();
  const DocumentIndex& index = documents_.index();
  finish_dataset_file(documents_.descriptor(), documents_.aside(), index, 0, index.sizes.size(),
                      !index.span_counts.empty());
  documents_.close();
  documents_.publish();
}

}  // namespace fastllm::data
