// fastllm/torch.hpp - DLTensor as at::Tensor and what a call needs around LibTorch. Apart from
// plugin.hpp because it is the only header of the SDK that sees LibTorch (target
// fastllm::sdk_torch). Views never own and never copy: they live as long as the host says the
// DLTensor's memory does (model.h: inputs and outputs for the call, bound weights until the next
// bind).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <fastllm/plugin.hpp>

namespace fastllm::sdk {

// "float32", "int64", ... of a DLPack type, for messages.
inline std::string dtype_name(DLDataType type) {
  const char* kind = type.code == kDLFloat    ? "float"
                     : type.code == kDLInt    ? "int"
                     : type.code == kDLUInt   ? "uint"
                     : type.code == kDLBfloat ? "bfloat"
                     : type.code == kDLBool   ? "bool"
                                              : nullptr;
  if (!kind)
    return "DLPack type " + std::to_string(type.code) + " of " + std::to_string(type.bits) +
           " bits";
  return type.code == kDLBool ? kind : kind + std::to_string(type.bits);
}

inline at::ScalarType scalar_type(DLDataType type) {
  if (type.lanes == 1) {
    switch (type.code * 256 + type.bits) {
      case kDLFloat * 256 + 64:
        return at::kDouble;
      case kDLFloat * 256 + 32:
        return at::kFloat;
      case kDLFloat * 256 + 16:
        return at::kHalf;
      case kDLBfloat * 256 + 16:
        return at::kBFloat16;
      case kDLInt * 256 + 64:
        return at::kLong;
      case kDLInt * 256 + 32:
        return at::kInt;
      case kDLUInt * 256 + 8:
        return at::kByte;
      case kDLBool * 256 + 8:
        return at::kBool;
    }
  }
  fail(FASTLLM_UNSUPPORTED,
       "expected a tensor type that LibTorch knows, found " + dtype_name(type));
}

inline c10::Device device_of(const DLTensor& tensor) {
  switch (tensor.device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:
      return c10::Device(c10::kCPU);
    case kDLCUDA:
      return c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(tensor.device.device_id));
    default:
      fail(FASTLLM_UNSUPPORTED, "expected a tensor on CPU or CUDA, found DLPack device type " +
                                    std::to_string(tensor.device.device_type));
  }
}

// The same memory as a LibTorch tensor. Nothing is copied and nothing is freed with it.
inline at::Tensor view(const DLTensor& tensor) {
  const auto dims = static_cast<size_t>(tensor.ndim);
  const at::IntArrayRef sizes(tensor.shape, dims);
  const auto options =
      at::TensorOptions().dtype(scalar_type(tensor.dtype)).device(device_of(tensor));
  void* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  if (!tensor.strides) return at::from_blob(data, sizes, options);
  return at::from_blob(data, sizes, at::IntArrayRef(tensor.strides, dims), options);
}
inline at::Tensor view_or_undefined(const DLTensor* tensor) {
  return tensor ? view(*tensor) : at::Tensor();
}

// Around every call of a plugin that writes its own gradients: no autograd, no version counters, no
// dispatch to either. A plugin that lets autograd do the work uses c10::AutoGradMode instead (on in
// forward with SAVE) and never this one.
class ComputeGuard {
  c10::InferenceMode mode_;
};

}  // namespace fastllm::sdk
