// The built-in byte-level tokenizer, "bytes" (docs/compatibility.md): ids 0-255 are byte values,
// then BOS, EOS and PAD. No normalisation, no merging: the tokens of a text are the tokens of its
// parts, one after the other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fastllm::data::byte_tokenizer {

inline constexpr std::string_view kName = "bytes";
constexpr int64_t kBegin = 256, kEnd = 257, kPad = 258;
constexpr int64_t kVocabulary = 259;

struct EncodeOptions {
  bool begin = false, end = false;  // BOS in front, EOS behind
};
// Throws Error(kInvalid) with the offset when the text is no UTF-8.
std::vector<int64_t> encode(std::string_view text, const EncodeOptions& options = {});

// Special ids are dropped, invalid UTF-8 becomes U+FFFD. An id outside the vocabulary:
// Error(kInvalid).
std::string decode(std::span<const int64_t> ids);

}  // namespace fastllm::data::byte_tokenizer
