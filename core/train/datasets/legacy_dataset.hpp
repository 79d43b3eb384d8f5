// The older way to define data (docs/compatibility.md): prefixes with weights, each cut in three by
// shares of its documents. It stands for a definition in the newer words, and becomes one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/config/node.hpp"

namespace fastllm::train {

struct LegacyDataset {
  config::Node definition;       // of type `sampled`, not resolved
  std::filesystem::path folder;  // what its paths are relative to
};

// What is wrong with a legacy definition; what() is the sentence.
class LegacyError : public Error {
 public:
  LegacyError(std::string key, std::string sentence)
      : Error(Status::kInvalid, std::move(sentence)), key_(std::move(key)) {}
  const std::string& key() const { return key_; }  // "path", "split", "format"

 private:
  std::string key_;
};

// definition: of type `legacy`, resolved. split_part: 0 training, 1 validation, 2 test.
// seed: of the order, the distributed one. folder: of the definition's own paths.
// Reads a file when the format is `file`. Throws LegacyError.
LegacyDataset translate_legacy(const config::Node& definition, size_t split_part, int64_t seed,
                               const std::filesystem::path& folder);

}  // namespace fastllm::train
