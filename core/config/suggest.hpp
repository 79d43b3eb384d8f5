// Names that were probably meant. Internal to core/config.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fastllm::config {

// Fewest insertions, deletions and replacements of bytes that turn one into the other.
size_t edit_distance(std::string_view a, std::string_view b);

// The closest candidate within 2 edits (the first of equals), but never one that shares nothing
// with the name; "": none.
std::string nearest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace fastllm::config
