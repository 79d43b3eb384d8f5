// Which files `prepare` reads, in which order, and in which blocks workers take them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "core/data/prepare/input_range.hpp"

namespace fastllm::data {

enum class InputFormat {
  kAuto,       // by name: .jsonl and .ndjson are JSON lines, all else text
  kText,       // a file is a document
  kJsonLines,  // a line is a document
};

struct InputFile {
  std::filesystem::path path;
  FileState state;
  bool json_lines = false;
};

// [begin, end) of a file. A part of text is moved to the nearest border of characters; one of lines
// is the lines whose first byte is inside.
struct InputPart {
  size_t file = 0;
  int64_t begin = 0, end = 0;
};

// What a worker takes at a time: a part of one file, or several small files.
struct InputBlock {
  std::vector<InputPart> parts;
  int64_t bytes() const;
};

// Every pattern must give at least one file before `exclude` takes some away, and one file must
// stay in all. A file found twice is taken once, at its first place. A folder's own kMetadataFile is
// left out.
std::vector<InputFile> list_inputs(const std::vector<std::string>& patterns, InputFormat format,
                                   const std::vector<std::string>& exclude = {});

// What describes a dataset, by convention: no document of a folder, but passed on with what is made.
inline constexpr const char* kMetadataFile = "croissant.json";
// Those of the inputs that are folders, in order.
std::vector<std::filesystem::path> metadata_files(const std::vector<std::string>& inputs);

// cut_texts: whether a text file may be cut; lines always are.
std::vector<InputBlock> cut_into_blocks(const std::vector<InputFile>& files, int64_t block_bytes,
                                        bool cut_texts);

// Throws Error(kUnavailable) for the first file that is not as it was listed.
void check_unchanged(const std::vector<InputFile>& files);

}  // namespace fastllm::data
