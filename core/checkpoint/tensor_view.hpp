// A DLTensor over part of a flat state in host memory, with its shape. Does not move.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace fastllm::checkpoint {

class TensorView {
 public:
  TensorView(void* data, DLDataType dtype, std::vector<int64_t> shape)
      : shape_(std::move(shape)), strides_(shape_.size(), 1) {
    for (size_t k = shape_.size(); k-- > 1;) strides_[k - 1] = strides_[k] * shape_[k];
    tensor_.data = data;
    tensor_.device = {kDLCPU, 0};
    tensor_.dtype = dtype;
    tensor_.ndim = int32_t(shape_.size());
    tensor_.shape = shape_.data();
    tensor_.strides = strides_.data();
  }
  TensorView(const TensorView&) = delete;
  TensorView& operator=(const TensorView&) = delete;
  DLTensor* get() { return &tensor_; }

 private:
  std::vector<int64_t> shape_, strides_;
  DLTensor tensor_{};
};

inline bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

}  // namespace fastllm::checkpoint
