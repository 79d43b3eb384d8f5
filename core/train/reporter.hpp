// Where the numbers of an interval go: the log, the run's metrics.jsonl, and the checkpoint of the
// same iteration. One thread.
#pragma once

#include <string>

#include "core/train/metrics/memory.hpp"
#include "core/train/metrics/metrics.hpp"
#include "core/train/metrics/run_directory.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::train {

class Reporter {
 public:
  // run: null: nothing is written to a file.
  Reporter(const Settings& settings, RunDirectory* run) : settings_(settings), run_(run) {}

  // What every line says. phase: "training", "validation", "validation/NAME", "test". The peak of
  // memory counts from here on again.
  Metrics base(const std::string& phase, int64_t iteration);
  void publish(const Metrics& metrics);

  // By phase, what was published since clear(): for a checkpoint. Keys as the reference spells
  // them: "Training", "Validation", "Validation/NAME".
  const config::Node& published() const { return published_; }
  void clear() { published_ = config::Node::map(); }

  MemoryProbe memory;

 private:
  const Settings& settings_;
  RunDirectory* run_;
  config::Node published_ = config::Node::map();
};

}  // namespace fastllm::train
