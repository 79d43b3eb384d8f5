#include "core/data/tokenizers/pretrained_tokenizer.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"

namespace fastllm::data {
namespace {

// Documents begin and end with a token each, so both must be known.
struct Required {
  const char *what, *key;                  // for messages; the key of the folder's files
  const std::optional<std::string>& text;  // what they say
  std::optional<int64_t> own;
};

int64_t id_of(const Required& token, const Tokenizer& tokenizer, const TokenizerFolder& folder) {
  if (!token.text) {
    if (token.own) return *token.own;
    throw Error(Status::kInvalid,
                fmt::format("expected {} token for {}, found none in tokenizer_config.json and "
                            "special_tokens_map.json of {}; add {} to one of them",
                            token.what, folder.file.string(), folder.folder.string(), token.key));
  }
  if (auto id = tokenizer.token_id(*token.text)) return *id;
  throw Error(
      Status::kInvalid,
      fmt::format("expected {} token '{}' ({}) in the vocabulary of {}, found none; are the "
                  "files of {} of one tokenizer?",
                  token.what, *token.text, token.key, folder.file.string(),
                  folder.folder.string()));
}

}  // namespace

void PretrainedTokenizer::set_vocabulary(int64_t size, const TokenizerFolder& folder,
                                         const OwnIds& own) {
  vocabulary_ = size;
  begin_ = id_of({"a beginning-of-sequence", "bos_token", folder.begin, own.begin}, *this, folder);
  end_ = id_of({"an end-of-sequence", "eos_token", folder.end, own.end}, *this, folder);
  pad_ = folder.pad ? token_id(*folder.pad) : own.pad;
}

void PretrainedTokenizer::check_ids(std::span<const int64_t> ids) const {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary_) continue;
    throw Error(
        Status::kInvalid,
        fmt::format("expected ids from 0 to {} of the tokenizer {}, found {} at position {}; "
                    "was the model trained with another tokenizer?",
                    vocabulary_ - 1, name_, ids[i], i));
  }
}

}  // namespace fastllm::data
