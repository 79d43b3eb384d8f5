#include "apps/host/running_job.hpp"

#include "core/plugin/stage_tables.hpp"

namespace fastllm::host {

RunningJob::RunningJob(Job& job) {
  plugin::set_describer([&job](const config::Node& metadata) { return job.describe(metadata); });
}

RunningJob::~RunningJob() {
  plugin::set_running(nullptr, nullptr);
  plugin::set_describer({});
}

void RunningJob::memory_is(shard::Store& store) {
  plugin::set_running(&store.layout(), &store, store.rank());
}

}  // namespace fastllm::host
