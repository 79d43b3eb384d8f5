// One run of the program on a model: what a training and an evaluation have in common, from the
// command line to the parts of a trainer. Owns all of it, each thing made after those it needs; a
// command adds what it does with them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/host/job.hpp"
#include "apps/host/options.hpp"
#include "apps/host/running_job.hpp"
#include "core/checkpoint/lock.hpp"
#include "core/distributed/session.hpp"
#include "core/train/datasets/dataset_sources.hpp"
#include "core/train/metrics/run_directory.hpp"
#include "core/train/trainer.hpp"

namespace fastllm::host {

class Run {
 public:
  // What happens to the experiment's folder. A training holds it alone and writes its config.yaml;
  // an evaluation may go on beside one, in a run's folder of its own.
  enum class Kind { kTraining, kEvaluation };

  // Loads the plugin, resolves the configuration, sets up the log. When something is wrong, prints
  // what could be made out of the configuration before it throws: a wrong key is easier to see
  // beside the right ones.
  Run(Options options, std::string command_line);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Job& job() { return job_; }
  const train::Settings& settings() const { return job_.settings(); }

  void print_configuration();
  // What a user should know before the first step: old names, keys without effect, reduced offsets,
  // how work is kept.
  void tell_plan() const;

  // The work of a command on all ranks of the run, with one ending: what fails on one ends the others
  // with its sentence. Gives what body gives.
  int carry_out(const std::function<int()>& body);

  // Within carry_out(): meets the other ranks. Once.
  void join();
  train::Ranks ranks();  // after join()
  // After join(): from here on it leaves traces. Threads, the next run's folder if there is an
  // experiment, the log in it; prints configuration and plan. Once.
  void begin(Kind kind);
  train::RunDirectory* folder() { return folder_ ? &*folder_ : nullptr; }  // null: no experiment
  // After begin(). Without checkpoints. Borrows from this run.
  train::TrainerParts parts();

 private:
  void open_folder(Kind kind);
  std::shared_ptr<const data::SampledDataset> make_dataset(const std::string& name,
                                                           int64_t samples);

  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  // The groups of the session for plugins, from before the first is loaded until all have shut down.
  struct OfferedGroups {
    explicit OfferedGroups(const std::unique_ptr<distributed::Session>& session);
    ~OfferedGroups();
  };

  const Options options_;
  const std::string command_line_;
  std::unique_ptr<distributed::Session> session_;
  const OfferedGroups offered_{session_};
  Job job_;
  std::optional<checkpoint::ExperimentLock> lock_;
  std::optional<train::RunDirectory> folder_;
  std::optional<RunningJob> running_;
  std::optional<train::DatasetSources> sources_;
};

int exit_code(train::Outcome outcome);

// Throws ToldElsewhere with that code when another rank of the launch tells this problem.
void tell_once(const std::string& problem, int code);

// What a command does before it meets the other ranks, and may find wrong: the same on all of them, most
// often, which is then told by one. Gives what body gives.
template <class Body>
auto before_meeting(Body&& body) {
  try {
    return body();
  } catch (const UsageError& e) {
    tell_once(e.text, kBadUsage);
    throw;
  } catch (const Error& e) {
    tell_once(e.what(), kFailed);
    throw;
  }
}

}  // namespace fastllm::host
