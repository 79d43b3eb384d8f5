// Small facts about tensors that several parts need: types and their names, row-major strides.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fastllm {

inline bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

inline constexpr DLDataType kFloat32{kDLFloat, 32, 1}, kFloat16{kDLFloat, 16, 1},
    kBfloat16{kDLBfloat, 16, 1};

inline bool is_float32(DLDataType type) { return same_dtype(type, kFloat32); }
// A type that models compute in.
inline bool is_compute_dtype(DLDataType type) {
  return is_float32(type) || same_dtype(type, kFloat16) || same_dtype(type, kBfloat16);
}

// By its name in configurations; nullopt: no type that models compute in.
inline std::optional<DLDataType> compute_dtype(std::string_view name) {
  if (name == "float32") return kFloat32;
  if (name == "bfloat16") return kBfloat16;
  if (name == "float16") return kFloat16;
  return std::nullopt;
}

// "bfloat16", as configurations spell it; what has no such name is told by its number.
inline std::string dtype_text(DLDataType type) {
  const char* kind = type.code == kDLFloat    ? "float"
                     : type.code == kDLBfloat ? "bfloat"
                     : type.code == kDLInt    ? "int"
                     : type.code == kDLUInt   ? "uint"
                                              : nullptr;
  const std::string bits = std::to_string(int(type.bits));
  if (!kind || type.lanes != 1)
    return "a " + bits + "-bit type (DLPack code " + std::to_string(int(type.code)) + ")";
  return kind + bits;
}

// In elements, one a dimension, as DLPack wants them for a contiguous tensor.
inline std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t k = shape.size(); k-- > 1;) strides[k - 1] = strides[k] * shape[k];
  return strides;
}

}  // namespace fastllm
