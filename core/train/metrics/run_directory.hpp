// Folders of an experiment (docs/compatibility.md): configuration at the top, one numbered folder a run below runs/.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/config/node.hpp"

namespace fastllm::train {

class RunDirectory {
 public:
  // Makes the experiment folder and the next run's; the log file is opened by the caller with
  // log::set_file(log_file()).
  explicit RunDirectory(const std::filesystem::path& experiment, int world_size = 1);
  // Of another rank than 0: the run that rank 0 made. Error when it is not there.
  RunDirectory(const std::filesystem::path& experiment, int world_size, int rank, int number);

  const std::filesystem::path& experiment() const { return experiment_; }
  const std::filesystem::path& run() const { return run_; }
  int number() const { return number_; }
  std::filesystem::path log_file() const;      // runs/n/logs/logs_rank_0.txt
  std::filesystem::path metrics_file() const;  // runs/n/metrics.jsonl
  // runs/n/artifacts/RANK/NAME, complete or absent; logs it.
  void write_artifact(const std::string& name, std::string_view content) const;
  // Rank 0. Appends one object; every line is on the disk's way when this returns (flushed, not synced).
  void write_metrics(const config::Node& object);

 private:
  std::filesystem::path experiment_, run_;
  int number_ = 0, rank_ = 0, world_size_ = 1;
  std::ofstream metrics_;
};

}  // namespace fastllm::train
