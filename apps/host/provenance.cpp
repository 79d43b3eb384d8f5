#include "apps/host/provenance.hpp"

#include <omp.h>

#include "core/base/file.hpp"
#include "core/base/version.hpp"
#include "core/checkpoint/provenance.hpp"

namespace fastllm::host {

config::Node make_provenance(Job& job, const train::Datasets& datasets) {
  checkpoint::Provenance record;
  record.host_version = version_text();
  record.host_sha256 = sha256_file_hex("/proc/self/exe");
  record.threads = omp_get_max_threads();
  for (const auto& library : job.registry().loaded()) {
    record.libraries.push_back({library.id, library.version, library.path, library.sha256});
    for (const auto& need : library.needs) {
      if (need.starts_with("torch==")) record.libtorch = need.substr(7);
    }
  }
  record.data = config::Node::map();
  for (const auto& [name, dataset] : datasets) {
    config::Node lines = config::Node::list();
    for (const auto& line : dataset->fingerprints()) lines.append(config::Node::text(line));
    record.data.set_child(name, std::move(lines));
  }
  record.seed = int64_t(job.settings().distributed.seed);
  record.config = job.configuration();
  return record.to_node();
}

}  // namespace fastllm::host
