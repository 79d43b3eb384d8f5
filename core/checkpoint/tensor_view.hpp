// A DLTensor over part of a flat state in host memory, with its shape. Does not move.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/tensor.hpp"

namespace fastllm::checkpoint {

class TensorView {
 public:
  TensorView(void* data, DLDataType dtype, std::vector<int64_t> shape)
      : shape_(std::move(shape)), strides_(row_major_strides(shape_)) {
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

}  // namespace fastllm::checkpoint
