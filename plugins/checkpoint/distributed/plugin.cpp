// libfastllm_distributed.so: the native checkpoint format, named flat shards by rank.
// The door only; what lies in the files is in README.md, how it is read and written in reader.cpp
// and writer.cpp.
#include <fastllm/checkpoint_format.hpp>

#include "file.hpp"
#include "reader.hpp"
#include "writer.hpp"

namespace fastllm::distributed {
namespace {

struct DistributedFormat {
  static constexpr const char* kType = "distributed";
  static constexpr uint32_t kCaps = FASTLLM_CAN_LOAD | FASTLLM_CAN_SAVE | FASTLLM_CAN_OPTIMIZER |
                                    FASTLLM_CAN_SLICE | FASTLLM_CAN_PARALLEL | FASTLLM_CAN_SHARDS;
  static constexpr int64_t kVersion = 1;  // the age of the layout that is written

  static void fields(const sdk::Sink&) {}  // no options of its own

  static int detect(const std::string& path) {
    if (!file_exists(path + "/metadata.yaml")) return 0;
    const std::string text = read_text(path + "/metadata.yaml", uint64_t(16) << 20);
    const bool named = text.find("\nformat: distributed\n") != std::string::npos ||
                       text.find("checkpoint_type: distributed\n") != std::string::npos;
    const bool shards = file_exists(path + "/rank_0.safetensors");
    return named ? (shards ? 100 : 60) : (shards ? 80 : 0);
  }

  static std::unique_ptr<sdk::Reader> open(const std::string& path, sdk::Config metadata) {
    return std::make_unique<DistributedReader>(path, metadata);
  }

  static std::unique_ptr<sdk::Writer> create(const std::string& directory, sdk::Config metadata,
                                             int rank) {
    return std::make_unique<DistributedWriter>(directory, metadata, rank);
  }
};

FASTLLM_MANIFEST(
    "abi=0\n"
    "id=fastllm.distributed\n"
    "version=0.1.0\n"
    "format=distributed\n"
    "caps=distributed:load,save,optimizer,slice,parallel,shards\n"
    "license=Apache-2.0\n");

const void* get(const char* id, int32_t index) {
  return index == 0 && std::string(id) == FASTLLM_FORMAT ? &sdk::format_table<DistributedFormat>
                                                         : nullptr;
}

constexpr fastllm_plugin kPlugin = {.size = sizeof(fastllm_plugin),
                                    .minor = FASTLLM_MINOR,
                                    .manifest = fastllm_manifest,
                                    .get = get,
                                    .shutdown = nullptr};

}  // namespace
}  // namespace fastllm::distributed

extern "C" const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* host) {
  return fastllm::sdk::entry(host, &fastllm::distributed::kPlugin);
}
