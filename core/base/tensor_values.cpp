#include "core/base/tensor_values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>

#include "core/base/error.hpp"
#include "core/base/half.hpp"
#include "core/base/tensor.hpp"

namespace fastllm {
namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

bool readable(DLDataType type) {
  if (type.lanes != 1) return false;
  switch (type.code) {
    case kDLFloat:
      return type.bits == 16 || type.bits == 32 || type.bits == 64;
    case kDLBfloat:
      return type.bits == 16;
    case kDLInt:
    case kDLUInt:
      return type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64;
    case kDLBool:
      return type.bits == 8;
    default:
      return false;
  }
}

double read(DLDataType type, const std::byte* at) {
  switch (type.code) {
    case kDLFloat:
      return type.bits == 32   ? double(load<float>(at))
             : type.bits == 64 ? load<double>(at)
                               : double(from_float16(load<uint16_t>(at)));
    case kDLBfloat:
      return from_bfloat16(load<uint16_t>(at));
    case kDLInt:
      return type.bits == 64   ? double(load<int64_t>(at))
             : type.bits == 32 ? double(load<int32_t>(at))
             : type.bits == 16 ? double(load<int16_t>(at))
                               : double(load<int8_t>(at));
    default:
      return type.bits == 64   ? double(load<uint64_t>(at))
             : type.bits == 32 ? double(load<uint32_t>(at))
             : type.bits == 16 ? double(load<uint16_t>(at))
                               : double(load<uint8_t>(at));
  }
}

}  // namespace

bool TensorValues::can_read(const DLTensor& tensor) {
  return readable(tensor.dtype) && tensor.device.device_type == kDLCPU;
}

TensorValues::TensorValues(const DLTensor& tensor)
    : data_(static_cast<const std::byte*>(tensor.data) + tensor.byte_offset),
      dtype_(tensor.dtype),
      shape_(tensor.shape, tensor.shape + tensor.ndim) {
  if (!can_read(tensor)) {
    throw Error(
        Status::kUnsupported,
        fmt::format("expected a tensor of numbers in CPU memory, found {}{}", dtype_text(dtype_),
                    tensor.device.device_type == kDLCPU ? "" : " on another device"));
  }
  for (int64_t dim : shape_) size_ *= dim;
  strides_ = row_major_strides(shape_);
  if (!tensor.strides) return;
  const std::vector<int64_t> given(tensor.strides, tensor.strides + tensor.ndim);
  dense_ = given == strides_;
  strides_ = given;
}

double TensorValues::operator[](int64_t index) const {
  int64_t offset = index;
  if (!dense_) {
    offset = 0;
    for (size_t k = shape_.size(); k-- > 0; index /= shape_[k])
      offset += index % shape_[k] * strides_[k];
  }
  return read(dtype_, data_ + offset * (dtype_.bits / 8));
}

std::string TensorValues::position(int64_t index) const {
  std::vector<int64_t> at(shape_.size());
  for (size_t k = shape_.size(); k-- > 0; index /= shape_[k]) at[k] = index % shape_[k];
  return fmt::format("[{}]", fmt::join(at, ", "));
}

}  // namespace fastllm
