// Bit for bit: float16 and bfloat16 widen without rounding, float64 rounds once.
#include "core/checkpoint/convert.hpp"

#include <cstring>

#include "core/base/error.hpp"
#include "core/base/half.hpp"

namespace fastllm::checkpoint {
namespace {

template <class T, class Convert>
void each(const void* from, int64_t count, float* to, Convert&& convert) {
  const char* bytes = static_cast<const char*>(from);
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, bytes + i * int64_t(sizeof(T)), sizeof(T));
    to[i] = convert(value);
  }
}

}  // namespace

bool can_convert_to_float32(DLDataType from) {
  if (from.lanes != 1) return false;
  if (from.code == kDLBfloat) return from.bits == 16;
  return from.code == kDLFloat && (from.bits == 16 || from.bits == 32 || from.bits == 64);
}

void convert_to_float32(const void* from, DLDataType type, int64_t count, float* to) {
  FASTLLM_ASSERT(can_convert_to_float32(type));
  if (type.code == kDLBfloat) return each<uint16_t>(from, count, to, from_bfloat16);
  if (type.bits == 16) return each<uint16_t>(from, count, to, from_float16);
  if (type.bits == 64) return each<double>(from, count, to, [](double v) { return float(v); });
  std::memcpy(to, from, size_t(count) * sizeof(float));
}

}  // namespace fastllm::checkpoint
