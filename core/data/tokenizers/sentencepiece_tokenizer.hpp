// A SentencePiece model through its own library.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/data/tokenizers/pretrained_tokenizer.hpp"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace fastllm::data {

class SentencePieceTokenizer final : public PretrainedTokenizer {
 public:
  explicit SentencePieceTokenizer(const TokenizerFolder& folder);
  ~SentencePieceTokenizer() override;

  std::optional<int64_t> token_id(std::string_view token) const override;
  void encode_batch(std::span<const std::string_view> texts, TokenBatch& batch) const override;
  std::string decode(std::span<const int64_t> ids) const override;

 private:
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;  // const calls: any thread
};

}  // namespace fastllm::data
