// What a training and an evaluation have in common on the host's side: what is printed, the run's
// folder, and where the parts of a trainer come from.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "apps/host/job.hpp"
#include "core/config/node.hpp"
#include "core/shard/store.hpp"
#include "core/train/metrics/run_directory.hpp"
#include "core/train/trainer.hpp"

namespace fastllm::host {

void print_configuration(Job& job, const std::string& command_line, int verbosity);
// Resolves the job, and sets up the log as it says. When something is wrong, prints what could be made
// out of the configuration before it throws: a wrong key is easier to see beside the right ones.
void resolve(Job& job, const std::string& command_line, int verbosity);
// What a user should know before the first step: old names, keys without effect, reduced offsets,
// how work is kept.
void tell_plan(Job& job);

// The next run's folder below run.experiment_dir, if there is one, with configuration and log; then
// prints configuration and plan. writes_experiment: the experiment's own config.yaml is replaced.
std::optional<train::RunDirectory> open_run_folder(Job& job, const std::string& command_line,
                                                   int verbosity, bool writes_experiment);

config::Node make_provenance(Job& job, const train::Datasets& datasets);
// What a checkpoint keeps of the configuration: the model's part, at verbosity 0.
config::Node checkpoint_configuration(Job& job);

// Checkpoint formats may ask where the running job lies, and what another configuration describes,
// while this lives.
class RunningJob {
 public:
  explicit RunningJob(Job& job);
  ~RunningJob();
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;
  void memory_is(shard::Store& store);
};

// Without checkpoints. started: when the program began. Borrows job and run.
train::TrainerParts trainer_parts(Job& job, train::RunDirectory* run,
                                  std::chrono::steady_clock::time_point started);

}  // namespace fastllm::host
