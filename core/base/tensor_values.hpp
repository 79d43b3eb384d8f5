// Reads a CPU tensor of any float or integer type and any strides as numbers, row by row: for logs
// and checks, not for arithmetic that must be fast.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fastllm {

class TensorValues {
 public:
  static bool can_read(const DLTensor& tensor);
  // Borrows the tensor and its data. One that it cannot read: Error(kUnsupported).
  explicit TensorValues(const DLTensor& tensor);
  int64_t size() const { return size_; }
  // index: row-major, in [0, size()).
  double operator[](int64_t index) const;
  // "[2, 0, 17]"
  std::string position(int64_t index) const;
  const std::vector<int64_t>& shape() const { return shape_; }
  const std::vector<int64_t>& strides() const { return strides_; }  // in elements

 private:
  const std::byte* data_;
  DLDataType dtype_;
  std::vector<int64_t> shape_, strides_;
  int64_t size_ = 1;
  bool dense_ = true;
};

}  // namespace fastllm
