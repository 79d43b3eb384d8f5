// The pairs of a folder, for the deprecated dataset type concatenated_memmap.
#pragma once

#include <filesystem>
#include <vector>

namespace fastllm::data {

// Prefixes in the order of the folder's index.txt, one a line; without it, of all .idx/.bin pairs in
// the folder, by name. None: Error(kInvalid).
std::vector<std::filesystem::path> memmap_prefixes(const std::filesystem::path& folder);

}  // namespace fastllm::data
