// What reader and writer of one-file datasets share (docs/compatibility.md):
//   magic, offset of the configuration (u64, big-endian), blocks, length of the configuration (u32,
//   big-endian), configuration (JSON).
// A block stands between two words; blocks nest. Numbers inside are little-endian, unaligned.
#pragma once

#include <array>
#include <string_view>

namespace fastllm::data::dataset_file {

inline constexpr std::string_view kSuffix = ".fast_llm_dataset";
inline constexpr std::string_view kMagic = "fast_llm_prepared_dataset";
constexpr size_t kHeaderBytes = kMagic.size() + sizeof(uint64_t);

struct BlockKind {
  std::string_view type, begin, end;  // in the configuration; the words around the content
  constexpr size_t frame() const { return begin.size() + end.size(); }
};
inline constexpr BlockKind kLanguageModel{"language_model", "lm begin", "lm end"};
inline constexpr BlockKind kTokens{"token", "token begin", "token end"};
inline constexpr BlockKind kRanges{"range", "range begin", "range end"};
inline constexpr BlockKind kTokenData{"token_data", "token data begin", "token data end"};

// Parts of a language model's block, in their order; all but the first may be absent.
inline constexpr std::string_view kTokensPart = "tokens";
inline constexpr std::array<std::string_view, 6> kOptionalParts{
    "loss_masking_spans", "chosen_spans", "rejected_spans",
    "image_patches",      "advantages",   "old_log_probabilities"};

}  // namespace fastllm::data::dataset_file
