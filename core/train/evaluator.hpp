// Forward-only steps on the validation sets and on the test set, within a training run or alone
// (docs/compatibility.md). One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "core/data/batch.hpp"
#include "core/data/loader.hpp"
#include "core/train/reporter.hpp"
#include "core/train/settings/settings.hpp"
#include "core/train/step_batches.hpp"
#include "core/train/tensor_log.hpp"
#include "core/train/workspace.hpp"

namespace fastllm::train {

// By phase_name or the name of a validation set.
using Datasets = std::map<std::string, std::shared_ptr<const data::SampledDataset>>;

// Ends the run when a rank reads other data than the rest.
void agree_on_datasets(const Datasets& datasets, const Ranks& ranks);

class Evaluator {
 public:
  struct Parts {
    const Settings& settings;
    Workspace& workspace;
    const Datasets& datasets;
    Reporter& reporter;
    Clock clock;
    int64_t vocab_size = 0;
    TensorLog* tensors = nullptr;  // null: none
    // Asked before each step whether to stop; null: never. One rank that is to stop stops all.
    std::function<bool()> stop = {};
  };
  explicit Evaluator(const Parts& parts) : parts_(parts) {}

  // Both give false when they were to stop; what was counted so far is dropped then.
  // A set by iterations goes on where its last evaluation stopped, the first one in this run
  // where Settings::first_validation_step says; a set by time begins again at its first sample.
  bool validate(const ValidationSet& set, int64_t iteration);
  // As metrics name it: "validation", "validation/NAME".
  static std::string phase(const ValidationSet& set);
  bool test(int64_t iteration);

 private:
  bool run(const std::string& phase, data::Loader& loader, int64_t steps, int64_t first_step,
           int64_t iteration);

  const Parts parts_;
  std::map<std::string, std::unique_ptr<data::Loader>> loaders_;  // by the set's name
};

}  // namespace fastllm::train
