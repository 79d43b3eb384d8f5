#include "core/plan/measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/distributed/sums.hpp"
#include "core/optim/adamw.hpp"
#include "core/plan/compute.hpp"
#include "core/plan/layer_timer.hpp"
#include "core/plan/step_time.hpp"
#include "core/train/workspace.hpp"

namespace fastllm::plan {
namespace {

constexpr int64_t kOptimizerElements = int64_t(1) << 22;  // well above any cache
constexpr int64_t kExchangeElements = int64_t(1) << 22;   // of a whole buffer
constexpr int kRounds = 3;                                // that count, after one that does not

template <class Call>
double fastest_of(Call&& call) {
  double best = 0;
  for (int n = 0; n <= kRounds; ++n) {
    const auto begin = std::chrono::steady_clock::now();
    call();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (n == 1 || (n > 1 && seconds < best)) best = seconds;
  }
  return best;
}

// The mean over the ranks that measure.
double mean(double value, distributed::Communicator* world) {
  distributed::sum_over(world, {&value, 1});
  return world ? value / world->size() : value;
}

void meet(distributed::Communicator* world) {
  if (world) world->barrier();
}

void measure_layers(const train::Settings& settings, model::Model& model,
                    const shard::StoreOptions& store, distributed::Communicator* world,
                    const std::function<int64_t()>& idle_bytes, Measured& measured) {
  const shard::Layout layout(model.description(), {}, {settings.multi_stage.layers_per_stage, 1});
  const train::Wiring wiring = train::make_wiring(model.description());
  const train::Crossings crossings = train::make_crossings(wiring, layout);
  const Wires wires{wiring, crossings, layout, store.training};
  const MicroBatch micro_batch{settings.batch.micro_batch_size, settings.batch.sequence_length};
  const std::vector<LayerFlops> flops = layer_flops(model, wires, micro_batch);
  LayerTimer timer(
      model, wires, micro_batch, [world] { meet(world); }, idle_bytes);
  double seconds = 0, operations = 0;
  for (size_t l = 0; l < wiring.layers.size(); ++l) {
    measured.kept.push_back(0);
    if (wiring.layers[l].every_stage) continue;
    const LayerTime time = timer.time(int(l));
    measured.kept.back() = time.kept;
    seconds += time.forward + time.backward;
    operations += flops[l].forward + flops[l].backward;
  }
  if (!(operations > 0))
    throw Error(Status::kUnsupported,
                "expected a model that says how many operations its layers do, found none; give "
                "--peak instead of --measure");
  measured.peak = mean(operations / seconds, world);
}

// One trainable matrix in a store of its own, through all that happens to it in a step.
double measure_memory(const shard::StoreOptions& options, distributed::Communicator* world) {
  model::Description description;
  description.type = "measure";
  model::Layer layer;
  layer.name = "layer";
  description.layers.push_back(layer);
  model::Parameter parameter;
  parameter.name = "weight";
  parameter.shape = {kOptimizerElements};
  description.declare(0, parameter);
  const shard::Layout layout(description, {}, {});
  shard::StoreOptions own = options;
  own.zero_stage = own.num_weight_buffers = own.num_gradient_buffers = 0;
  shard::Store store(layout, 0, own);
  optim::AdamW optimizer(store, {});
  store.zero_optimizer_and_gradients();
  meet(world);
  const double seconds = fastest_of([&] {
    store.invalidate();
    store.restore(0);
    store.overwrite_flags()[0] = 0;
    store.reduce(0, false);
    optimizer.step(1e-3);
  });
  return mean(memory_bytes(state_memory(layout, 0, own), own) / seconds, world);
}

double measure_exchange(distributed::Communicator& world) {
  const int64_t part = kExchangeElements / world.size();
  std::vector<float> whole(size_t(part * world.size()), 1.0f), own(size_t(part), 1.0f);
  const int64_t before = world.traffic().bytes();
  int64_t sent = 0;
  const double seconds = fastest_of([&] {
    const int64_t begin = world.traffic().bytes();
    const distributed::Memory all{whole.data(), int64_t(whole.size())};
    const distributed::Memory mine{own.data(), part};
    world.reduce_scatter(all, mine, distributed::Reduce::kMean).wait();
    world.all_gather(mine, all).wait();
    sent = world.traffic().bytes() - begin;
  });
  FASTLLM_ASSERT(world.traffic().bytes() > before);
  return mean(double(sent) / seconds, &world);
}

}  // namespace

Measured measure(const train::Settings& settings, model::Model& model,
                 distributed::Communicator* world, const std::function<int64_t()>& idle_bytes) {
  for (const auto& [key, ranks] :
       {std::pair("tensor_parallel", settings.distributed.tensor_parallel),
        {"sequence_data_parallel", settings.distributed.sequence_data_parallel}})
    if (ranks > 1)
      throw Error(Status::kUnsupported,
                  fmt::format("model.distributed.{}: expected 1 to measure layers, each by itself, "
                              "found {}; give --peak instead of --measure",
                              key, ranks));
  const shard::StoreOptions store = train::store_options(settings);
  Measured measured;
  measure_layers(settings, model, store, world, idle_bytes, measured);
  measured.memory_bandwidth = measure_memory(store, world);
  if (world) measured.bandwidth = measure_exchange(*world);
  return measured;
}

}  // namespace fastllm::plan
