// What the layers share: checked indices and the declaration of weights and biases.
#include "layers/layer.hpp"

#include <ATen/ops/empty.h>

#include <cmath>

#include "config.hpp"

namespace fastllm::gpt {

at::Tensor empty(at::IntArrayRef sizes) {
  const auto options = at::TensorOptions().dtype(at::kFloat);
  if (!sdk::host_pointer()) return at::empty(sizes, options);
  DLTensor like{};
  like.device = {kDLCPU, 0};
  like.dtype = sdk::kFloat32;
  like.ndim = int32_t(sizes.size());
  like.shape = const_cast<int64_t*>(sizes.data());
  DLManagedTensorVersioned* managed = nullptr;
  sdk::check(sdk::host().alloc(&like, nullptr, &managed));
  return at::from_blob(
      managed->dl_tensor.data, sizes, [managed](void*) { managed->deleter(managed); }, options);
}

void check_indices(const at::Tensor& indices, const std::string& what, int64_t limit,
                   const std::string& limit_name, int64_t exempt) {
  const int64_t* values = indices.const_data_ptr<int64_t>();
  const int64_t count = indices.numel(), sequence = indices.size(-1);
  for (int64_t i = 0; i < count; ++i) {
    if ((values[i] >= 0 && values[i] < limit) || values[i] == exempt) continue;
    sdk::fail(FASTLLM_INVALID, what + ": expected values from 0 to below " + std::to_string(limit) +
                                   " (" + limit_name + "), found " + std::to_string(values[i]) +
                                   " at sample " + std::to_string(i / sequence) + ", position " +
                                   std::to_string(i % sequence) + " of the micro-batch; raise " +
                                   limit_name + " or check the dataset");
  }
}

sdk::Parameter weight(const std::string& name, std::vector<int64_t> shape, const Init& init,
                      double lr_scale) {
  sdk::Parameter parameter;
  parameter.name = name;
  parameter.shape = std::move(shape);
  parameter.init = FASTLLM_INIT_NORMAL;
  parameter.init_b = init.deviation;
  parameter.init_min = init.minimum;
  parameter.init_max = init.maximum;
  if (!std::isnan(lr_scale)) parameter.lr_scales = {lr_scale};
  return parameter;
}

sdk::Parameter bias(const std::string& name, int64_t width, const Init& init, bool random,
                    double lr_scale) {
  auto parameter = weight(name, {width}, init, lr_scale);
  if (!random) {
    parameter.init = FASTLLM_INIT_ZEROS;
    parameter.init_b = 0;
    parameter.init_min = parameter.init_max = std::nan("");
  }
  parameter.weight_decay = 0;
  return parameter;
}

}  // namespace fastllm::gpt
