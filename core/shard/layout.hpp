// The flat layout: which parameter lies where, for any rank of any world. Pure arithmetic: no
// memory, no files, no LibTorch. Rules: stages, groups, order and padding of E1 (age 1); age 0: one
// group a stage, frozen or not; age 2: without tied duplicates.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/distributed/world.hpp"
#include "core/model/description.hpp"

namespace fastllm::shard {

constexpr int64_t kPadToMultiple = 32;  // elements; the shard of every group is a multiple of it

using World = distributed::World;

struct LayoutOptions {
  double layers_per_stage = 1;
  int age = 1;
};

struct Piece {        // one parameter in a group's buffer, in its local row-major shape
  int parameter = 0;  // index into Description::parameters
  std::vector<int64_t> local;
  int64_t begin = 0, end = 0;  // elements of the group's buffer
};

struct Group {       // parameters flattened together
  std::string name;  // "stage_3", "stage_3_frozen"
  bool frozen = false;
  std::vector<Piece> pieces;
  int64_t count = 0;           // elements of the parameters, no padding
  int64_t shard_elements = 0;  // of one data rank
  int64_t elements = 0;        // of the whole buffer: shard_elements * data
  // Elements at the end of that rank's shard that hold no parameter.
  int64_t shard_padding(int data_rank, int data) const;
  // Where a position of the buffer lies in that rank's shard, cut to the part that holds
  // parameters: a piece occupies [to_shard(begin), to_shard(end)) of it, which may be empty.
  int64_t to_shard(int64_t position, int data_rank, int data) const;
};

struct Stage {
  int index = 0, first_layer = 0, layer_count = 0, pipeline_rank = 0;
  std::vector<Group> groups;  // trainable, then frozen; an empty one is not there
  int64_t elements() const;   // of all groups' buffers
  int64_t trainable_elements() const;
};

struct Tied {  // one parameter that several layers use
  int parameter = 0, main_stage = 0;
  std::vector<int> stages;  // all that use it
};

// Which elements of a parameter a tensor rank holds. Local row-major (o * blocks + b) * chunk + i is
// global offset + o * outer_stride + b * block_stride + i. A whole parameter is one chunk.
struct Cut {
  int64_t outer = 1, blocks = 1, chunk = 0, outer_stride = 0, block_stride = 0, offset = 0;
  bool whole() const { return outer == 1 && blocks == 1 && offset == 0; }
};
bool is_split(const model::Parameter& parameter, const World& world);
Cut cut_of(const model::Parameter& parameter, const World& world, int rank);

// A stage as it lies on one rank.
struct Placed {
  int stage = 0;
  bool copy = false;  // owned elsewhere; here because a tied weight's main stage is needed
};

class Layout {
 public:
  Layout(const model::Description& description, const World& world, const LayoutOptions& options);

  const World& world() const { return world_; }
  const model::Description& description() const { return *description_; }
  const std::vector<Stage>& stages() const { return stages_; }
  const std::vector<Tied>& tied() const { return tied_; }
  int stage_of_layer(int layer) const;  // -1: a preprocessing layer, which belongs to none
  int lowest_trainable_stage() const;   // the number of stages when everything is frozen

  // Stages on a rank, ascending.
  std::vector<Placed> on_device(int rank) const;
  // Elements of one flat state of a rank: "weights" holds all groups, any other state only
  // trainable ones (age 0: all).
  int64_t state_elements(int rank, const std::string& state) const;
  // Where a group's shard begins in that state of that rank; -1: the state has none of it.
  int64_t shard_begin(int rank, const std::string& state, int stage, int group) const;
  bool state_has(const std::string& state, const Group& group) const;

  // Local elements of all stages, frozen included, padding excluded.
  int64_t parameters_total() const;

 private:
  const model::Description* description_;  // outlives the layout
  World world_;
  LayoutOptions options_;
  std::vector<Stage> stages_;
  std::vector<Tied> tied_;
};

// Which buffer each stage on a device uses (docs/compatibility.md).
struct BufferPlacement {
  std::vector<std::vector<int>> contents;  // stages by buffer; tied main stages last, each alone
  std::vector<int64_t> elements;           // size of each buffer
  int buffer_of(int stage) const;          // -1: not on this device
};
enum class BufferKind { kWeights, kGradients };
// count 0: one buffer a stage.
BufferPlacement place_buffers(const Layout& layout, int rank, BufferKind kind, int count);

}  // namespace fastllm::shard
