// Bytes are ids; what is not UTF-8 is refused before it becomes tokens.
#include "core/data/tokenizers/byte_tokenizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"

namespace fastllm::data {

using namespace byte_tokenizer;

ByteTokenizer::ByteTokenizer(std::vector<std::string> added_tokens)
    : added_tokens_(std::move(added_tokens)) {
  for (size_t i = 0; i < added_tokens_.size(); ++i) {
    auto earlier = added_tokens_.begin() + ptrdiff_t(i);
    if (added_tokens_[i].empty() ||
        std::find(added_tokens_.begin(), earlier, added_tokens_[i]) != earlier) {
      throw Error(Status::kInvalid,
                  fmt::format("expected added tokens with texts that differ, found '{}' {}",
                              added_tokens_[i], added_tokens_[i].empty() ? "among them" : "twice"));
    }
  }
}

std::optional<int64_t> ByteTokenizer::token_id(std::string_view token) const {
  auto found = std::find(added_tokens_.begin(), added_tokens_.end(), token);
  if (found == added_tokens_.end()) return std::nullopt;
  return kVocabulary + (found - added_tokens_.begin());
}

void ByteTokenizer::encode_batch(std::span<const std::string_view> texts, TokenBatch& batch) const {
  for (std::string_view text : texts) {
    check_utf8(text);
    size_t at = batch.tokens.size();
    batch.tokens.resize(at + text.size());
    std::transform(text.begin(), text.end(), batch.tokens.begin() + ptrdiff_t(at),
                   [](char byte) { return int32_t(uint8_t(byte)); });
    batch.sizes.push_back(int64_t(text.size()));
  }
}

std::string ByteTokenizer::decode(std::span<const int64_t> ids) const {
  std::string bytes;
  bytes.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary()) {
      throw Error(Status::kInvalid,
                  fmt::format("expected ids from 0 to {} of the bytes tokenizer, found {} at "
                              "position {}; was the model trained with another tokenizer?",
                              vocabulary() - 1, ids[i], i));
    }
    if (ids[i] < kBegin) bytes.push_back(char(ids[i]));
  }
  return repair_utf8(bytes);
}

}  // namespace fastllm::data
