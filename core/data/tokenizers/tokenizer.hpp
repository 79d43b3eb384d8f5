// Text to token ids and back. Kinds: the built-in bytes (byte_tokenizer.hpp), a SentencePiece model
// (its C++ library), a tokenizer.json (Hugging Face's own package, in worker processes).
//
// Thread use: every function may be called from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fastllm::data {

struct EncodeOptions {
  bool begin = false, end = false;  // BOS in front, EOS behind
};

// Tokens of several texts, one after the other: sizes[i] of them belong to text i.
struct TokenBatch {
  std::vector<int32_t> tokens;
  std::vector<int64_t> sizes;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // For messages and provenance: "bytes", or the path.
  virtual std::string name() const = 0;
  // All ids are below; never above 2^31.
  virtual int64_t vocabulary() const = 0;
  virtual int64_t begin_id() const = 0;
  virtual int64_t end_id() const = 0;
  virtual std::optional<int64_t> pad_id() const = 0;
  // The id of one token by its text ("<fim_prefix>"), special or not; nullopt: there is none.
  virtual std::optional<int64_t> token_id(std::string_view token) const = 0;

  // Appends to `batch`. No special token is put around a text; one written in it ("<s>") is whatever
  // the tokenizer makes of it. Texts that are no UTF-8: Error(kInvalid) with the offset.
  virtual void encode_batch(std::span<const std::string_view> texts, TokenBatch& batch) const = 0;
  // An id outside the vocabulary: Error(kInvalid). Bytes that are no UTF-8 become U+FFFD.
  virtual std::string decode(std::span<const int64_t> ids) const = 0;

  // Whether encode_batch mostly waits for another process, so that a thread more is no load.
  virtual bool is_remote() const { return false; }
  // Whether the tokens of a text are the tokens of its parts, wherever it is cut.
  virtual bool is_concatenative() const { return false; }

  // One text, through encode_batch.
  std::vector<int64_t> encode(std::string_view text, const EncodeOptions& options = {}) const;
};

struct TokenizerOptions {
  // "bytes"; or a folder with tokenizer.json or tokenizer.model; or one of these files itself. A
  // folder called bytes is written ./bytes.
  std::string path;
  // For bytes alone: further tokens by their text, ids from 259 up (fill-in-the-middle markers).
  std::vector<std::string> added_tokens;
  // For tokenizer.json: processes, and the Python that runs them; empty: found (docs/users/data.md).
  int workers = 1;
  std::string python;
};

// Needs a beginning- and an end-of-sequence token; a tokenizer without is an Error(kInvalid).
std::shared_ptr<const Tokenizer> open_tokenizer(const TokenizerOptions& options);

// Throws Error(kInvalid) with the first offset that is no UTF-8.
void check_utf8(std::string_view text);

}  // namespace fastllm::data
