// Numbers in a mapped file, wherever they lie; little-endian, as token_type.cpp asserts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace fastllm::data {

template <class T>
T load(const std::byte* base, int64_t index = 0) {
  T value;
  std::memcpy(&value, base + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

}  // namespace fastllm::data
