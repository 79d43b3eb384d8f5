// One decoder for all that reads text: data, configuration, messages.
#include "core/base/utf8.hpp"

#include <cstdint>
#include <cstring>

namespace fastllm {
namespace {

uint8_t byte_at(std::string_view text, size_t at) { return uint8_t(text[at]); }

}  // namespace

Utf8Step utf8_step(std::string_view text, size_t at) {
  uint8_t lead = byte_at(text, at);
  if (lead < 0x80) return {1, true};
  // How many bytes follow, and what the first of them may be: that is where overlong forms,
  // surrogates and too large numbers show.
  size_t more;
  uint8_t low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    more = 1;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    more = 2;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    more = 3;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i <= more; ++i, low = 0x80, high = 0xBF) {
    if (at + i >= text.size() || byte_at(text, at + i) < low || byte_at(text, at + i) > high)
      return {i, false};
  }
  return {more + 1, true};
}

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    // Eight ASCII bytes at a time: most text is little else.
    uint64_t word;
    if (at + sizeof(word) <= text.size()) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    Utf8Step step = utf8_step(text, at);
    if (!step.valid) return at;
    at += step.bytes;
  }
  return std::string_view::npos;
}

size_t utf8_border_before(std::string_view text, size_t at) {
  if (at >= text.size()) return text.size();
  for (size_t back = 1; back <= 3 && back <= at; ++back) {
    Utf8Step step = utf8_step(text, at - back);
    if (step.valid && step.bytes > back) return at - back;
  }
  return at;
}

std::string repair_utf8(std::string_view text) {
  std::string repaired;
  repaired.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    Utf8Step step = utf8_step(text, at);
    if (step.valid) {
      repaired.append(text.substr(at, step.bytes));
    } else {
      repaired.append("\xEF\xBF\xBD");
    }
    at += step.bytes;
  }
  return repaired;
}

}  // namespace fastllm
