// How large an output of a layer is: one rule for the memory that the executor takes and for what a
// plan foretells.
#pragma once

#include <fastllm/model.h>

#include <cstdint>
#include <optional>

#include "core/base/tensor.hpp"
#include "core/train/executor/wiring.hpp"

namespace fastllm::train {

// A described dimension in a micro-batch of so many samples of so many tokens.
inline int64_t extent(int64_t described, int64_t samples, int64_t length) {
  if (described == FASTLLM_DIM_BATCH) return samples;
  if (described == FASTLLM_DIM_SEQUENCE) return length;
  if (described == FASTLLM_DIM_TOKENS) return samples * length;
  return described;
}

// Losses and metrics are float32 in any training type.
inline DLDataType value_type(const Value& value, DLDataType training) {
  if (value.port->dtype.bits) return value.port->dtype;
  return value.loss >= 0 || value.metric >= 0 ? kFloat32 : training;
}

// nullopt: 2^63 or more.
inline std::optional<int64_t> value_bytes(const Value& value, int64_t samples, int64_t length,
                                          DLDataType training) {
  int64_t bytes = value_type(value, training).bits / 8;
  for (int64_t described : value.port->shape)
    if (__builtin_mul_overflow(bytes, extent(described, samples, length), &bytes)) return {};
  return bytes;
}

}  // namespace fastllm::train
