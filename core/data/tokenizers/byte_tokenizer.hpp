// The built-in byte-level tokenizer, "bytes" (docs/compatibility.md): ids 0-255 are byte values,
// then BOS, EOS and PAD, then tokens that were added. No normalisation, no merging: the tokens of a
// text are the tokens of its parts, one after the other.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/tokenizers/tokenizer.hpp"

namespace fastllm::data {

namespace byte_tokenizer {
inline constexpr std::string_view kName = "bytes";
constexpr int64_t kBegin = 256, kEnd = 257, kPad = 258;
constexpr int64_t kVocabulary = 259;
}  // namespace byte_tokenizer

class ByteTokenizer final : public Tokenizer {
 public:
  explicit ByteTokenizer(std::vector<std::string> added_tokens = {});

  std::string name() const override { return std::string(byte_tokenizer::kName); }
  int64_t vocabulary() const override {
    return byte_tokenizer::kVocabulary + int64_t(added_tokens_.size());
  }
  int64_t begin_id() const override { return byte_tokenizer::kBegin; }
  int64_t end_id() const override { return byte_tokenizer::kEnd; }
  std::optional<int64_t> pad_id() const override { return byte_tokenizer::kPad; }
  // Of added tokens alone; bytes and the three special ids have no text.
  std::optional<int64_t> token_id(std::string_view token) const override;
  void encode_batch(std::span<const std::string_view> texts, TokenBatch& batch) const override;
  // Ids above the bytes are dropped.
  std::string decode(std::span<const int64_t> ids) const override;
  bool is_concatenative() const override { return true; }

 private:
  std::vector<std::string> added_tokens_;
};

}  // namespace fastllm::data
