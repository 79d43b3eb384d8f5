// While it lives, checkpoint formats may ask where the running job's memory lies, and what another
// configuration describes.
#pragma once

#include "apps/host/job.hpp"
#include "core/shard/store.hpp"

namespace fastllm::host {

class RunningJob {
 public:
  explicit RunningJob(Job& job);
  ~RunningJob();
  RunningJob(const RunningJob&) = delete;
  RunningJob& operator=(const RunningJob&) = delete;
  void memory_is(shard::Store& store);
};

}  // namespace fastllm::host
