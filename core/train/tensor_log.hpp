// Statistics and samples of weights, gradients and activations, at a chosen level of detail: for
// people, and for comparing two runs tensor by tensor (docs/users/training.md). One thread.
//
// A step's records are one file, artifacts/RANK/tensor_logs_STEP.safetensors: a float32 tensor of
// samples for each record that has some, under the record's name (the n-th of equal names ends in
// "#n"), and in the header's metadata, under "records", a JSON list with everything else.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config/node.hpp"
#include "core/model/description.hpp"
#include "core/shard/store.hpp"
#include "core/train/executor/observer.hpp"
#include "core/train/metrics/run_directory.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

struct TensorRecord {
  std::string name, dtype, device;
  std::vector<int64_t> shape;
  // Level 2 and up. deviation: with n - 1; nan for one element.
  std::optional<double> mean, deviation;
  std::vector<int64_t> stride;
  // Level 3 and up: each step-th element of the flattened tensor, and the bounds of all.
  std::optional<double> minimum, maximum;
  int64_t step = 0;
  std::vector<float> samples;
};

// level 1: name, shape, type; 2: also mean, deviation and strides; L from 3: also 2^(L - 3)
// samples.
// A type that holds no plain numbers stays at level 1.
TensorRecord make_record(const std::string& name, const DLTensor& tensor, int level);
// How far samples lie apart, so that there are about so many and they do not all come from one
// column.
int64_t sample_step(const std::vector<int64_t>& shape, int64_t samples);
// One line; at most max_elements samples.
std::string shown(const TensorRecord& record, int64_t max_elements);
// The bytes of the file.
std::string tensor_log_file(const std::vector<TensorRecord>& records);

class TensorLog : public Observer {
 public:
  // run: null: nothing is written. Without a place to go or a level, it asks for nothing.
  TensorLog(const Settings& settings, const model::Description& description, RunDirectory* run);

  // Outputs of layers and their gradients; level 0 of the settings: none. The memory of activations
  // is that of a step without a log: nothing is made for its sake.
  Wants wants(const Output& what) const override;
  void see(const Seen& seen) override;

  void initial_parameters(shard::Store& store);  // debug_param_init
  void gradients(shard::Store& store);           // after the reductions of a step
  void updated_parameters(shard::Store& store);  // debug_param_update

  // Ends a step ("init", "train_7", "validation_100_2"): writes what it has.
  void save(const std::string& step);

 private:
  void add(const std::string& name, const DLTensor& tensor, int64_t level);
  void parameters(shard::Store& store, const std::string& state, const std::string& what,
                  int64_t level);

  TensorLogSettings::Levels levels_;
  const bool show_, memory_;
  const int64_t max_elements_;
  const int64_t micro_batches_;  // of a step
  const std::string scope_;      // "Global": all of a tensor and asked for; "Local"
  RunDirectory* run_;
  const model::Description& description_;
  std::vector<TensorRecord> records_;
};

}  // namespace fastllm::train
