// Reads a checkpoint of any rank count: whole flat shards of one rank, or any box of any parameter
// by name. Ages: `state_shard` in the rank files is age 0, named shards age 1, parameter names of
// later releases age 2 (README.md).
#pragma once

#include <fastllm/checkpoint_format.hpp>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "layout.hpp"
#include "metadata.hpp"
#include "safetensors.hpp"

namespace fastllm::distributed {

class DistributedReader : public sdk::Reader {
 public:
  DistributedReader(const std::string& path, sdk::Config metadata);
  const fastllm_world* world() override;
  void list(const sdk::Sink& sink) override;
  void read(const std::string& state, const std::string& name, const fastllm_box* box,
            const DLTensor& into) override;
  void read_shard(int rank, const std::string& state, const DLTensor& into) override;

 private:
  // A rank's state inside its file: a tensor, or a row of one.
  struct Flat {
    const SafetensorsReader* file;
    const TensorEntry* tensor;
    int64_t first, count;
  };
  // Part of a flat state kept for many small reads.
  struct Window {
    int rank = -1;
    std::string state;
    int64_t first = 0, count = 0;
    std::vector<char> bytes;
  };

  std::string rank_path(int rank) const;
  const SafetensorsReader& file(int rank);
  Flat flat(int rank, const std::string& state);
  const StateMap& map(const std::string& state);
  // `to` has room for `count` elements of `type`; a file that holds another is refused.
  void read_flat(int rank, const std::string& state, int64_t first, int64_t count,
                 const DtypeName* type, char* to);
  void check_ranks_present() const;

  std::string path_;
  sdk::Config metadata_;
  Header header_;
  int age_ = 1;
  std::unique_ptr<sdk::DescribedWorld> world_;
  std::set<std::string> frozen_;  // age 0: what its single group cannot tell
  std::map<std::string, StateMap> maps_;
  std::map<int, std::unique_ptr<SafetensorsReader>> files_;
  Window window_;
};

}  // namespace fastllm::distributed
