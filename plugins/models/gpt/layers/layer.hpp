// One layer of the model as the host sees it: it declares ports and parameters, and computes
// forward and backward. Tensors are views of the host's memory, in the order of the ports;
// undefined where model.h allows null.
#pragma once

#include <memory>
#include <vector>

#include "layers/parameters.hpp"
#include "parallel.hpp"

namespace fastllm::gpt {

using Tensors = std::vector<at::Tensor>;

class Layer {
 public:
  virtual ~Layer() = default;

  virtual void describe_ports(const sdk::Sink& sink) const = 0;
  virtual int inputs() const = 0;
  virtual int outputs() const = 0;
  virtual double cost() const { return 1; }

  // Never touches inputs. Keeps nothing unless call.save().
  virtual sdk::SavedPointer forward(const sdk::Call& call, const Tensors& inputs,
                                    const Tensors& outputs) = 0;
  // d_outputs undefined: zero. d_inputs undefined: not wanted; others are written.
  virtual void backward(const sdk::Call& call, sdk::Saved& saved, const Tensors& d_outputs,
                        const Tensors& d_inputs) = 0;
  virtual sdk::Flops flops(int64_t batch, int64_t sequence) const = 0;

  // The ranks that share the layer's work; before bind. Without it the layer works alone. Borrowed.
  virtual void join(const Parallel& parallel) { parallel_ = &parallel; }

  Parameters parameters;

 protected:
  const Parallel& parallel() const { return *parallel_; }
  TensorRegion tensor_region(const sdk::Call& call) const {
    return TensorRegion(parallel_->tensor, call);
  }
  SamplePart sample_part(const sdk::Call& call) const {
    return SamplePart(parallel_->sequence_data, call);
  }

 private:
  static inline const Parallel kAlone;
  const Parallel* parallel_ = &kAlone;
};

// Hidden states between layers, [batch, sequence, hidden], in the compute type, or float32 in any.
// With sequence-tensor parallel ranks each has its part of the row of all tokens, [1, part, hidden].
inline sdk::Port hidden_port(int64_t hidden, bool full_precision) {
  return {.name = "hidden",
          .shape = {FASTLLM_DIM_BATCH, FASTLLM_DIM_SEQUENCE, hidden},
          .flags = FASTLLM_PORT_SPLIT,
          .dtype = full_precision ? sdk::kFloat32 : DLDataType{0, 0, 1}};
}
// tokens, labels, positions: int64 [batch, sequence] from the data loader.
inline sdk::Port batch_port(const std::string& name) {
  return {.name = name,
          .shape = {FASTLLM_DIM_BATCH, FASTLLM_DIM_SEQUENCE},
          .flags = FASTLLM_PORT_BATCH | FASTLLM_PORT_NO_GRAD,
          .dtype = sdk::kInt64};
}
// cu_seqlens: the ends of the attention ranges over all tokens, int32 [ranges + 1] from 0.
inline sdk::Port ranges_port() {
  return {.name = "cu_seqlens",
          .shape = {FASTLLM_DIM_ANY},
          .flags = FASTLLM_PORT_BATCH | FASTLLM_PORT_NO_GRAD,
          .dtype = sdk::kInt32};
}

// [batch, sequence, width] as [tokens, width].
inline at::Tensor flat(const at::Tensor& tensor) { return tensor.view({-1, tensor.size(-1)}); }

// New uninitialised float32 memory, from the host's cache of blocks: a step after the first takes
// nothing from the system. Without a host (tests of single layers) LibTorch's own.
at::Tensor empty(at::IntArrayRef sizes);
inline at::Tensor empty_as(const at::Tensor& tensor) { return empty(tensor.sizes()); }
// A float32 copy.
inline at::Tensor widened(const at::Tensor& tensor) { return empty_as(tensor).copy_(tensor); }
// The same numbers in float32: itself, or a copy of one of 16 bits.
inline bool is_narrow(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kBFloat16 || tensor.scalar_type() == at::kHalf;
}
inline at::Tensor in_float32(const at::Tensor& tensor) {
  return is_narrow(tensor) ? widened(tensor) : tensor;
}

// Every index in [0, limit), or `exempt`; otherwise an error that names the batch entry, the value
// and its place.
void check_indices(const at::Tensor& indices, const std::string& what, int64_t limit,
                   const std::string& limit_name, int64_t exempt);

// The declaration of a weight with the initial values and the learning-rate scale of its kind.
sdk::Parameter weight(const std::string& name, std::vector<int64_t> shape, const struct Init& init,
                      double lr_scale);
sdk::Parameter bias(const std::string& name, int64_t width, const struct Init& init, bool random,
                    double lr_scale);

}  // namespace fastllm::gpt
