// Members are made in the order of their declaration: each needs those before it.
#include "core/train/workspace.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/tensor.hpp"
#include "core/base/text.hpp"
#include "core/shard/tied_groups.hpp"

namespace fastllm::train {
namespace {

shard::Layout make_layout(const Settings& settings, const model::Model& model) {
  log::info("Creating model...");
  shard::Layout layout(model.description(), settings.distributed.world(),
                       {settings.multi_stage.layers_per_stage, 1});
  log::info(fmt::format("  Splitting the model into {} stages...", layout.stages().size()));
  log::info(
      fmt::format("  Total parameters: {} ", with_commas(double(layout.parameters_total()), 0)));
  return layout;
}

std::map<int, distributed::Communicator*> join_tied_groups(const shard::Layout& layout, int rank,
                                                           const Ranks& ranks) {
  std::map<int, distributed::Communicator*> joined;
  for (const auto& [stage, group] : shard::tied_groups(layout, rank))
    joined.emplace(stage, ranks.add_group(group));
  return joined;
}

// "{1: 0, 2: 1, 0: 13}": stage to buffer, in buffer order.
std::string placement_text(const shard::BufferPlacement& placement) {
  std::vector<std::string> entries;
  for (size_t buffer = 0; buffer < placement.contents.size(); ++buffer) {
    for (int stage : placement.contents[buffer])
      entries.push_back(fmt::format("{}: {}", stage, buffer));
  }
  return fmt::format("{{{}}}", fmt::join(entries, ", "));
}

}  // namespace

shard::StoreOptions store_options(const Settings& settings) {
  const MultiStageSettings& m = settings.multi_stage;
  shard::StoreOptions options;
  const auto training = compute_dtype(settings.distributed.training_dtype);
  FASTLLM_ASSERT(training.has_value());  // check_supported
  options.training = *training;
  options.full_precision_gradients = m.full_precision_gradients;
  options.wide_frozen_weights = m.wide_frozen_weights;
  options.sequence_tensor = settings.distributed.sequence_tensor_parallel;
  options.zero_stage = m.zero_stage;
  options.num_weight_buffers = m.num_weight_buffers;
  options.num_gradient_buffers = m.num_gradient_buffers;
  return options;
}

std::string main_loss(const model::Description& description) {
  std::string first;
  for (const model::Layer& layer : description.layers) {
    for (const model::Port& port : layer.outputs) {
      if (!(port.flags & FASTLLM_PORT_LOSS)) continue;
      if (port.flags & FASTLLM_PORT_SUM) return port.name;
      if (first.empty()) first = port.name;
    }
  }
  return first;
}

std::vector<std::string> losses_in_order(const model::Description& description) {
  std::vector<std::string> names;
  for (const bool over_labels : {true, false}) {
    for (const model::Layer& layer : description.layers) {
      for (const model::Port& port : layer.outputs) {
        const bool asked =
            (port.flags & FASTLLM_PORT_LOSS) && bool(port.flags & FASTLLM_PORT_SUM) == over_labels;
        if (asked && std::ranges::find(names, port.name) == names.end()) names.push_back(port.name);
      }
    }
  }
  return names;
}

Workspace::Workspace(const Settings& settings, model::Model& model, const Ranks& r)
    : ranks(r),
      layout(make_layout(settings, model)),
      tied_groups(join_tied_groups(layout, int(settings.distributed.rank), ranks)),
      store(layout, int(settings.distributed.rank), store_options(settings),
            {.data = ranks.data, .tensor = ranks.tensor, .tied = tied_groups}),
      executor(model, store,
               {.recompute = settings.training.recompute_activations,
                .seed = settings.distributed.training_seed,
                .data = ranks.data,
                .pipeline = ranks.pipeline,
                .sequence_tensor = settings.distributed.sequence_tensor_parallel}),
      optimizer(store, settings.optimizer.adamw, ranks.world),
      scaler(settings.optimizer.scaler) {
  log::info("Weight buffer placement:\n" + placement_text(store.weight_buffers()));
  log::info("Grad buffer placement:\n" + placement_text(store.gradient_buffers()));
  for (const auto& line : shard::allocation_table(layout, store.rank(), store.options()).lines())
    log::info(line);

  const int depth = int(settings.batch.depth_first_micro_batches);
  const int breadth = int(settings.batch.breadth_first_micro_batches);
  training_schedule = model::make_schedule(schedule_options(store, depth, breadth, true));
  evaluation_schedule = model::make_schedule(schedule_options(store, depth, breadth, false));

  loss_names = losses_in_order(model.description());
  const auto& layers = model.description().layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto layer =
        model.flops(int(i), settings.batch.batch_size, settings.batch.sequence_length);
    flops.evaluation += layer.forward;
    flops.training += 3 * layer.forward;
    // A layer made again for its backward costs one more forward.
    flops.training_hardware +=
        (settings.training.recompute_activations ? 4 : 3) * layer.forward + layer.recomputed;
  }
}

}  // namespace fastllm::train
