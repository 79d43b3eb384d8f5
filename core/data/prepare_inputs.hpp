// Which files `prepare` reads, in which order, and in which blocks workers take them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fastllm::data {

enum class InputFormat {
  kAuto,       // by name: .jsonl and .ndjson are JSON lines, all else text
  kText,       // a file is a document
  kJsonLines,  // a line is a document
};

struct InputFile {
  std::filesystem::path path;
  int64_t bytes = 0;
  bool json_lines = false;
};

// [begin, end) of a file. A block of text is moved to the nearest border of characters; one of
// lines is the lines whose first byte is inside.
struct InputBlock {
  size_t file = 0;
  int64_t begin = 0, end = 0;
};

// Every pattern must give at least one file before `exclude` takes some away, and one file must
// stay in all. A file found twice is taken once, at its first place.
std::vector<InputFile> list_inputs(const std::vector<std::string>& patterns, InputFormat format,
                                   const std::vector<std::string>& exclude = {});

std::vector<InputBlock> cut_into_blocks(const std::vector<InputFile>& files, int64_t block_bytes);

}  // namespace fastllm::data
