// From a path to the kind of tokenizer that is there.
#include "core/data/tokenizers/tokenizer.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/data/tokenizers/byte_tokenizer.hpp"
#include "core/data/tokenizers/huggingface_tokenizer.hpp"
#include "core/data/tokenizers/sentencepiece_tokenizer.hpp"
#include "core/data/tokenizers/tokenizer_folder.hpp"

namespace fastllm::data {

void check_utf8(std::string_view text) {
  size_t at = find_invalid_utf8(text);
  if (at == std::string_view::npos) return;
  throw Error(Status::kInvalid,
              fmt::format("expected UTF-8 text, found the byte 0x{:02x} at offset {}; convert the "
                          "text to UTF-8",
                          uint8_t(text[at]), at));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  TokenBatch batch;
  encode_batch(std::span(&text, 1), batch);
  std::vector<int64_t> ids;
  ids.reserve(batch.tokens.size() + 2);
  if (options.begin) ids.push_back(begin_id());
  ids.insert(ids.end(), batch.tokens.begin(), batch.tokens.end());
  if (options.end) ids.push_back(end_id());
  return ids;
}

std::shared_ptr<const Tokenizer> open_tokenizer(const TokenizerOptions& options) {
  if (options.path.empty()) {
    throw Error(Status::kInvalid,
                "expected a tokenizer ('bytes', or the folder of a pretrained one), found none");
  }
  if (options.path == byte_tokenizer::kName)
    return std::make_shared<ByteTokenizer>(options.added_tokens);
  FASTLLM_ASSERT(options.added_tokens.empty());
  TokenizerFolder folder = read_tokenizer_folder(options.path);
  if (folder.kind == TokenizerFolder::Kind::kSentencePiece)
    return std::make_shared<SentencePieceTokenizer>(folder);
  return open_huggingface_tokenizer(folder, options.python, options.workers);
}

}  // namespace fastllm::data
