// The parameters as they lie in a flat state of this rank: for logs and checks.
#pragma once

#include <fastllm/plugin.h>

#include <string>
#include <vector>

#include "core/shard/store.hpp"

namespace fastllm::train {

struct ParameterView {
  int parameter = 0;  // of the description
  // Into the state, in its type: the parameter's own shape where this rank holds all of it, else
  // the part it holds, in one dimension.
  DLTensor tensor{};
  std::vector<int64_t> shape;  // what tensor.shape points to
};

// In the order of stages, and in a stage of the flat layout; copies of tied parameters left out.
// Borrow the store's memory. state: "weights", "grads", ...; what it has not is not there.
std::vector<ParameterView> parameter_views(shard::Store& store, const std::string& state);

}  // namespace fastllm::train
