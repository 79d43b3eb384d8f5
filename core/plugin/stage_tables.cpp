// The C functions of both tables, over the running job's layout and over described ones.
#include "core/plugin/stage_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/checkpoint/placement.hpp"
#include "core/plugin/config_services.hpp"
#include "core/plugin/host_services.hpp"

// What a plugin's fastllm_world* points to.
struct fastllm_world {
  std::unique_ptr<const fastllm::model::Description>
      description;  // of a described world, which owns its parts
  std::unique_ptr<const fastllm::shard::Layout> owned;
  const fastllm::shard::Layout* layout = nullptr;
  int rank = 0;
};

namespace fastllm::plugin {
namespace {

struct Running {
  fastllm_world world;
  shard::Store* store = nullptr;
};
Running& running_job() {
  static auto* job = new Running;  // plugins may ask while the process ends
  return *job;
}

Describer& describer() {
  static auto* function = new Describer;
  return *function;
}

const fastllm_world* stages_running() {
  const fastllm_world& world = running_job().world;
  return world.layout ? &world : nullptr;
}

fastllm_status stages_describe(const fastllm_config* metadata, int32_t layout,
                               fastllm_world** out) {
  return host_function([&] {
    if (!metadata || !out)
      throw Error(Status::kInvalid, "expected metadata and a place for the world, found NULL");
    if (layout < 0 || layout > 1) {
      throw Error(Status::kUnsupported, fmt::format("expected a flat layout of age 0 or 1, found "
                                                    "{}, which needs a converter to layout-{}; "
                                                    "none is loaded",
                                                    layout, layout));
    }
    if (!describer())
      throw Error(Status::kUnavailable,
                  "expected a model to describe a checkpoint with, found none loaded");
    config::Node copy;
    {
      std::lock_guard lock(metadata->tree->mutex());
      const config::Node* node = metadata->tree->node().find(metadata->path);
      copy = node ? *node : config::Node::map();
    }
    auto world = std::make_unique<fastllm_world>();
    const DescribedLayout described = layout_of_metadata(copy, layout);
    world->description = std::make_unique<const model::Description>(describer()(copy));
    world->owned = std::make_unique<const shard::Layout>(*world->description, described.world,
                                                         described.options);
    world->layout = world->owned.get();
    *out = world.release();
  });
}

void stages_release(fastllm_world* world) {
  if (world != &running_job().world) delete world;
}

int32_t stages_ranks(const fastllm_world* world) {
  return world && world->layout ? world->layout->world().size() : 0;
}
int32_t stages_rank(const fastllm_world* world) { return world ? world->rank : 0; }

// Calls a member of a visitor if it is there; a code of the plugin's goes back to it as it is.
struct VisitorStopped {
  fastllm_status status;
};
template <class Function, class... Arguments>
void tell(const fastllm_stage_visitor& visitor, Function function, Arguments... arguments) {
  if (!function) return;
  if (fastllm_status status = function(visitor.user, arguments...); status != FASTLLM_OK)
    throw VisitorStopped{status};
}

void visit(const shard::Layout& layout, int rank, const std::string& state,
           const fastllm_stage_visitor& visitor) {
  const shard::World& mesh = layout.world();
  for (const shard::Placed& placed : layout.on_device(rank)) {
    const shard::Stage& stage = layout.stages()[size_t(placed.stage)];
    const fastllm_stage told_stage{sizeof told_stage, stage.index, stage.first_layer,
                                   stage.layer_count, stage.pipeline_rank};
    tell(visitor, visitor.stage, &told_stage);
    for (int g = 0; g < int(stage.groups.size()); ++g) {
      const shard::Group& group = stage.groups[size_t(g)];
      const bool held = layout.state_has(state, group);
      fastllm_group told{};
      told.size = sizeof told;
      told.flags = uint32_t(group.frozen ? FASTLLM_GROUP_FROZEN : 0) |
                   uint32_t(placed.copy ? FASTLLM_GROUP_COPY : 0);
      told.name = group.name.c_str();
      told.elements = group.elements;
      if (held) {
        told.shard_elements = group.shard_elements;
        told.shard_padding = group.shard_padding(mesh.data_rank(rank), mesh.data);
        told.shard_begin = layout.shard_begin(rank, state, placed.stage, g);
      }
      tell(visitor, visitor.group, &told);
      for (int p = 0; p < int(group.pieces.size()); ++p) {
        const shard::Piece& piece = group.pieces[size_t(p)];
        const model::Parameter& parameter =
            layout.description().parameters[size_t(piece.parameter)];
        const fastllm_piece told_piece{sizeof told_piece,
                                       parameter.name.c_str(),
                                       int32_t(parameter.shape.size()),
                                       parameter.shape.data(),
                                       piece.local.data(),
                                       piece.begin,
                                       piece.end};
        tell(visitor, visitor.piece, &told_piece);
        for (const checkpoint::Run& run :
             checkpoint::runs_of(layout, rank, state, placed.stage, g, p)) {
          const fastllm_box box = run.box();
          tell(visitor, visitor.run, &box, run.flat);
        }
      }
    }
  }
}

fastllm_status stages_visit(const fastllm_world* world, int32_t rank, const char* state,
                            const fastllm_stage_visitor* visitor) {
  fastllm_status stopped = FASTLLM_OK;
  const fastllm_status status = host_function([&] {
    if (!world || !world->layout || !state || !visitor)
      throw Error(Status::kInvalid, "expected a world, a state and a visitor, found NULL");
    if (visitor->size < offsetof(fastllm_stage_visitor, user) + sizeof visitor->user) {
      throw Error(
          Status::kInvalid,
          fmt::format("expected a visitor with its size set, found size {}", visitor->size));
    }
    const int ranks = world->layout->world().size();
    if (rank < 0 || rank >= ranks)
      throw Error(Status::kInvalid,
                  fmt::format("expected a rank from 0 to {}, found {}", ranks - 1, rank));
    try {
      fastllm_stage_visitor whole{};  // what an older caller's visitor lacks is null
      std::memcpy(&whole, visitor, std::min<size_t>(visitor->size, sizeof whole));
      visit(*world->layout, rank, state, whole);
    } catch (const VisitorStopped& stop) {
      stopped = stop.status;
    }
  });
  return status != FASTLLM_OK ? status : stopped;
}

const char* shards_state(int32_t index) {
  shard::Store* store = running_job().store;
  if (!store || index < 0 || size_t(index) >= store->states().size()) return nullptr;
  return store->states()[size_t(index)].c_str();
}

const DLTensor* shards_flat(const char* state) {
  shard::Store* store = running_job().store;
  return store && state && store->has_state(state) ? store->flat(state) : nullptr;
}

}  // namespace

const fastllm_stages* stages_table() {
  static constexpr fastllm_stages table = {.size = sizeof(fastllm_stages),
                                           .running = stages_running,
                                           .describe = stages_describe,
                                           .release = stages_release,
                                           .ranks = stages_ranks,
                                           .rank = stages_rank,
                                           .visit = stages_visit};
  return &table;
}

const fastllm_shards* shards_table() {
  static constexpr fastllm_shards table = {
      .size = sizeof(fastllm_shards), .state = shards_state, .flat = shards_flat};
  return &table;
}

void offer_stage_tables() {
  offer(FASTLLM_STAGES, stages_table());
  offer(FASTLLM_SHARDS, shards_table());
}

void set_running(const shard::Layout* layout, shard::Store* store, int rank) {
  running_job().world.layout = layout;
  running_job().world.rank = rank;
  running_job().store = store;
}

void set_describer(Describer function) { describer() = std::move(function); }

DescribedLayout layout_of_metadata(const config::Node& metadata, int age) {
  auto size = [&](const char* path, int64_t fallback) {
    const int64_t value = metadata.get_optional<int64_t>(path).value_or(fallback);
    if (value < 1 || value > (1 << 20))
      throw Error(Status::kInvalid,
                  fmt::format("{}: expected a size from 1 to {}, found {}", path, 1 << 20, value));
    return int(value);
  };
  DescribedLayout result;
  const int64_t ranks = size("config.distributed.world_size", 1);
  result.world.tensor = size("config.distributed.tensor_parallel", 1);
  result.world.pipeline = size("config.distributed.pipeline_parallel", 1);
  const int64_t model_parallel = int64_t(result.world.tensor) * result.world.pipeline;
  if (ranks % model_parallel != 0) {
    throw Error(Status::kInvalid,
                fmt::format("config.distributed.world_size: expected a multiple of tensor_parallel "
                            "times pipeline_parallel ({}), found {}",
                            model_parallel, ranks));
  }
  result.world.data = int(ranks / model_parallel);
  result.world.pipeline_first =
      metadata.get_optional<bool>("config.distributed.pipeline_first").value_or(false);
  result.options.layers_per_stage =
      metadata.get_optional<double>("config.multi_stage.layers_per_stage").value_or(1.0);
  result.options.age = age;
  return result;
}

}  // namespace fastllm::plugin
