// The life of an evaluation without training: memory, weights, data, every validation set and the
// test set once (docs/users/command-line.md). One thread.
#pragma once

#include <cstdint>
#include <functional>

#include "core/shard/store.hpp"
#include "core/train/evaluator.hpp"
#include "core/train/trainer.hpp"

namespace fastllm::train {

// load: fills the weights and gives the iterations they were trained for: each set is evaluated as
// a training does it at that iteration, on the same samples. data_ready: called once with the data.
// Nothing to evaluate: Error(kInvalid).
Outcome run_evaluation(const TrainerParts& parts, const std::function<int64_t(shard::Store&)>& load,
                       const std::function<void(const Datasets&)>& data_ready);

}  // namespace fastllm::train
