// Small things the tests of data share: fixtures, messages, datasets in memory, index files byte by byte.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/data/indexed.hpp"
#include "core/data/token_type.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::data {

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(FASTLLM_SOURCE_DIR) / "tests" / "fixtures" / name;
}
inline nlohmann::json fixture_json(const std::string& name) {
  return nlohmann::json::parse(read_file(fixture(name)));
}

using test::message_of;

// While it lives, permissions hold for this process even when root runs the tests.
class WithoutPrivileges {
 public:
  WithoutPrivileges() { dropped_ = ::geteuid() == 0 && ::seteuid(kNobody) == 0; }
  ~WithoutPrivileges() {
    if (dropped_ && ::seteuid(0) != 0) std::abort();
  }
  bool hold() const { return ::geteuid() != 0; }

 private:
  static constexpr uid_t kNobody = 65534;
  bool dropped_ = false;
};

// Documents in memory.
class FakeDocuments final : public IndexedDataset {
 public:
  explicit FakeDocuments(std::vector<std::vector<int64_t>> documents,
                         std::vector<std::vector<Span>> spans = {})
      : documents_(std::move(documents)), spans_(std::move(spans)) {
    for (const auto& document : documents_) tokens_ += int64_t(document.size());
  }
  int64_t num_documents() const override { return int64_t(documents_.size()); }
  int64_t num_tokens() const override { return tokens_; }
  int64_t document_size(int64_t document) const override {
    return int64_t(documents_.at(size_t(document)).size());
  }
  void get(int64_t document, int64_t offset, std::span<int64_t> tokens,
           std::vector<Span>* spans) const override {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = documents_.at(size_t(document)).at(size_t(offset) + i);
    if (!spans || spans_.empty()) return;
    for (const Span& span : spans_.at(size_t(document))) {
      Span clipped{std::max(span.first - offset, int64_t(0)),
                   std::min(span.last - offset, int64_t(tokens.size()) - 1)};
      if (clipped.first <= clipped.last) spans->push_back(clipped);
    }
  }
  bool has_spans() const override { return !spans_.empty(); }
  std::string name() const override { return "fake"; }
  std::string locate(int64_t document) const override {
    return "document " + std::to_string(document) + " of fake";
  }
  std::vector<std::string> fingerprints() const override { return {"fake: in memory"}; }

 private:
  std::vector<std::vector<int64_t>> documents_;
  std::vector<std::vector<Span>> spans_;
  int64_t tokens_ = 0;
};

inline std::vector<int64_t> read_sample(const SampledDataset& dataset, int64_t index,
                                        int64_t sequence_length, Sample* kept = nullptr,
                                        int64_t predicted_tokens = 1) {
  std::vector<int64_t> tokens(size_t(sequence_length + predicted_tokens), -7);
  Sample sample;
  sample.tokens = tokens;
  dataset.get(index, sample);
  if (kept) *kept = sample;
  return tokens;
}

inline std::vector<int64_t> read_document(const IndexedDataset& dataset, int64_t document,
                                          int64_t offset = 0, std::vector<Span>* spans = nullptr,
                                          int64_t length = -1) {
  if (length < 0) length = dataset.document_size(document) - offset;
  std::vector<int64_t> tokens(static_cast<size_t>(length), -7);
  dataset.get(document, offset, tokens, spans);
  return tokens;
}

// An index file, byte by byte, right or wrong.
class Bytes {
 public:
  template <class T>
  Bytes& add(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    return *this;
  }
  Bytes& text(const std::string& text) {
    text_ += text;
    return *this;
  }
  const std::string& str() const { return text_; }

 private:
  std::string text_;
};

struct IndexSpec {
  uint64_t version = 1;
  uint8_t code = 8;
  std::vector<int32_t> sizes = {};
  std::vector<int64_t> offsets = {};
  std::optional<uint64_t> count = {};       // what the header claims, when not the truth
  std::vector<uint8_t> flags = {};          // versions 2 and 3
  std::vector<int32_t> after_offsets = {};  // span counts and pairs, or preference pairs
};
inline std::string index_bytes(const IndexSpec& spec) {
  Bytes bytes;
  bytes.text(std::string("MMIDIDX\0\0", 9)).add(spec.version);
  for (uint8_t flag : spec.flags) bytes.add(flag);
  uint64_t count = spec.count.value_or(spec.sizes.size());
  bytes.add(spec.code).add(count).add(count + 1);
  for (int32_t size : spec.sizes) bytes.add(size);
  for (int64_t offset : spec.offsets) bytes.add(offset);
  for (int32_t value : spec.after_offsets) bytes.add(value);
  for (size_t i = 0; i <= spec.sizes.size(); ++i) bytes.add(int64_t(i));
  return bytes.str();
}

}  // namespace fastllm::data
