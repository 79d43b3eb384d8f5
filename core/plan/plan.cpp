#include "core/plan/plan.hpp"

#include <algorithm>

#include "core/base/error.hpp"
#include "core/plan/step_time.hpp"
#include "core/train/executor/value_shape.hpp"
#include "core/train/workspace.hpp"

namespace fastllm::plan {
namespace {

// What arithmetic of all kinds of ranks begins with.
struct Basis {
  Basis(const train::Settings& settings, const model::Model& model)
      : store(train::store_options(settings)),
        layout(model.description(), settings.distributed.world(),
               {settings.multi_stage.layers_per_stage, 1}),
        wiring(train::make_wiring(model.description())),
        crossings(train::make_crossings(wiring, layout)),
        wires{wiring, crossings, layout, store.training, settings.training.recompute_activations},
        depth(int(settings.batch.depth_first_micro_batches)),
        breadth(int(settings.batch.breadth_first_micro_batches)),
        micro_batch{settings.batch.micro_batch_size,
                    settings.batch.sequence_length / settings.distributed.sequence_data_parallel} {}
  Basis(const Basis&) = delete;

  model::ScheduleOptions schedule_of(int rank) const {
    return schedule_options(layout, rank, store, depth, breadth);
  }
  Activations activations_of(const RankKind& kind, const std::vector<model::Step>& schedule,
                             bool recompute, const std::vector<int64_t>& kept) const {
    const Wires other{wiring, crossings, layout, store.training, recompute};
    return activations(other, kind.first, schedule, micro_batch, kept);
  }

  const shard::StoreOptions store;
  const shard::Layout layout;
  const train::Wiring wiring;
  const train::Crossings crossings;
  const Wires wires;
  const int depth, breadth;
  const MicroBatch micro_batch;  // of one rank: its part of a sequence that several share
};

int64_t message_bytes(const Basis& basis, int into, bool forward) {
  int64_t bytes = 0;
  for (int v : basis.crossings.into[size_t(into)]) {
    const train::Value& value = basis.wiring.values[size_t(v)];
    if (forward || value.gradient)
      bytes += train::value_bytes(value, basis.micro_batch.samples, basis.micro_batch.length,
                                  basis.store.training)
                   .value();
  }
  return bytes;
}

// Ranks that compute one micro-batch together.
double sharers(const shard::World& world) { return double(world.tensor) * world.sequence_data; }

StageCompute stage_compute(const shard::Layout& layout, const shard::Stage& stage) {
  StageCompute compute{stage.index, stage.pipeline_rank, stage.first_layer, stage.layer_count};
  for (const shard::Group& group : stage.groups)
    for (const shard::Piece& piece : group.pieces) {
      const model::Parameter& p = layout.description().parameters[size_t(piece.parameter)];
      compute.parameters += p.elements();
      if (!p.frozen()) compute.trainable += p.elements();
    }
  return compute;
}

}  // namespace

const KindPlan& Plan::largest() const {
  return *std::max_element(kinds.begin(), kinds.end(), [](const KindPlan& a, const KindPlan& b) {
    return a.bytes() < b.bytes();
  });
}

Plan make_plan(const Question& q) {
  const train::Settings& settings = q.settings;
  const Basis basis(settings, q.model);
  const shard::World& world = basis.layout.world();
  Plan plan;
  plan.world = world;
  plan.samples = settings.batch.batch_size;
  plan.tokens = settings.batch.batch_size * settings.batch.sequence_length;
  plan.micro_batches = settings.batch.sequential_micro_batches;
  plan.kept_known = !q.kept.empty();
  plan.train_iters = settings.training.train_iters;

  // Of whole sequences, which ranks share.
  const std::vector<LayerFlops> flops = layer_flops(
      q.model, basis.wires, {settings.batch.micro_batch_size, settings.batch.sequence_length});
  std::vector<StageTime> stages(basis.layout.stages().size());
  for (const shard::Stage& stage : basis.layout.stages()) {
    plan.stages.push_back(stage_compute(basis.layout, stage));
    plan.parameters += plan.stages.back().parameters;
    plan.trainable += plan.stages.back().trainable;
  }
  std::vector<std::vector<model::Step>> schedules;
  for (const RankKind& ranks : rank_kinds(world)) {
    KindPlan kind{ranks, state_memory(basis.layout, ranks.first, basis.store)};
    schedules.push_back(model::make_schedule(basis.schedule_of(ranks.first)));
    const std::vector<model::Step>& schedule = schedules.back();
    const bool recompute = basis.wires.recompute;
    const Activations own = basis.activations_of(ranks, schedule, recompute, q.kept);
    const int64_t other = basis.activations_of(ranks, schedule, !recompute, {}).peak_bytes;
    kind.activations = own.peak_bytes;
    kind.kept = own.peak_with_kept - own.peak_bytes;
    kind.with_recomputation = recompute ? own.peak_bytes : other;
    kind.without_recomputation = recompute ? other : own.peak_bytes;
    kind.traffic =
        step_traffic(settings, basis.wires, basis.store, ranks.first, schedule, basis.micro_batch);
    const double micro_batches = double(basis.depth) * basis.breadth;
    for (const shard::Stage& stage : basis.layout.stages()) {
      if (stage.pipeline_rank != ranks.pipeline_rank) continue;
      StageCompute& compute = plan.stages[size_t(stage.index)];
      for (int l = stage.first_layer; l < stage.first_layer + stage.layer_count; ++l) {
        const LayerFlops& layer = flops[size_t(l)];
        const double again = double(own.recomputed[size_t(l)]) * layer.forward;
        compute.again += again;
        compute.forward += double(own.forwards[size_t(l)]) * layer.forward - again;
        compute.backward += double(own.backwards[size_t(l)]) * layer.backward;
      }
      kind.flops += compute.flops() / sharers(world);
      StageTime& time = stages[size_t(stage.index)];
      time.forward = compute.forward / micro_batches / sharers(world);
      time.backward = (compute.backward + compute.again) / micro_batches / sharers(world);
      if (stage.index + 1 < int(stages.size()))
        time.forward_message = double(message_bytes(basis, stage.index + 1, true));
      time.backward_message = double(message_bytes(basis, stage.index, false));
      // So far of one group of ranks that share samples.
      for (double* count : {&compute.forward, &compute.backward, &compute.again})
        *count *= world.batch_data();
      plan.flops += compute.flops();
      plan.model_flops += 3 * compute.forward;
    }
    plan.kinds.push_back(std::move(kind));
  }
  plan.bubble = model::bubble_share(basis.schedule_of(0));
  plan.disk = disk(basis.layout, settings.training, q.export_optimizer_state);
  plan.time = step_time({plan, q.hardware, basis.store, schedules, stages});
  return plan;
}

std::optional<int64_t> bytes_with(const Question& q) {
  try {
    const Basis basis(q.settings, q.model);
    int64_t most = 0;
    for (const RankKind& kind : rank_kinds(basis.layout.world())) {
      const auto schedule = model::make_schedule(basis.schedule_of(kind.first));
      const int64_t allocated =
          shard::allocation_table(basis.layout, kind.first, basis.store).total_bytes();
      const Activations own = basis.activations_of(kind, schedule, basis.wires.recompute, q.kept);
      most = std::max(most, allocated + own.peak_with_kept);
    }
    return most;
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace fastllm::plan
