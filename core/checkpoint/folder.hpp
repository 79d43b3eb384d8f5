// Looking at folders. What the file system refuses becomes an Error that names path and reason,
// never an exception of the standard library; what is not there is no error.
#pragma once

#include <filesystem>
#include <vector>

namespace fastllm::checkpoint {

// Links are followed; not_found: nothing is there.
std::filesystem::file_type type_of(const std::filesystem::path& path);

// Names ascending; empty: nothing is there.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

}  // namespace fastllm::checkpoint
