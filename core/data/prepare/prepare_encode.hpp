// One block of input to tokens in the type of the output. Any thread, any order: the result depends
// on the block alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/prepare/prepare_inputs.hpp"
#include "core/data/token_type.hpp"
#include "core/data/tokenizers/tokenizer.hpp"

namespace fastllm::data {

struct EncodeSettings {
  const Tokenizer* tokenizer = nullptr;
  std::string text_field, spans_field;
  int64_t vocab_size = 0;  // token ids must be below; 0: whatever the type holds
  TokenType type = TokenType::kInt16;
};

// A document, or the next part of one that is too long for a block.
struct EncodedPiece {
  int64_t tokens = 0;
  bool continues = false;   // the document of the piece before
  std::vector<Span> spans;  // token positions in the document
};

struct EncodedBlock {
  std::vector<std::byte> tokens;  // of all pieces, one after the other
  std::vector<EncodedPiece> pieces;
};

EncodedBlock encode_block(const std::vector<InputFile>& files, const InputBlock& block,
                          const EncodeSettings& settings);

}  // namespace fastllm::data
