// Binding and gradient products of a layer's parameters. The overwrite flag decides beta of the
// product, so a gradient buffer is never filled with zeros first.
#include "layers/parameters.hpp"

#include <ATen/ops/mul.h>
#include <ATen/ops/scalar_tensor.h>

#include "kernels/row_sum.hpp"
#include "layers/layer.hpp"
#include "layers/product.hpp"

namespace fastllm::gpt {
namespace {

std::string shape_text(const int64_t* sizes, size_t dims) {
  std::string text = "[";
  for (size_t i = 0; i < dims; ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

at::Tensor checked_view(const DLTensor& tensor, const sdk::Parameter& declared, const char* what,
                        int tensor_ranks) {
  const at::ScalarType type = sdk::scalar_type(tensor.dtype);
  if (type != at::kFloat && type != at::kBFloat16 && type != at::kHalf) {
    sdk::fail(FASTLLM_UNSUPPORTED, declared.name + ": expected a float32, bfloat16 or float16 " +
                                       what + ", found " + sdk::dtype_name(tensor.dtype) +
                                       "; set model.distributed.training_dtype to one of them");
  }
  const auto dims = static_cast<size_t>(tensor.ndim);
  std::vector<int64_t> local = declared.shape;
  const bool divided = declared.shard_group == "tensor" && tensor_ranks > 1;
  if (divided) local[size_t(declared.shard_dim)] /= tensor_ranks;
  if (!std::equal(local.begin(), local.end(), tensor.shape, tensor.shape + dims)) {
    sdk::fail(FASTLLM_UNSUPPORTED,
              declared.name + ": expected " + (divided ? "a part of the " : "the whole ") + what +
                  " " + shape_text(local.data(), local.size()) + ", found " +
                  shape_text(tensor.shape, dims) + "; gpt divides what it declares over the " +
                  std::to_string(tensor_ranks) + " ranks of the group tensor, and nothing else");
  }
  return sdk::view(tensor);
}

}  // namespace

int Parameters::add(sdk::Parameter declaration) {
  declared_.push_back(std::move(declaration));
  return int(declared_.size()) - 1;
}

void Parameters::describe(const sdk::Sink& sink) const {
  for (const auto& parameter : declared_) sink.parameter(parameter);
}

void Parameters::bind(const DLTensor* const* weights, DLTensor* const* gradients,
                      int tensor_ranks) {
  std::vector<Bound> bound(declared_.size());
  for (size_t i = 0; i < bound.size(); ++i) {
    bound[i].weight = checked_view(*weights[i], declared_[i], "weight", tensor_ranks);
    if (gradients && gradients[i])
      bound[i].gradient = checked_view(*gradients[i], declared_[i], "gradient", tensor_ranks);
  }
  bound_ = std::move(bound);
}

const at::Tensor& Parameters::operator[](int index) const {
  const Bound& bound = bound_[size_t(index)];
  if (bound.weight.scalar_type() == at::kFloat) return bound.weight;
  if (!bound.wide_weight.defined()) bound.wide_weight = widened(bound.weight);
  return bound.wide_weight;
}

const at::Tensor& Parameters::gradient(int index) const {
  const Bound& bound = bound_[size_t(index)];
  return bound.wide_gradient.defined() ? bound.wide_gradient : bound.gradient;
}

void Parameters::open_gradients(const sdk::Call& call) {
  for (size_t i = 0; i < bound_.size(); ++i) {
    Bound& bound = bound_[i];
    if (!bound.gradient.defined() || bound.gradient.scalar_type() == at::kFloat) continue;
    bound.wide_gradient =
        call.overwrites(int(i)) ? empty(bound.gradient.sizes()) : widened(bound.gradient);
  }
}

void Parameters::close_gradients() {
  for (Bound& bound : bound_)
    if (bound.wide_gradient.defined()) bound.gradient.copy_(bound.wide_gradient);
}

void Parameters::drop_copies() {
  for (Bound& bound : bound_) {
    bound.wide_weight.reset();
    bound.wide_gradient.reset();
  }
}

void Gradients::product(int index, const at::Tensor& left, const at::Tensor& right,
                        double scale) const {
  if (!wanted(index)) return;
  gpt::product(left.t(), right, !overwrites(index), parameters_.gradient(index), scale);
}

at::Tensor Gradients::chunk_of(int index, int64_t chunk, int64_t chunks) const {
  const at::Tensor& gradient = parameters_.gradient(index);
  const int64_t rows = gradient.size(0) / chunks;
  return gradient.narrow(0, chunk * rows, rows);
}

void Gradients::chunk_product(int index, int64_t chunk, int64_t chunks, const at::Tensor& left,
                              const at::Tensor& right) const {
  if (wanted(index))
    gpt::product(left.t(), right, !overwrites(index), chunk_of(index, chunk, chunks));
}

void Gradients::no_chunk(int index, int64_t chunk, int64_t chunks) const {
  if (wanted(index) && overwrites(index)) chunk_of(index, chunk, chunks).zero_();
}

void Gradients::scaled(int index, const at::Tensor& values, double scale) const {
  if (!wanted(index)) return;
  at::Tensor gradient = parameters_.gradient(index);
  if (overwrites(index))
    at::mul_out(gradient, values, at::scalar_tensor(scale, values.options()));
  else
    gradient.add_(values, scale);
}

void Gradients::row_sum(int index, const at::Tensor& rows) const {
  if (!wanted(index)) return;
  gpt::row_sum(rows.const_data_ptr<float>(), rows.size(0), rows.size(1), overwrites(index),
               parameters_.gradient(index).mutable_data_ptr<float>());
}

void Gradients::none(int index) const {
  if (wanted(index) && overwrites(index)) parameters_.gradient(index).zero_();
}

}  // namespace fastllm::gpt
