// Only special tokens are read here; the file itself is for the library that understands it.
#include "core/data/tokenizers/tokenizer_folder.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr uint64_t kLargestJson = uint64_t(64) << 20;

// A clone without Git LFS has a few lines in place of each large file.
void refuse_lfs_pointer(const fs::path& file) {
  constexpr std::string_view kFirstLine = "version https://git-lfs.github.com/spec/";
  std::string start(kFirstLine.size(), '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(start.data(), std::streamsize(start.size()));
  if (!stream || start != kFirstLine) return;
  std::string line, size = "unknown";
  while (std::getline(stream, line)) {
    if (line.starts_with("size ") && line.size() < 40) size = line.substr(5);
  }
  throw Error(
      Status::kInvalid,
      fmt::format("expected a tokenizer in {}, found a Git LFS pointer (real size {} bytes); "
                  "run git lfs pull in its folder",
                  file.string(), size));
}

json read_object(const fs::path& path) {
  if (!path_exists(path)) return json::object();
  json object = json::parse(read_file(path, kLargestJson), nullptr, false);
  if (!object.is_object()) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected a JSON object in {}, found {}; get the file again", path.string(),
                    object.is_discarded() ? "text that is no JSON" : object.type_name()));
  }
  return object;
}

// "<s>", or {"content": "<s>", ...}; null and absent mean: none.
std::optional<std::string> token_text(const json& object, const char* key, const fs::path& path) {
  auto found = object.find(key);
  if (found == object.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (found->is_object() && found->contains("content") && found->at("content").is_string())
    return found->at("content").get<std::string>();
  throw Error(Status::kInvalid,
              fmt::format("expected {} in {} as text or a block with `content`, found {}", key,
                          path.string(), found->type_name()));
}

}  // namespace

TokenizerFolder read_tokenizer_folder(const fs::path& path) {
  TokenizerFolder result;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    result.folder = path;
    result.file = path / "tokenizer.json";
    if (!path_exists(result.file)) {
      result.file = path / "tokenizer.model";
      result.kind = TokenizerFolder::Kind::kSentencePiece;
    }
    if (!path_exists(result.file)) {
      throw Error(Status::kNotFound,
                  fmt::format("expected tokenizer.json or tokenizer.model in the folder {}, found "
                              "neither; name the folder of a pretrained tokenizer",
                              path.string()));
    }
  } else if (!path_exists(path)) {
    throw Error(
        Status::kNotFound,
        fmt::format("expected a tokenizer ('bytes', or the folder of a pretrained one, or its "
                    "tokenizer.json or SentencePiece model) at {}, found none; names of hubs are "
                    "not looked up, so download it first",
                    path.string()));
  } else {
    result.folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    result.file = path;
    if (path.extension() == ".model") {
      result.kind = TokenizerFolder::Kind::kSentencePiece;
    } else if (path.filename() != "tokenizer.json") {
      throw Error(Status::kInvalid,
                  fmt::format("expected a folder, a file called tokenizer.json or a SentencePiece "
                              "file *.model, found {}",
                              path.string()));
    }
  }
  refuse_lfs_pointer(result.file);

  const char* names[] = {"tokenizer_config.json", "special_tokens_map.json"};
  for (const char* name : names) {
    fs::path file = result.folder / name;
    json object = read_object(file);
    if (!result.begin) result.begin = token_text(object, "bos_token", file);
    if (!result.end) result.end = token_text(object, "eos_token", file);
    if (!result.pad) result.pad = token_text(object, "pad_token", file);
  }
  return result;
}

}  // namespace fastllm::data
