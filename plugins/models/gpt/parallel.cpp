#include "parallel.hpp"

#include <ATen/ops/scalar_tensor.h>
#include <fastllm/collectives.h>

#include "layers/layer.hpp"

namespace fastllm::gpt {
namespace {

const fastllm_collectives* table() {
  static const auto* found =
      sdk::host_pointer()
          ? static_cast<const fastllm_collectives*>(sdk::host().get(FASTLLM_COLLECTIVES))
          : nullptr;
  return found;
}

// A tensor as the contract has it; its shape and strides are those of the LibTorch tensor.
DLTensor borrowed(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  DLTensor result{};
  result.data = tensor.data_ptr();
  result.device = {kDLCPU, 0};
  result.ndim = int32_t(tensor.dim());
  result.dtype = type == at::kFloat      ? sdk::kFloat32
                 : type == at::kBFloat16 ? DLDataType{kDLBfloat, 16, 1}
                 : type == at::kHalf     ? DLDataType{kDLFloat, 16, 1}
                                         : sdk::kInt64;
  result.shape = const_cast<int64_t*>(tensor.sizes().data());
  result.strides = const_cast<int64_t*>(tensor.strides().data());
  return result;
}

void reduce(const char* group, int32_t op, const at::Tensor& values) {
  DLTensor inout = borrowed(values);
  sdk::check(table()->all_reduce(group, op, &inout, nullptr));
}

}  // namespace

void RankGroup::meet() {
  if (!table()) return;
  rank_ = table()->rank(name_);
  count_ = table()->count(name_);
}

void RankGroup::sum(const at::Tensor& values) const {
  if (!alone()) reduce(name_, FASTLLM_SUM, values);
}

void RankGroup::maximum(const at::Tensor& values) const {
  if (!alone()) reduce(name_, FASTLLM_MAX, values);
}

double RankGroup::sum(double value) const {
  if (alone()) return value;
  const at::Tensor one = at::scalar_tensor(value, at::kFloat);
  sum(one);
  return *one.const_data_ptr<float>();
}

at::Tensor RankGroup::gathered(const at::Tensor& rows) const {
  if (alone()) return rows;
  auto sizes = rows.sizes().vec();
  sizes[0] *= count_;
  const at::Tensor all = gpt::empty(sizes);
  gather(rows, all);
  return all;
}

void RankGroup::gather(const at::Tensor& rows, const at::Tensor& all) const {
  DLTensor in = borrowed(rows), out = borrowed(all);
  sdk::check(table()->all_gather(name_, &in, &out, nullptr));
}

void RankGroup::scatter_sum(const at::Tensor& all, const at::Tensor& own) const {
  if (alone()) {
    own.copy_(all);
    return;
  }
  DLTensor in = borrowed(all), out = borrowed(own);
  sdk::check(table()->reduce_scatter(name_, FASTLLM_SUM, &in, &out, nullptr));
}

at::Tensor TensorRegion::parts(const at::Tensor& y) const {
  return split_ ? empty({all_tokens(y.size(0)), y.size(1)}) : y;
}

void TensorRegion::leave(const at::Tensor& parts, const at::Tensor& y) const {
  if (split_)
    ranks_.scatter_sum(parts, y);
  else
    ranks_.sum(y);
}

}  // namespace fastllm::gpt
