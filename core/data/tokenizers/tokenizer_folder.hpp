// What a folder of a pretrained tokenizer holds: which file describes it, and the texts of its
// special tokens, as Hugging Face's files name them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace fastllm::data {

struct TokenizerFolder {
  enum class Kind { kTokenizerJson, kSentencePiece };
  Kind kind = Kind::kTokenizerJson;
  std::filesystem::path folder;
  std::filesystem::path file;  // tokenizer.json, or the SentencePiece model
  // From tokenizer_config.json, else special_tokens_map.json; unset: neither says.
  std::optional<std::string> begin, end, pad;
};

// path: the folder, or one of the files in it. tokenizer.json is preferred to a SentencePiece model
// beside it. Throws Error(kNotFound), or kInvalid for files that hold something else.
TokenizerFolder read_tokenizer_folder(const std::filesystem::path& path);

}  // namespace fastllm::data
