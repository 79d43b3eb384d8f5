// One block of input to tokens in the type of the output. Pure: any thread, any order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/prepare_inputs.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

struct EncodeSettings {
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

EncodedBlock encode_block(const InputFile& file, const InputBlock& block,
                          const EncodeSettings& settings);

}  // namespace fastllm::data
