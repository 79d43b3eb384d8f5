// The parameters of one layer: declared once, bound to the host's memory, and the only way to their
// gradients. A gradient is written where it belongs: overwritten or added to as the call says, and
// not computed at all when frozen.
#pragma once

#include <fastllm/model.hpp>
#include <fastllm/torch.hpp>

#include <vector>

namespace fastllm::gpt {

class Parameters {
 public:
  // Returns the parameter's number in the layer.
  int add(sdk::Parameter declaration);
  void describe(const sdk::Sink& sink) const;
  // Refuses shapes and types other than declared: float32, whole on this rank.
  void bind(const DLTensor* const* weights, DLTensor* const* gradients);

  const at::Tensor& operator[](int index) const { return bound_[size_t(index)].weight; }
  // False: frozen, or no training. Its gradient must not be computed.
  bool trainable(int index) const { return index >= 0 && bound_[size_t(index)].gradient.defined(); }
  const at::Tensor& gradient(int index) const { return bound_[size_t(index)].gradient; }

 private:
  struct Bound {
    at::Tensor weight, gradient;
  };
  std::vector<sdk::Parameter> declared_;
  std::vector<Bound> bound_;
};

// The gradients of one backward call.
class Gradients {
 public:
  Gradients(const Parameters& parameters, const sdk::Call& call)
      : parameters_(parameters), call_(call) {}

  bool wanted(int index) const { return parameters_.trainable(index); }
  bool overwrites(int index) const { return call_.overwrites(index); }
  const at::Tensor& operator[](int index) const { return parameters_.gradient(index); }

  // gradient (=|+=) scale * left^T right, straight into the host's buffer. left [T, m], right [T,
  // n], gradient [m, n].
  void product(int index, const at::Tensor& left, const at::Tensor& right, double scale = 1) const;
  // gradient (=|+=) scale * values, of the same shape.
  void scaled(int index, const at::Tensor& values, double scale) const;
  // gradient (=|+=) sum over rows. rows [T, n] contiguous, gradient [n].
  void row_sum(int index, const at::Tensor& rows) const;
  // There is no gradient from this call: zeros when it was to be written.
  void none(int index) const;

 private:
  const Parameters& parameters_;
  const sdk::Call& call_;
};

}  // namespace fastllm::gpt
