// One micro-batch on its way through the layers of this rank, and the values it holds.
#pragma once

#include <cstdint>
#include <vector>

#include "core/data/batch.hpp"
#include "core/model/model.hpp"

namespace fastllm::train {

struct Held {                     // a Value of the wiring in one micro-batch
  DLTensor tensor{}, gradient{};  // share shape and strides; data null: not there
  std::vector<int64_t> shape, strides;
  int64_t bytes = 0, elements = 0;
  int uses = 0;  // who still needs the value; at 0 its memory goes back to the pool
};

struct Pass {
  const data::Batch* batch = nullptr;
  int64_t index = 0;
  int64_t samples = -1, length = -1;  // what the shapes were made for
  bool preprocessed = false;
  std::vector<Held> values;
  std::vector<model::Saved> saved;  // by layer; empty also when a layer needs none
  std::vector<char> kept;           // by layer: forward saved what backward needs
  std::vector<DLTensor> entries;    // by BatchEntry, then further labels
  int64_t batch_shape[2]{}, batch_strides[2]{}, cu_shape[1]{}, cu_strides[1]{1};
};

}  // namespace fastllm::train
