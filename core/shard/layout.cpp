// Stages, groups, order, padding and placement (docs/compatibility.md), for any rank of
// any world. The order inside a group is a file format: checkpoints hold these buffers, so every
// rule here is frozen.
#include "core/shard/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "core/base/error.hpp"

namespace fastllm::shard {
namespace {

using model::Description;
using model::Parameter;

int64_t checked_add(int64_t a, int64_t b) {
  int64_t sum;
  if (__builtin_add_overflow(a, b, &sum))
    throw Error(Status::kInvalid,
                "expected a model of less than 2^63 elements, found more; check the sizes in the "
                "model's configuration");
  return sum;
}

// Ranks of the group that a parameter's declared split is over. Experts are not spread over ranks
// yet.
int group_size(const Parameter& p, const World& world) {
  return p.shard_group == "tensor" ? world.tensor : 1;
}

// Order inside a group: ascending and stable by (d, d == p, d != q), so that all
// sequence-tensor-parallel parameters are contiguous: d decays, p is declared split over "tensor",
// q takes part in the sum over "tensor".
std::tuple<bool, bool, bool> order_key(const Parameter& p, const World& world) {
  const bool decays = p.weight_decay != 0;
  const bool declared = p.shard_group == "tensor";
  const bool split = declared && (world.tensor > 1 || !(p.flags & FASTLLM_PARAM_WHOLE_AT_ONE));
  const bool summed = (p.flags & FASTLLM_PARAM_PARTIAL) && !split;
  return {decays, decays == split, decays != summed};
}

std::vector<int64_t> local_shape(const Parameter& p, const World& world) {
  std::vector<int64_t> local = p.shape;
  if (!is_split(p, world)) return local;
  const int ranks = group_size(p, world);
  const int64_t block = p.shape[p.shard_dim] / p.shard_blocks;
  if (block / p.shard_unit % ranks)
    throw Error(
        Status::kInvalid,
        fmt::format("parameter {}: expected its {} parts of dimension {} to be a multiple of the "
                    "tensor-parallel size, found {} ranks; "
                    "choose a tensor_parallel that divides {}",
                    p.name, block / p.shard_unit, p.shard_dim, ranks, block / p.shard_unit));
  local[p.shard_dim] /= ranks;
  return local;
}

std::vector<Stage> split_layers(const Description& d, double layers_per_stage) {
  std::vector<Stage> stages;
  int first = 0;
  const int layers = int(d.layers.size());
  while (first < layers && (d.layers[first].flags & FASTLLM_LAYER_EVERY_STAGE)) ++first;
  double counter = 0, last = 0;
  for (int layer = first; layer < layers; ++layer) {
    counter += d.layers[layer].cost;
    if (counter < last + layers_per_stage && layer != layers - 1) continue;
    Stage stage;
    stage.index = int(stages.size());
    stage.first_layer = first;
    stage.layer_count = layer + 1 - first;
    stages.push_back(stage);
    first = layer + 1;
    last = counter;
  }
  return stages;
}

Group make_group(const Description& d, std::string name, bool frozen, std::vector<int> parameters,
                 const World& world) {
  std::stable_sort(parameters.begin(), parameters.end(), [&](int a, int b) {
    return order_key(d.parameters[a], world) < order_key(d.parameters[b], world);
  });
  Group group;
  group.name = std::move(name);
  group.frozen = frozen;
  for (int index : parameters) {
    Piece piece;
    piece.parameter = index;
    piece.local = local_shape(d.parameters[index], world);
    piece.begin = group.count;
    int64_t size =
        d.parameters[index].elements() /
        (is_split(d.parameters[index], world) ? group_size(d.parameters[index], world) : 1);
    piece.end = group.count = checked_add(group.count, size);
    group.pieces.push_back(std::move(piece));
  }
  const int64_t unit = int64_t(world.data) * kPadToMultiple;
  group.elements = checked_add(group.count, unit - 1) / unit * unit;
  group.shard_elements = group.elements / world.data;
  return group;
}

void check(const World& world, const LayoutOptions& options) {
  for (int size : {world.tensor, world.pipeline, world.data})
    if (size < 1)
      throw Error(
          Status::kInvalid,
          fmt::format(
              "expected tensor, pipeline and data-parallel sizes from 1, found {}, {} and {}",
              world.tensor, world.pipeline, world.data));
  if (!(options.layers_per_stage > 0) || !std::isfinite(options.layers_per_stage))
    throw Error(Status::kInvalid,
                fmt::format("layers_per_stage: expected a number above 0, found {}",
                            options.layers_per_stage));
  if (options.age < 0 || options.age > 2)
    throw Error(Status::kInvalid,
                fmt::format("expected the layout's age to be 0, 1 or 2, found {}", options.age));
}

}  // namespace

bool is_split(const Parameter& parameter, const World& world) {
  return group_size(parameter, world) > 1;
}

Cut cut_of(const Parameter& p, const World& world, int rank) {
  Cut cut;
  cut.chunk = p.elements();
  if (!is_split(p, world)) return cut;
  int64_t inner = 1;  // elements below the split dimension
  for (size_t k = p.shard_dim + 1; k < p.shape.size(); ++k) inner *= p.shape[k];
  for (int k = 0; k < p.shard_dim; ++k) cut.outer *= p.shape[k];
  cut.blocks = p.shard_blocks;
  cut.outer_stride = p.shape[p.shard_dim] * inner;
  cut.block_stride = cut.outer_stride / p.shard_blocks;
  cut.chunk = cut.block_stride / group_size(p, world);
  cut.offset = world.tensor_rank(rank) * cut.chunk;
  return cut;
}

int64_t Group::shard_padding(int data_rank, int data) const {
  return std::clamp<int64_t>(elements - count - shard_elements * (data - data_rank - 1), 0,
                             shard_elements);
}

int64_t Group::to_shard(int64_t position, int data_rank, int data) const {
  return std::clamp<int64_t>(position - data_rank * shard_elements, 0,
                             shard_elements - shard_padding(data_rank, data));
}

int64_t Stage::elements() const {
  int64_t sum = 0;
  for (const Group& group : groups) sum += group.elements;
  return sum;
}

int64_t Stage::trainable_elements() const {
  int64_t sum = 0;
  for (const Group& group : groups) sum += group.frozen ? 0 : group.elements;
  return sum;
}

Layout::Layout(const Description& description, const World& world, const LayoutOptions& options)
    : description_(&description), world_(world), options_(options) {
  check(world, options);
  stages_ = split_layers(description, options.layers_per_stage);
  if (int(stages_.size()) < world.pipeline)
    throw Error(Status::kInvalid, fmt::format("pipeline_parallel: expected at most one pipeline "
                                              "rank a stage, found {} ranks for {} stages; lower "
                                              "pipeline_parallel or layers_per_stage",
                                              world.pipeline, stages_.size()));
  std::vector<std::vector<int>> users(description.parameters.size());  // stages by parameter
  for (Stage& stage : stages_) {
    stage.pipeline_rank = stage.index % world.pipeline;
    std::vector<int> trainable, frozen;
    for (int layer = stage.first_layer; layer < stage.first_layer + stage.layer_count; ++layer)
      for (int index : description.layers[layer].parameters) {
        const Parameter& p = description.parameters[index];
        if (users[index].empty() || users[index].back() != stage.index)
          users[index].push_back(stage.index);
        if (p.first_layer != layer) continue;  // tied: lies where it was declared
        (p.frozen() && options.age > 0 ? frozen : trainable).push_back(index);
      }
    const std::string name = fmt::format("stage_{}", stage.index);
    if (!trainable.empty())
      stage.groups.push_back(make_group(description, name, false, std::move(trainable), world));
    if (!frozen.empty())
      stage.groups.push_back(
          make_group(description, name + "_frozen", true, std::move(frozen), world));
  }
  for (size_t index = 0; index < users.size(); ++index)
    if (users[index].size() > 1) tied_.push_back({int(index), users[index].front(), users[index]});
}

int Layout::stage_of_layer(int layer) const {
  for (const Stage& stage : stages_)
    if (layer >= stage.first_layer && layer < stage.first_layer + stage.layer_count)
      return stage.index;
  return -1;
}

int Layout::lowest_trainable_stage() const {
  for (const Stage& stage : stages_)
    if (stage.trainable_elements() > 0) return stage.index;
  return int(stages_.size());
}

std::vector<Placed> Layout::on_device(int rank) const {
  const int here = world_.pipeline_rank(rank);
  std::vector<Placed> placed;
  for (const Stage& stage : stages_) {
    const bool owned = stage.pipeline_rank == here;
    const bool copy = !owned && std::any_of(tied_.begin(), tied_.end(), [&](const Tied& tied) {
      return tied.main_stage == stage.index &&
             std::any_of(tied.stages.begin(), tied.stages.end(),
                         [&](int user) { return stages_[user].pipeline_rank == here; });
    });
    if (owned || copy) placed.push_back({stage.index, copy});
  }
  return placed;
}

bool Layout::state_has(const std::string& state, const Group& group) const {
  return state == "weights" || !group.frozen;
}

int64_t Layout::state_elements(int rank, const std::string& state) const {
  int64_t sum = 0;
  for (const Placed& placed : on_device(rank))
    for (const Group& group : stages_[placed.stage].groups)
      if (state_has(state, group)) sum = checked_add(sum, group.shard_elements);
  return sum;
}

int64_t Layout::shard_begin(int rank, const std::string& state, int stage, int group) const {
  int64_t begin = 0;
  for (const Placed& placed : on_device(rank)) {
    const std::vector<Group>& groups = stages_[placed.stage].groups;
    for (int g = 0; g < int(groups.size()); ++g) {
      const bool has = state_has(state, groups[g]);
      if (placed.stage == stage && g == group) return has ? begin : -1;
      if (has) begin += groups[g].shard_elements;
    }
  }
  return -1;
}

int64_t Layout::parameters_total() const {
  int64_t sum = 0;
  for (const Stage& stage : stages_)
    for (const Group& group : stage.groups) sum = checked_add(sum, group.count);
  return sum;
}

int BufferPlacement::buffer_of(int stage) const {
  for (size_t buffer = 0; buffer < contents.size(); ++buffer)
    if (std::find(contents[buffer].begin(), contents[buffer].end(), stage) !=
        contents[buffer].end())
      return int(buffer);
  return -1;
}

BufferPlacement place_buffers(const Layout& layout, int rank, BufferKind kind, int count) {
  const size_t stages_total = layout.stages().size();  // more shared buffers would stay empty
  const size_t shared = count > 0 ? std::min<size_t>(count, stages_total) : stages_total;
  std::vector<std::vector<int>> contents(shared), dedicated;
  size_t next = 0;
  for (const Placed& placed : layout.on_device(rank)) {
    // A tied main stage is used at both ends of a step: it may not give way to another stage in
    // between.
    const bool tied = std::any_of(layout.tied().begin(), layout.tied().end(),
                                  [&](const Tied& t) { return t.main_stage == placed.stage; });
    if (tied)
      dedicated.push_back({placed.stage});
    else
      contents[next++ % shared].push_back(placed.stage);
  }
  contents.insert(contents.end(), dedicated.begin(), dedicated.end());
  BufferPlacement placement;
  for (std::vector<int>& stages : contents) {
    if (stages.empty()) continue;
    int64_t elements = 0;
    for (int stage : stages)
      elements = std::max(elements, kind == BufferKind::kWeights
                                        ? layout.stages()[stage].elements()
                                        : layout.stages()[stage].trainable_elements());
    placement.contents.push_back(std::move(stages));
    placement.elements.push_back(elements);
  }
  return placement;
}

}  // namespace fastllm::shard
