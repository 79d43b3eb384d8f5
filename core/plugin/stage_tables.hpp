// The host's "fastllm.stages/0" and "fastllm.shards/0": how the running job lies over ranks, and
// any other job that a configuration describes (a checkpoint's, a plan's). Wraps core/shard's
// arithmetic for plugins; has none of its own.
#pragma once

#include <fastllm/shard.h>
#include <fastllm/stage.h>

#include <functional>
#include <optional>

#include "core/config/node.hpp"
#include "core/model/description.hpp"
#include "core/shard/layout.hpp"
#include "core/shard/store.hpp"

namespace fastllm::plugin {

// Static; stay for the life of the process. Offered to plugins by offer_stage_tables().
const fastllm_stages* stages_table();
const fastllm_shards* shards_table();
void offer_stage_tables();

// The running job, borrowed until the next call; null, null: none. Any worlds handed out for it
// before end with it. store may be null where only the layout is known (plan). Not while a plugin
// is being called.
void set_running(const shard::Layout* layout, shard::Store* store, int rank = 0);

// Turns a checkpoint's metadata (model, config.base_model) into what that model looks like. A
// configuration it cannot take:
// Error. Without one, describe() is refused.
using Describer = std::function<model::Description(const config::Node& metadata)>;
void set_describer(Describer describer);

// The mesh and split that a checkpoint's config.distributed and config.multi_stage say; missing
// keys count as their defaults.
struct DescribedLayout {
  shard::World world;
  shard::LayoutOptions options;
};
DescribedLayout layout_of_metadata(const config::Node& metadata, int age);

}  // namespace fastllm::plugin
