// Sentences from pieces: cat("expected ", 3, " bytes"). Integers with thousands separators:
// grouped(n). std::format is not in every compiler we support yet.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>

namespace fastllm::distributed {

template <class... Pieces>
std::string cat(const Pieces&... pieces) {
  std::ostringstream stream;
  (stream << ... << pieces);
  return stream.str();
}

// 4976698672 -> "4,976,698,672"
inline std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value);
  for (size_t i = digits.size(); i > 3;) digits.insert(i -= 3, 1, ',');
  return digits;
}

}  // namespace fastllm::distributed
