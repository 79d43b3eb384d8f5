// Documents begin and end with a token each, so both must be known.
#include "core/data/tokenizers/special_tokens.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace fastllm::data {

int64_t required_special_token(SpecialToken token, const TokenizerFolder& folder,
                               const std::function<std::optional<int64_t>(std::string_view)>& id_of,
                               std::optional<int64_t> fallback) {
  const bool begin = token == SpecialToken::kBegin;
  const char* what = begin ? "a beginning-of-sequence" : "an end-of-sequence";
  const char* key = begin ? "bos_token" : "eos_token";
  const auto& text = begin ? folder.begin : folder.end;
  if (!text) {
    if (fallback) return *fallback;
    throw Error(Status::kInvalid,
                fmt::format("expected {} token for {}, found none in tokenizer_config.json and "
                            "special_tokens_map.json of {}; add {} to one of them",
                            what, folder.file.string(), folder.folder.string(), key));
  }
  if (auto id = id_of(*text)) return *id;
  throw Error(
      Status::kInvalid,
      fmt::format("expected {} token '{}' ({}) in the vocabulary of {}, found none; are the "
                  "files of {} of one tokenizer?",
                  what, *text, key, folder.file.string(), folder.folder.string()));
}

void check_ids(const Tokenizer& tokenizer, std::span<const int64_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < tokenizer.vocabulary()) continue;
    throw Error(
        Status::kInvalid,
        fmt::format("expected ids from 0 to {} of the tokenizer {}, found {} at position {}; "
                    "was the model trained with another tokenizer?",
                    tokenizer.vocabulary() - 1, tokenizer.name(), ids[i], i));
  }
}

}  // namespace fastllm::data
