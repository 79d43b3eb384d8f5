// A list decides when there is one; else names do.
#include "core/data/formats/memmap_folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostIndexBytes = uint64_t(1) << 26;

std::string_view trimmed(std::string_view line) {
  constexpr std::string_view kSpace = " \t\r";
  size_t begin = line.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(kSpace) - begin + 1);
}

std::vector<fs::path> listed(const fs::path& index, std::string_view lines) {
  std::vector<fs::path> prefixes;
  for (int number = 1; !lines.empty(); ++number) {
    size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = trimmed(lines.substr(0, end));
    if (line.find('\0') != std::string_view::npos) {  // no path of any system holds one
      throw Error(Status::kInvalid,
                  fmt::format("{}:{}: expected a prefix without the character \\0, found one that "
                              "holds it; write the list as plain text, one prefix a line",
                              index.string(), number));
    }
    if (!line.empty()) prefixes.push_back(index.parent_path() / line);
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return prefixes;
}

std::vector<fs::path> found(const fs::path& folder) {
  std::vector<fs::path> prefixes;
  for (const fs::directory_entry& entry : list_folder(folder)) {
    if (entry.path().extension() != ".idx" || !entry.is_regular_file()) continue;
    fs::path prefix = entry.path(), tokens = entry.path();
    prefix.replace_extension();
    if (path_exists(tokens.replace_extension(".bin"))) prefixes.push_back(prefix);
  }
  std::sort(prefixes.begin(), prefixes.end());
  return prefixes;
}

}  // namespace

std::vector<fs::path> memmap_prefixes(const fs::path& folder) {
  std::error_code code;
  if (!fs::is_directory(folder, code)) {
    throw Error(Status::kNotFound,
                fmt::format("expected a folder of .idx/.bin pairs, found none at {}; check the "
                            "path, or write type: memmap for one pair",
                            folder.string()));
  }
  const fs::path index = folder / "index.txt";
  const bool has_index = path_exists(index);
  std::vector<fs::path> prefixes =
      has_index ? listed(index, read_file(index, kMostIndexBytes)) : found(folder);
  if (prefixes.empty()) {
    throw Error(Status::kInvalid,
                fmt::format("expected {} in {}, found none; check the path",
                            has_index ? "prefixes, one a line," : ".idx/.bin pairs",
                            (has_index ? index : folder).string()));
  }
  return prefixes;
}

}  // namespace fastllm::data
