// Every piece of every group, cut into runs that are contiguous in the global parameter, runs cut
// into chunks for threads.
#include "core/train/executor/initialize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/tensor.hpp"
#include "core/shard/elements.hpp"
#include "core/train/executor/random.hpp"

namespace fastllm::train {
namespace {

using model::Parameter;

struct Run {  // elements [global, global + count) of a parameter, to lie at `to`
  int64_t global = 0, count = 0;
  std::byte* to = nullptr;
};

constexpr int64_t kChunk =
    int64_t(1) << 16;  // elements of one thread's turn; a multiple of the generator's block

// Runs of the local elements [begin, end) of a parameter, which lie at `to` in that type.
void add_runs(std::vector<Run>& runs, const shard::Cut& cut, int64_t begin, int64_t end,
              std::byte* to, DLDataType type) {
  for (int64_t local = begin; local < end;) {
    const int64_t i = local % cut.chunk, b = local / cut.chunk % cut.blocks,
                  o = local / cut.chunk / cut.blocks;
    const int64_t count = std::min({cut.chunk - i, end - local, kChunk});
    runs.push_back({cut.offset + o * cut.outer_stride + b * cut.block_stride + i, count,
                    to + (local - begin) * (type.bits / 8)});
    local += count;
  }
}

void clamp(float* values, int64_t count, const Parameter& p) {
  if (!std::isnan(p.init_min))
    for (int64_t i = 0; i < count; ++i) values[i] = std::max(values[i], float(p.init_min));
  if (!std::isnan(p.init_max))
    for (int64_t i = 0; i < count; ++i) values[i] = std::min(values[i], float(p.init_max));
}

// whole: the parameter as the plugin made it, where it is the plugin that does.
void fill(const Run& run, float* to, const Parameter& p, uint64_t key,
          const std::vector<float>& whole) {
  switch (p.init) {
    case FASTLLM_INIT_PLUGIN:
      std::copy_n(whole.data() + run.global, run.count, to);
      return;
    case FASTLLM_INIT_ZEROS:
      std::fill_n(to, run.count, 0.0f);
      break;
    case FASTLLM_INIT_ONES:
      std::fill_n(to, run.count, 1.0f);
      break;
    case FASTLLM_INIT_NORMAL:
      fill_normal(to, run.global, run.count, key, float(p.init_a), float(p.init_b));
      break;
    case FASTLLM_INIT_UNIFORM:
      fill_uniform(to, run.global, run.count, key, float(p.init_a), float(p.init_b));
      break;
  }
  clamp(to, run.count, p);
}

// In float32 where it is kept, or beside it and rounded.
void fill_in_type(const Run& run, DLDataType type, const Parameter& p, uint64_t key,
                  const std::vector<float>& whole) {
  if (is_float32(type)) return fill(run, reinterpret_cast<float*>(run.to), p, key, whole);
  std::vector<float> wide(size_t(run.count));
  fill(run, wide.data(), p, key, whole);
  shard::copy(run.to, type, wide.data(), kFloat32, run.count);
}

// The whole parameter as the plugin makes it. Freed before the next one.
std::vector<float> from_plugin(model::Model& model, int parameter, uint64_t key) {
  const model::Description& d = model.description();
  const Parameter& p = d.parameters[parameter];
  std::vector<float> values(p.elements());
  std::vector<int64_t> shape = p.shape, strides = row_major_strides(shape);
  DLTensor tensor{values.data(),
                  {kDLCPU, 0},
                  int32_t(shape.size()),
                  {kDLFloat, 32, 1},
                  shape.data(),
                  strides.data(),
                  0};
  fastllm_call call{};
  call.size = sizeof call;
  call.device = {kDLCPU, 0};
  call.seed = key;
  const std::vector<int>& own = d.layers[p.first_layer].parameters;
  model.init(p.first_layer, int(std::find(own.begin(), own.end(), parameter) - own.begin()), call,
             &tensor);
  return values;
}

}  // namespace

void initialize(shard::Store& store, model::Model& model, uint64_t seed) {
  const shard::Layout& layout = store.layout();
  const shard::World& world = layout.world();
  const int data_rank = world.data_rank(store.rank());
  const std::vector<shard::StatePart>& weights = store.parts("weights");
  std::vector<Run> runs;
  for (const shard::Placed& placed : layout.on_device(store.rank())) {
    const std::vector<shard::Group>& groups = layout.stages()[placed.stage].groups;
    for (int g = 0; g < int(groups.size()); ++g) {
      const shard::Group& group = groups[g];
      const int64_t shard = layout.shard_begin(store.rank(), "weights", placed.stage, g);
      const shard::StatePart& part = shard::part_of(weights, shard);
      for (const shard::Piece& piece : group.pieces) {
        const Parameter& p = layout.description().parameters[piece.parameter];
        const int64_t begin = group.to_shard(piece.begin, data_rank, world.data),
                      end = group.to_shard(piece.end, data_rank, world.data);
        const int64_t local =
            data_rank * group.shard_elements + begin - piece.begin;  // of the first element here
        const uint64_t key = stream_key(seed, p.name);
        runs.clear();
        add_runs(runs, shard::cut_of(p, world, store.rank()), local, local + end - begin,
                 part.at(shard + begin), part.type);
        std::vector<float> whole;
        if (p.init == FASTLLM_INIT_PLUGIN && begin < end)
          whole = from_plugin(model, piece.parameter, key);
        const int64_t count = int64_t(runs.size());
#pragma omp parallel for schedule(static) if (count > 1)
        for (int64_t r = 0; r < count; ++r) fill_in_type(runs[r], part.type, p, key, whole);
      }
      const int64_t padding = group.shard_padding(data_rank, world.data);
      shard::fill_zero(part.at(shard + group.shard_elements - padding), part.type, padding);
    }
  }
  store.zero_optimizer_and_gradients();
  store.invalidate();
}

}  // namespace fastllm::train
