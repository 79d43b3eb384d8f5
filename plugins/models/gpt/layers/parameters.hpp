// The parameters of one layer: declared once, bound to the host's memory, and the only way to their
// gradients. A gradient is written where it belongs: overwritten or added to as the call says, and
// not computed at all when frozen. Layers see float32 whatever the host's memory holds: weights and
// gradient buffers of 16 bits are copied for the time of a call.
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
  // Refuses other shapes than declared, or their parts on one of so many tensor ranks, and types
  // other than float32, bfloat16 and float16.
  void bind(const DLTensor* const* weights, DLTensor* const* gradients, int tensor_ranks = 1);

  // The weight, float32. A copy of a 16-bit one is made at its first use in a call.
  const at::Tensor& operator[](int index) const;
  // The weight as the host holds it, for those who read little of it.
  const at::Tensor& stored(int index) const { return bound_[size_t(index)].weight; }
  // False: frozen, or no training. Its gradient must not be computed.
  bool trainable(int index) const { return index >= 0 && bound_[size_t(index)].gradient.defined(); }
  // Where the gradient is written or added to, float32. In a backward call only.
  const at::Tensor& gradient(int index) const;

  // Around a call (model.cpp). Gradient buffers of 16 bits: before backward the copy that is
  // written or added to; after it, its rounded content.
  void open_gradients(const sdk::Call& call);
  void close_gradients();
  void drop_copies();

 private:
  struct Bound {
    at::Tensor weight, gradient;                    // the host's
    mutable at::Tensor wide_weight, wide_gradient;  // float32; undefined: the host's are, or none
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
  // The same for one of so many equal chunks of dimension 0; each chunk once in a call.
  void chunk_product(int index, int64_t chunk, int64_t chunks, const at::Tensor& left,
                     const at::Tensor& right) const;
  void no_chunk(int index, int64_t chunk, int64_t chunks) const;
  // gradient (=|+=) scale * values, of the same shape.
  void scaled(int index, const at::Tensor& values, double scale) const;
  // gradient (=|+=) sum over rows. rows [T, n] contiguous, gradient [n].
  void row_sum(int index, const at::Tensor& rows) const;
  // There is no gradient from this call: zeros when it was to be written.
  void none(int index) const;

 private:
  at::Tensor chunk_of(int index, int64_t chunk, int64_t chunks) const;

  const Parameters& parameters_;
  const sdk::Call& call_;
};

}  // namespace fastllm::gpt
