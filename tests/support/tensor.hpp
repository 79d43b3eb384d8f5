// A tensor in memory of its own, seen as a DLTensor; what the host lends to plugins.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <vector>

namespace fastllm::testing {

template <class T>
constexpr DLDataType dtype_of() {
  if constexpr (std::is_same_v<T, float>) return {kDLFloat, 32, 1};
  if constexpr (std::is_same_v<T, double>) return {kDLFloat, 64, 1};
  if constexpr (std::is_same_v<T, int64_t>) return {kDLInt, 64, 1};
  if constexpr (std::is_same_v<T, int32_t>) return {kDLInt, 32, 1};
}

template <class T>
class Tensor {
 public:
  explicit Tensor(std::vector<int64_t> shape, std::vector<T> values = {})
      : shape_(std::move(shape)), strides_(shape_.size(), 1), values_(std::move(values)) {
    for (size_t i = shape_.size(); i-- > 1;) strides_[i - 1] = strides_[i] * shape_[i];
    values_.resize(
        size_t(std::accumulate(shape_.begin(), shape_.end(), int64_t(1), std::multiplies<>())));
    view_.data = values_.data();
    view_.device = {kDLCPU, 0};
    view_.ndim = int32_t(shape_.size());
    view_.dtype = dtype_of<T>();
    view_.shape = shape_.data();
    view_.strides = strides_.data();
  }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  DLTensor* view() { return &view_; }
  std::vector<T>& values() { return values_; }
  T& operator[](size_t i) { return values_[i]; }
  size_t size() const { return values_.size(); }
  const std::vector<int64_t>& shape() const { return shape_; }

 private:
  std::vector<int64_t> shape_, strides_;
  std::vector<T> values_;
  DLTensor view_{};
};

}  // namespace fastllm::testing
