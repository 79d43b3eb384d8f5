// Writes one rank's file, and on rank 0 metadata.yaml. Shards go from memory to the file as they
// are; parameters by name are put where the running job's layout has them. Never asks whether to
// stop: a stop is often the very reason of a save.
#pragma once

#include <fastllm/checkpoint_format.hpp>
#include <map>
#include <string>
#include <vector>

#include "layout.hpp"
#include "safetensors.hpp"

namespace fastllm::distributed {

class DistributedWriter : public sdk::Writer {
 public:
  DistributedWriter(const std::string& directory, sdk::Config metadata, int rank);
  void declare(const std::string& state, const sdk::Port& port) override;
  void write(const std::string& state, const std::string& name, const fastllm_box* box,
             const DLTensor& from) override;
  void write_shard(const std::string& state, const DLTensor& from) override;
  void finish(bool keep) override;

 private:
  struct State {
    DLDataType dtype{};
    int64_t elements = 0;
    bool by_name = false;
    StateMap map;                             // by name only
    int64_t written = 0;                      // elements
    std::map<std::string, int64_t> expected;  // by name only: elements of this rank still to come
  };
  State& declared(const std::string& state, DLDataType dtype);

  std::string directory_;
  sdk::Config metadata_;
  int rank_;
  SafetensorsWriter file_;
  std::map<std::string, State> states_;
};

}  // namespace fastllm::distributed
