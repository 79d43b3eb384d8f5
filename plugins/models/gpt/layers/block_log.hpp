// What transformer.debug_transformer and debug_transformer_memory show: a log line for each tensor
// inside a block. Silent, and free of cost, by default.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "config.hpp"

namespace fastllm::gpt {

class BlockLog {
 public:
  // prefix: "layers.1".
  BlockLog(const GptConfig& config, const std::string& prefix)
      : prefix_(prefix), level_(config.debug_level), memory_(config.debug_memory) {}

  // what: "mlp output", "gradient of norm_1 output". Level 1 shows the shape, 2 mean and deviation
  // too, from 3 on also 2^(level - 3) values, equally spaced. Undefined tensors: only memory.
  void operator()(const char* what, const at::Tensor& tensor) const {
    if (level_ > 0 || memory_) write(what, tensor);
  }

 private:
  void write(const char* what, const at::Tensor& tensor) const;

  std::string prefix_;
  int64_t level_;
  bool memory_;
};

}  // namespace fastllm::gpt
