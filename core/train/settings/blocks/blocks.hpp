// One function a block of the configuration: its values, and the rules inside it. They are called
// in the order of this list, which is that of messages.
#pragma once

#include "core/train/settings/blocks/reader.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

RunSettings read_run(Reader& reader);
MultiStageSettings read_multi_stage(Reader& reader);
DistributedSettings read_distributed(Reader& reader, const Environment& environment);
// Sizes that do not fit become problems, and stay null in the tree and 1 in the result.
BatchSettings read_batch(Reader& reader, const DistributedSettings& ranks);
TrainingSettings read_training(Reader& reader);
DataSettings read_data(Reader& reader);
OptimizerSettings read_optimizer(Reader& reader, const std::string& training_dtype);
TensorLogSettings read_tensor_logs(Reader& reader);
ProfilingSettings read_profiling(Reader& reader);
// Into the members of Settings that stand for it.
void read_schedule(Reader& reader, Settings& settings);
// Rules across blocks; of `training.export` and `pretrained`, which have no settings of their own
// yet.
void check_intervals(Reader& reader, const TrainingSettings& training);
void check_formats(Reader& reader);
void check_sizes(Reader& reader, const TrainingSettings& training, const BatchSettings& batch);

}  // namespace fastllm::train
