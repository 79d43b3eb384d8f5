// Drives one layer of plugins/models/gpt as the host does: binds memory, calls forward and
// backward, collects what was written. Buffers start as NaN, so that whatever a layer forgets to
// write is seen.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "config.hpp"
#include "layers/layer.hpp"

namespace fastllm::gpt::testing {

// Two blocks of width 24, 4 heads in 2 groups, feed-forward 40, vocabulary 37, at most 96 positions;
// no learning-rate scale is set. The rest as by default, without absolute positions.
GptConfig small_config();

// A DLTensor over a tensor's memory.
class Lent {
 public:
  explicit Lent(const at::Tensor& tensor)
      : tensor_(tensor), sizes_(tensor.sizes().vec()), strides_(tensor.strides().vec()) {
    raw_.data = tensor.data_ptr();
    raw_.device = {kDLCPU, 0};
    raw_.ndim = int32_t(sizes_.size());
    raw_.dtype = tensor.scalar_type() == at::kLong     ? DLDataType{kDLInt, 64, 1}
                 : tensor.scalar_type() == at::kInt    ? DLDataType{kDLInt, 32, 1}
                 : tensor.scalar_type() == at::kDouble ? DLDataType{kDLFloat, 64, 1}
                                                       : DLDataType{kDLFloat, 32, 1};
    raw_.shape = sizes_.data();
    raw_.strides = strides_.data();
  }
  Lent(Lent&&) = default;
  DLTensor* get() { return &raw_; }

 private:
  at::Tensor tensor_;
  std::vector<int64_t> sizes_, strides_;
  DLTensor raw_{};
};

using Named = std::map<std::string, at::Tensor>;

struct RunOptions {
  std::set<std::string> frozen = {};
  bool input_gradient = true;   // of the first input, when it is one of floats
  bool overwrite = true;        // false: add to gradients of 0.5
  bool logits = false;          // ask for a head's optional output
  bool output_gradient = true;  // false: the host passes null
  bool evaluation = false;
  uint64_t seed = 0;
};

struct RunResult {
  std::vector<at::Tensor> outputs;
  at::Tensor d_input;
  Named gradients;  // of trainable parameters
};

// Names and shapes of a layer's parameters and outputs, as it declares them.
struct Declared {
  std::vector<std::pair<std::string, std::vector<int64_t>>> parameters;
  struct Output {
    std::string name;
    std::vector<int64_t> shape;
    bool optional;
  };
  std::vector<Output> outputs;
};
Declared declared(const Layer& layer);

// Weights by name, shaped as declared; those of norms lie near 1, so that values stay ordinary.
Named random_weights(const Layer& layer);

// Binds, runs forward with SAVE and backward with the gradients of the outputs given (undefined:
// null).
RunResult run(Layer& layer, const Named& weights, const std::vector<at::Tensor>& inputs,
              const std::vector<at::Tensor>& d_outputs, const RunOptions& options = {});
// Forward alone, without SAVE.
std::vector<at::Tensor> run_forward(Layer& layer, const Named& weights,
                                    const std::vector<at::Tensor>& inputs, bool logits = false,
                                    const RunOptions& options = {});

// Norm of the difference over the norm of the expected; expected may be double.
double distance(const at::Tensor& actual, const at::Tensor& expected);

}  // namespace fastllm::gpt::testing
