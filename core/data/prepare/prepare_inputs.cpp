// Patterns to files: shell patterns within a name, `**` for folders. The result is sorted, so that
// it depends on names alone.
#include "core/data/prepare/prepare_inputs.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <system_error>
#include <unordered_set>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/data/prepare/work_folder.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

bool is_pattern(std::string_view text) {
  return text.find_first_of("*?[") != std::string_view::npos;
}
bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

// Entries of a folder; "" is the current one, so that paths stay as the user wrote them.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  return list_folder(folder.empty() ? fs::path(".") : folder);
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Follows a pattern part by part. Folders reached through `**` are not hidden and no links, so a
// walk always ends. The unfinished work of any preparation is passed by.
class Expansion {
 public:
  std::set<std::string> paths;

  void follow(const fs::path& folder, const std::vector<std::string>& parts, size_t at) {
    if (is_work_folder(folder)) return;
    const std::string& part = parts[at];
    bool last = at + 1 == parts.size();
    if (part == "**") {
      if (last) {
        add_files(folder, "*");
      } else {
        follow(folder, parts, at + 1);
      }
      for (const auto& entry : entries_of(folder)) {
        fs::path path = folder / entry.path().filename();
        std::error_code ignored;  // of a link itself; what is gone meanwhile is no folder
        if (entry.symlink_status(ignored).type() == fs::file_type::directory && !is_hidden(path))
          follow(path, parts, at);
      }
    } else if (!is_pattern(part)) {
      fs::path path = folder / part;
      if (last && is_file(path)) paths.insert(path.string());
      if (!last && is_folder(path)) follow(path, parts, at + 1);
    } else if (last) {
      add_files(folder, part);
    } else {
      for (const auto& entry : entries_of(folder)) {
        fs::path path = folder / entry.path().filename();
        if (matches(part, path) && is_folder(path)) follow(path, parts, at + 1);
      }
    }
  }

 private:
  static bool matches(const std::string& pattern, const fs::path& path) {
    return ::fnmatch(pattern.c_str(), path.filename().c_str(), FNM_PERIOD) == 0;
  }
  void add_files(const fs::path& folder, const std::string& pattern) {
    for (const auto& entry : entries_of(folder)) {
      fs::path path = folder / entry.path().filename();
      if (matches(pattern, path) && is_file(path)) paths.insert(path.string());
    }
  }
};

std::vector<std::string> parts_of(const fs::path& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : path.relative_path()) {
    bool again = part == "**" && !parts.empty() && parts.back() == "**";  // says the same
    if (!part.empty() && !again) parts.push_back(part.string());
  }
  return parts;
}

// Paths one entry of the list stands for, sorted.
std::set<std::string> expand(const std::string& text) {
  if (is_file(text)) return {text};
  fs::path path = is_folder(text) ? fs::path(text) / "**" : fs::path(text);
  if (!is_folder(text) && !is_pattern(text)) {
    throw Error(Status::kNotFound,
                fmt::format("expected a file or a folder at {}, found {}; check the path", text,
                            path_exists(text) ? "something else" : "none"));
  }
  Expansion expansion;
  expansion.follow(path.root_path(), parts_of(path), 0);
  if (is_folder(text)) {
    const fs::path metadata = (fs::path(text) / kMetadataFile).lexically_normal();
    std::erase_if(expansion.paths, [&](const std::string& found) {
      return fs::path(found).lexically_normal() == metadata;
    });
  }
  if (expansion.paths.empty()) {
    throw Error(Status::kNotFound, fmt::format("expected at least one file for {}, found none; "
                                               "hidden files and folders and a folder's "
                                               "own {} are left out, '**' stands for any folders",
                                               text, kMetadataFile));
  }
  return std::move(expansion.paths);
}

bool is_json_lines(const fs::path& path, InputFormat format) {
  if (format != InputFormat::kAuto) return format == InputFormat::kJsonLines;
  return path.extension() == ".jsonl" || path.extension() == ".ndjson";
}

}  // namespace

std::vector<InputFile> list_inputs(const std::vector<std::string>& patterns, InputFormat format,
                                   const std::vector<std::string>& exclude) {
  if (patterns.empty()) {
    throw Error(Status::kInvalid,
                "expected files, folders or patterns to prepare, found none; name at least one");
  }
  std::vector<InputFile> files;
  std::unordered_set<std::string> known;
  for (const std::string& input : patterns) {
    for (const std::string& text : expand(input)) {
      fs::path path(text);
      bool excluded = std::any_of(exclude.begin(), exclude.end(), [&](const std::string& pattern) {
        return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
      });
      if (excluded) continue;
      if (!known.insert(path.lexically_normal().string()).second) continue;
      files.push_back({path, state_of(path), is_json_lines(path, format)});
    }
  }
  if (files.empty()) {
    throw Error(
        Status::kInvalid,
        fmt::format(
            "expected input files beside those that [{}] leaves out, found none; exclude fewer",
            fmt::join(exclude, ", ")));
  }
  return files;
}

std::vector<fs::path> metadata_files(const std::vector<std::string>& inputs) {
  std::vector<fs::path> found;
  for (const std::string& input : inputs) {
    const fs::path path = fs::path(input) / kMetadataFile;
    if (is_file(path)) found.push_back(path);
  }
  return found;
}

int64_t InputBlock::bytes() const {
  int64_t sum = 0;
  for (const InputPart& part : parts) sum += part.end - part.begin;
  return sum;
}

std::vector<InputBlock> cut_into_blocks(const std::vector<InputFile>& files, int64_t block_bytes,
                                        bool cut_texts) {
  FASTLLM_ASSERT(block_bytes >= 1);
  constexpr size_t kMostParts = 1024;  // so that many empty files are shared out too
  std::vector<InputBlock> blocks;
  InputBlock block;  // being filled
  int64_t bytes = 0;
  auto close = [&] {
    if (!block.parts.empty()) blocks.push_back(std::move(block));
    block = {};
    bytes = 0;
  };
  for (size_t file = 0; file < files.size(); ++file) {
    int64_t size = files[file].state.bytes;
    bool may_cut = cut_texts || files[file].json_lines;
    if (bytes + size > block_bytes || block.parts.size() == kMostParts) close();
    for (int64_t begin = 0; size - begin > block_bytes && may_cut; begin += block_bytes) {
      blocks.push_back({{{file, begin, begin + block_bytes}}});
    }
    int64_t begin = may_cut && size > 0 ? (size - 1) / block_bytes * block_bytes : 0;
    block.parts.push_back({file, begin, size});  // an empty file is an empty part
    bytes += size - begin;
  }
  close();
  return blocks;
}

void check_unchanged(const std::vector<InputFile>& files) {
  for (const InputFile& file : files) {
    if (state_of(file.path) != file.state) fail_changed(file.path);
  }
}

}  // namespace fastllm::data
