// One live run an experiment folder. The lock is the kernel's (flock), so it ends with its holder
// however that ends; the file that stays behind means nothing.
#pragma once

#include <filesystem>

namespace fastllm::checkpoint {

class ExperimentLock {
 public:
  // Makes the folder. Held by another process: Error that names its process number and host; there
  // is no waiting.
  explicit ExperimentLock(const std::filesystem::path& experiment_dir);
  ~ExperimentLock();
  ExperimentLock(const ExperimentLock&) = delete;
  ExperimentLock& operator=(const ExperimentLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace fastllm::checkpoint
