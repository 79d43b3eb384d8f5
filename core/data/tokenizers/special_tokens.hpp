// Rules for special tokens that pretrained tokenizers of every kind share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "core/data/tokenizers/tokenizer.hpp"
#include "core/data/tokenizers/tokenizer_folder.hpp"

namespace fastllm::data {

enum class SpecialToken { kBegin, kEnd };

// The id of the token that the folder's files name; Error(kInvalid) when they name none, or one that
// the vocabulary lacks. `fallback`: what the model file itself says, used when no other file does.
int64_t required_special_token(SpecialToken token, const TokenizerFolder& folder,
                               const std::function<std::optional<int64_t>(std::string_view)>& id_of,
                               std::optional<int64_t> fallback = std::nullopt);

// Error(kInvalid) for an id outside the vocabulary.
void check_ids(const Tokenizer& tokenizer, std::span<const int64_t> ids);

}  // namespace fastllm::data
