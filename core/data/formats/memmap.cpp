// Opens a pair of files. Whatever the index claims is checked against the sizes of both files
// before anything is read by it.
#include "core/data/formats/memmap.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/data/fingerprint.hpp"
#include "core/data/formats/memmap_format.hpp"
#include "core/data/formats/unaligned.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSpanStride = 64;  // documents; a lookup adds at most this many counts

Span load_span(const std::byte* pairs, int64_t index) {
  return {load<int32_t>(pairs, 2 * index), load<int32_t>(pairs, 2 * index + 1)};
}

[[noreturn]] void damaged(const fs::path& path, const std::string& text) {
  throw Error(Status::kDataLoss,
              fmt::format("{}: {}; the file is cut or damaged, copy or prepare it again",
                          path.string(), text));
}

// Says what to do when the pair is not there; knows the names that replacing the last suffix would
// have made.
void check_present(const fs::path& prefix, const MemmapPaths& paths) {
  bool index = path_exists(paths.index), tokens = path_exists(paths.tokens);
  if (index && tokens) return;
  const fs::path& missing = index ? paths.tokens : paths.index;
  fs::path replaced = prefix;
  replaced.replace_extension();
  if (!index && !tokens && replaced != prefix) {
    fs::path old_index = replaced, old_tokens = replaced;
    old_index += ".idx";
    old_tokens += ".bin";
    if (path_exists(old_index) && path_exists(old_tokens)) {
      throw Error(
          Status::kNotFound,
          fmt::format("expected the files {} and {}, found {} and {}, as a tool writes them that "
                      "replaces what follows the last dot; rename them, or give the path {}",
                      paths.index.string(), paths.tokens.string(), old_index.string(),
                      old_tokens.string(), replaced.string()));
    }
  }
  throw Error(
      Status::kNotFound,
      fmt::format("expected the pair {} and {}, found no file {}; check the path of the dataset "
                  "(a prefix without suffix), or prepare it",
                  paths.index.string(), paths.tokens.string(), missing.string()));
}

std::string legal_types() {
  std::string text;
  for (const TokenTypeInfo& info : kTokenTypes) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", uint8_t(info.type), info.name);
  }
  return text;
}

}  // namespace

MemmapPaths::MemmapPaths(const fs::path& prefix) : index(prefix), tokens(prefix) {
  if (prefix.extension() == ".idx" || prefix.extension() == ".bin") {
    fs::path right = prefix;
    right.replace_extension();
    throw Error(Status::kInvalid,
                fmt::format("expected the path of a dataset without its suffix, found {}; write {}",
                            prefix.string(), right.string()));
  }
  if (prefix.filename().empty()) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected the path of a dataset (what stands before .idx and .bin), found the "
                    "folder '{}'; write for example {}",
                    prefix.string(), (prefix / "shard_0_0").string()));
  }
  index += ".idx";
  tokens += ".bin";
}

MemmapDataset::MemmapDataset(const fs::path& prefix, const MemmapPaths& paths)
    : DocumentFile({prefix, paths.index, paths.tokens}) {
  check_present(prefix, paths);
}

MemmapDataset::MemmapDataset(const fs::path& prefix, const MemmapExpectations& expected)
    : MemmapDataset(prefix, MemmapPaths(prefix)) {
  index_ = MappedFile(paths_.index);
  data_ = MappedFile(paths_.tokens);
  open(expected);
}

void MemmapDataset::open(const MemmapExpectations& expected) {
  std::span<const std::byte> bytes = index_.bytes();
  if (bytes.size() < kMemmapMagic.size() ||
      std::memcmp(bytes.data(), kMemmapMagic.data(), kMemmapMagic.size()) != 0) {
    throw Error(
        Status::kInvalid,
        fmt::format(
            "{}: expected the index of a memory-mapped dataset (first bytes MMIDIDX), found "
            "something else; check the path, or prepare the dataset again",
            paths_.index.string()));
  }
  uint64_t at = kMemmapMagic.size();
  auto header = [&](uint64_t size) {
    if (bytes.size() - at < size) {
      damaged(paths_.index, fmt::format("expected a header of at least {} bytes, found {} bytes",
                                        at + size, bytes.size()));
    }
    const std::byte* field = bytes.data() + at;
    at += size;
    return field;
  };
  auto flag = [&](const char* what) {
    auto value = load<uint8_t>(header(1));
    if (value > 1)
      damaged(paths_.index, fmt::format("expected 0 or 1 for {}, found {}", what, value));
    return value == 1;
  };

  auto version = load<uint64_t>(header(8));
  if (version < 1 || version > 3) {
    throw Error(
        Status::kUnsupported,
        fmt::format("{}: data set version {}; this build reads 1-3; {}", paths_.index.string(),
                    version,
                    version > 3 ? "written by a newer tool?" : "damaged, or no such index?"));
  }
  version_ = int(version);
  bool has_spans = version_ >= 2 && flag("the loss-masking span flag");
  bool has_preference = version_ >= 3 && flag("the preference span flag");
  if (has_spans && has_preference) {
    throw Error(
        Status::kUnsupported,
        fmt::format(
            "{}: expected loss-masking spans or preference spans, found both flags set, for "
            "which version 3 has no layout; prepare the dataset with one of them",
            paths_.index.string()));
  }
  auto code = load<uint8_t>(header(1));
  std::optional<TokenTypeInfo> type = find_token_type(code);
  if (!type) {
    throw Error(
        Status::kInvalid,
        fmt::format(
            "{}: expected a token type code of {}, found {}{}; prepare the dataset with one of "
            "the legal types",
            paths_.index.string(), legal_types(), code,
            code == 6 || code == 7 ? " (floating-point numbers, token ids are integers)" : ""));
  }
  type_ = type->type;
  itemsize_ = type->bytes;
  auto count = load<uint64_t>(header(8));
  header(8);  // "documents", which nobody needs

  // The count is believed only as far as the file could hold it.
  constexpr uint64_t kBytesPerDocument = sizeof(int32_t) + sizeof(int64_t);
  if (count > (bytes.size() - at) / kBytesPerDocument) {
    damaged(paths_.index,
            fmt::format("expected tables of {} documents ({} bytes each), found {} bytes in the "
                        "whole file",
                        count, kBytesPerDocument, bytes.size()));
  }
  documents_ = int64_t(count);
  sizes_ = bytes.data() + at;
  offsets_ = sizes_ + documents_ * int64_t(sizeof(int32_t));
  at += count * kBytesPerDocument;

  read_documents();
  expect(expected);
  if (has_spans) read_spans(at);
  if (has_preference) {
    if (count > (bytes.size() - at) / 16) {
      damaged(paths_.index,
              fmt::format("expected two preference spans for each of {} documents, found {} bytes "
                          "in the whole file",
                          count, bytes.size()));
    }
    chosen_ = bytes.data() + at;
    rejected_ = chosen_ + 8 * documents_;
    log::info(
        fmt::format("{}: preference spans are not used by GPT training", paths_.index.string()));
  }
}

void MemmapDataset::read_documents() {
  auto data_bytes = int64_t(data_.size());
  int64_t needed = 0;  // bytes of .bin
  for (int64_t document = 0; document < documents_; ++document) {
    auto size = int64_t(load<int32_t>(sizes_, document));
    auto offset = load<int64_t>(offsets_, document);
    if (size < 0 || offset < 0) {
      damaged(paths_.index,
              fmt::format("expected size and offset of document {} from 0 up, found {} and {}",
                          document, size, offset));
    }
    if (offset % itemsize_ != 0) {
      damaged(
          paths_.index,
          fmt::format("expected the offset of document {} to be a multiple of {} bytes, found {}",
                      document, itemsize_, offset));
    }
    int64_t end = 0;
    if (__builtin_add_overflow(offset, size * itemsize_, &end)) {
      damaged(paths_.index, fmt::format("expected document {} inside {}, found it at offset {}",
                                        document, paths_.tokens.string(), offset));
    }
    needed = std::max(needed, end);
    num_tokens_ += size;  // at most 2^31 * file size / 12: fits
  }
  if (needed > data_bytes) {
    throw Error(
        Status::kDataLoss,
        fmt::format(
            "expected at least {} bytes in {}, as {} says, found {} bytes; the copy was cut or "
            "the two files are not a pair, copy or prepare them again",
            needed, paths_.tokens.string(), paths_.index.string(), data_bytes));
  }
  check_not_empty();
}

void MemmapDataset::expect(const MemmapExpectations& expected) const {
  expect_count("num_documents", "documents", expected.num_documents, documents_);
  const auto data_bytes = int64_t(data_.size());
  if (expected.num_tokens &&
      (data_bytes % itemsize_ != 0 || data_bytes / itemsize_ != *expected.num_tokens)) {
    throw Error(
        Status::kInvalid,
        fmt::format(
            "expected {} tokens of {} bytes in {}, as the configuration says, found {} bytes; "
            "correct num_tokens, or use the files it was written for",
            *expected.num_tokens, itemsize_, paths_.tokens.string(), data_bytes));
  }
}

void MemmapDataset::read_spans(uint64_t at) {
  uint64_t left = index_.size() - at;
  if (uint64_t(documents_) > left / sizeof(int32_t)) {
    damaged(paths_.index,
            fmt::format("expected span counts of {} documents, found {} bytes in the whole file",
                        documents_, index_.size()));
  }
  const std::byte* counts = index_.bytes().data() + at;
  left -= uint64_t(documents_) * sizeof(int32_t);
  int64_t total = 0;
  spans_before_.reserve(size_t(documents_ / kSpanStride + 1));
  for (int64_t document = 0; document < documents_; ++document) {
    if (document % kSpanStride == 0) spans_before_.push_back(total);
    auto count = load<int32_t>(counts, document);
    if (count < 0) {
      damaged(paths_.index,
              fmt::format("expected a number of spans from 0 up for document {}, found {}",
                          document, count));
    }
    total += count;
  }
  if (uint64_t(total) > left / (2 * sizeof(int32_t))) {
    damaged(paths_.index,
            fmt::format("expected {} loss-masking spans, found {} bytes in the whole file", total,
                        index_.size()));
  }
  span_counts_ = counts;
  spans_ = counts + documents_ * int64_t(sizeof(int32_t));
}

int64_t MemmapDataset::document_size(int64_t document) const {
  check_document(document);
  return load<int32_t>(sizes_, document);
}

void MemmapDataset::read_tokens(int64_t document, int64_t offset, std::span<int64_t> tokens) const {
  const auto begin = load<int64_t>(offsets_, document) + offset * itemsize_;
  widen_tokens(type_, data_.bytes().subspan(size_t(begin), tokens.size() * size_t(itemsize_)),
               tokens);
}

void MemmapDataset::append_spans(int64_t document, std::vector<Span>& spans) const {
  int64_t at = spans_before_[size_t(document / kSpanStride)];
  for (int64_t other = document - document % kSpanStride; other < document; ++other)
    at += load<int32_t>(span_counts_, other);
  for (int64_t last = at + load<int32_t>(span_counts_, document); at < last; ++at)
    spans.push_back(load_span(spans_, at));
}

std::vector<std::string> MemmapDataset::make_fingerprints() const {
  return {fingerprint_sampled(paths_.index.string(), index_.bytes()),
          fingerprint_sampled(paths_.tokens.string(), data_.bytes())};
}

Span MemmapDataset::chosen_span(int64_t document) const {
  check_document(document);
  FASTLLM_ASSERT(chosen_);
  return load_span(chosen_, document);
}

Span MemmapDataset::rejected_span(int64_t document) const {
  check_document(document);
  FASTLLM_ASSERT(rejected_);
  return load_span(rejected_, document);
}

}  // namespace fastllm::data
