// Small facts about tensors that several parts need: equal types, row-major strides.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>
#include <vector>

namespace fastllm {

inline bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

inline bool is_float32(DLDataType type) { return same_dtype(type, {kDLFloat, 32, 1}); }

// In elements, one a dimension, as DLPack wants them for a contiguous tensor.
inline std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t k = shape.size(); k-- > 1;) strides[k - 1] = strides[k] * shape[k];
  return strides;
}

}  // namespace fastllm
