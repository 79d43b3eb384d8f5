// First values of a store: weights as the model declares them, everything else and all padding
// zero. A weight depends on the seed, its parameter's name and its place in the global tensor, so
// any layout, world or number of threads gives the same model; tied copies on several ranks agree
// by themselves.
#pragma once

#include <cstdint>

#include "core/model/model.hpp"
#include "core/shard/store.hpp"

namespace fastllm::train {

// Writes the shards and invalidates the buffers. `model` is asked for parameters that it
// initialises itself.
void initialize(shard::Store& store, model::Model& model, uint64_t seed);

}  // namespace fastllm::train
