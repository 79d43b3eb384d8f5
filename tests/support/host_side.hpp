// Memory of a side that works on the processor (kernel_cases.hpp).
#pragma once

#include <memory>
#include <vector>

#include "core/base/half.hpp"
#include "core/base/tensor.hpp"

namespace fastllm::testing {

class HostSide {
 public:
  using Element = float;
  // type: what input values are rounded to, as they would be on a device that computes in it.
  explicit HostSide(DLDataType type = kFloat32) : type_(type) {}

  float* values(std::vector<float> numbers) {
    for (float& number : numbers) {
      if (same_dtype(type_, kBfloat16)) number = from_bfloat16(to_bfloat16(number));
      if (same_dtype(type_, kFloat16)) number = from_float16(to_float16(number));
    }
    return put(std::move(numbers));
  }
  template <class T>
  T* put(std::vector<T> data) {
    auto kept = std::make_shared<std::vector<T>>(std::move(data));
    memory_.push_back(kept);
    return kept->data();
  }
  template <class T>
  std::vector<double> take(const T* memory, size_t count) const {
    return {memory, memory + count};
  }

 private:
  DLDataType type_;
  std::vector<std::shared_ptr<void>> memory_;
};

}  // namespace fastllm::testing
