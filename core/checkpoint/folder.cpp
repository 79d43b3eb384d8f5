// Every call takes an error_code: a link that loops, a folder that may not be read and a disk that
// fails in the middle of a listing all end in one sentence.
#include "core/checkpoint/folder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "core/base/error.hpp"

namespace fastllm::checkpoint {

namespace fs = std::filesystem;

fs::file_type type_of(const fs::path& path) {
  std::error_code code;
  const fs::file_type type = fs::status(path, code).type();
  if (type != fs::file_type::none) return type;  // the code is set for not_found, too
  throw Error(Status::kUnavailable,
              fmt::format("cannot look at {}: {}; make it accessible, or move it away",
                          path.string(), code.message()));
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code code;
  fs::directory_iterator at(folder, code);
  if (code == std::errc::no_such_file_or_directory) return entries;
  for (; !code && at != fs::directory_iterator(); at.increment(code)) entries.push_back(at->path());
  if (code) {
    throw Error(Status::kUnavailable,
                fmt::format("cannot list the checkpoints in {}: {}; make it a folder that can be "
                            "read, or choose another run.experiment_dir",
                            folder.string(), code.message()));
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace fastllm::checkpoint
