// Strict UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fastllm {

// One character at `at`: its bytes, or, when invalid, the bytes that one replacement character
// stands for.
struct Utf8Step {
  size_t bytes;
  bool valid;
};
Utf8Step utf8_step(std::string_view text, size_t at);

// Offset of the first byte that is no UTF-8; npos: all valid.
size_t find_invalid_utf8(std::string_view text);

// The largest offset <= `at` that does not cut a valid character; at most 3 bytes before it.
size_t utf8_border_before(std::string_view text, size_t at);

// Invalid bytes become U+FFFD, as Python's errors="replace" does it.
std::string repair_utf8(std::string_view text);

}  // namespace fastllm
