// Notices a plugin that writes into the tensor descriptions it was lent instead of into their data.
// A few hash steps a tensor; no allocation up to kInline tensors.
#pragma once

#include <dlpack/dlpack.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace fastllm::plugin {

inline uint64_t fingerprint(const DLTensor* tensor) noexcept {
  if (!tensor) return 0;
  uint64_t hash = 0xcbf29ce484222325u;
  auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  add(reinterpret_cast<uintptr_t>(tensor->data));
  add(uint64_t(tensor->device.device_type) << 32 | uint32_t(tensor->device.device_id));
  add(uint64_t(tensor->ndim) << 32 | uint64_t(tensor->dtype.code) << 24 |
      uint64_t(tensor->dtype.bits) << 16 | tensor->dtype.lanes);
  add(tensor->byte_offset);
  add(reinterpret_cast<uintptr_t>(tensor->shape));
  add(reinterpret_cast<uintptr_t>(tensor->strides));
  for (int32_t i = 0; i < tensor->ndim; ++i) {
    add(uint64_t(tensor->shape[i]));
    if (tensor->strides) add(uint64_t(tensor->strides[i]));
  }
  return hash | 1;
}

class TensorGuard {
 public:
  explicit TensorGuard(std::span<DLTensor* const> tensors) : tensors_(tensors) {
    uint64_t* into = inline_.data();
    if (tensors.size() > kInline) {
      more_.resize(tensors.size());
      into = more_.data();
    }
    for (size_t i = 0; i < tensors.size(); ++i) into[i] = fingerprint(tensors[i]);
  }
  // Number of the first tensor whose description is not as it was; -1: all are.
  int changed() const noexcept {
    const uint64_t* before = more_.empty() ? inline_.data() : more_.data();
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i] && fingerprint_is_unsafe(tensors_[i])) return int(i);
      if (fingerprint(tensors_[i]) != before[i]) return int(i);
    }
    return -1;
  }

 private:
  static constexpr size_t kInline = 16;
  // A dimension count that was overwritten must not lead the check itself astray.
  static bool fingerprint_is_unsafe(const DLTensor* tensor) noexcept {
    return tensor->ndim < 0 || tensor->ndim > 64 || (tensor->ndim > 0 && !tensor->shape);
  }
  std::span<DLTensor* const> tensors_;
  std::array<uint64_t, kInline> inline_;
  std::vector<uint64_t> more_;
};

}  // namespace fastllm::plugin
