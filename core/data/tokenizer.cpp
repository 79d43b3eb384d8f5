// Bytes are ids; what is not UTF-8 is refused before it becomes tokens.
#include "core/data/tokenizer.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"

namespace fastllm::data::byte_tokenizer {

std::vector<int64_t> encode(std::string_view text, const EncodeOptions& options) {
  if (size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    throw Error(Status::kInvalid,
                fmt::format("expected UTF-8 text, found the byte 0x{:02x} at offset {}; convert "
                            "the text to UTF-8",
                            uint8_t(text[at]), at));
  }
  std::vector<int64_t> ids;
  ids.reserve(text.size() + 2);
  if (options.begin) ids.push_back(kBegin);
  for (char byte : text) ids.push_back(uint8_t(byte));
  if (options.end) ids.push_back(kEnd);
  return ids;
}

std::string decode(std::span<const int64_t> ids) {
  std::string bytes;
  bytes.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= kVocabulary) {
      throw Error(Status::kInvalid,
                  fmt::format("expected ids from 0 to {} of the bytes tokenizer, found {} at "
                              "position {}; was the model trained with another tokenizer?",
                              kVocabulary - 1, ids[i], i));
    }
    if (ids[i] < kBegin) bytes.push_back(char(ids[i]));
  }
  return repair_utf8(bytes);
}

}  // namespace fastllm::data::byte_tokenizer
