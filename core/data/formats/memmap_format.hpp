// What reader and writer of memory-mapped indices share (docs/compatibility.md).
#pragma once

#include <string_view>

namespace fastllm::data {

using namespace std::string_view_literals;
inline constexpr std::string_view kMemmapMagic = "MMIDIDX\0\0"sv;

}  // namespace fastllm::data
