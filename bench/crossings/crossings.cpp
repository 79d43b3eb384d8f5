// What the way to a plugin costs: one call through the host's table, and all that the host does around the calls of a
// whole step (arguments, activations, schedule), with a model that computes nothing. Prints one JSON object:
// nanoseconds of a forward, of a backward, of a step, and how many calls a step makes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "core/config/node.hpp"
#include "core/data/batch.hpp"
#include "core/model/schedule.hpp"
#include "core/plugin/registry.hpp"
#include "core/shard/layout.hpp"
#include "core/shard/store.hpp"
#include "core/train/executor/executor.hpp"

namespace {

using namespace fastllm;
using Clock = std::chrono::steady_clock;

// Nanoseconds of one repetition: the fastest of a few rounds.
template <class Function>
double fastest(int repetitions, Function&& function) {
  double best = 1e300;
  for (int round = 0; round < 20; ++round) {
    const auto begin = Clock::now();
    for (int i = 0; i < repetitions; ++i) function();
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    best = std::min(best, took.count() / repetitions);
  }
  return best;
}

int run(const char* plugin, int64_t layers) {
  plugin::Registry registry(plugin::SearchOptions{});
  config::Node node = config::Node::map();
  node.set("num_layers", config::Node::integer(layers));
  auto model = registry.load(plugin).models().at(0)->create(node);

  data::Batch batch;
  batch.samples = batch.length = batch.valid_labels = 1;
  batch.tokens = batch.labels = batch.positions = batch.documents = {0};
  batch.cu_seqlens = {0, 1};

  const shard::Layout layout(model->description(), {}, {});
  shard::Store store(layout, 0, {});
  train::Executor executor(*model, store, {});
  const auto schedule = model::make_schedule(train::schedule_options(store, 1, 1, true));
  train::StepInput input;
  input.add(batch);
  input.step = 1;

  // One call, as the executor makes it, on a layer in the middle: one input, one output.
  float number = 0;
  int64_t shape[] = {1, 1}, strides[] = {1, 1};
  DLTensor tensor{&number, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  const std::vector<const DLTensor*> in{&tensor};
  const std::vector<DLTensor*> out{&tensor};
  fastllm_call call{};
  call.size = sizeof call;
  call.flags = FASTLLM_SAVE;
  const double forward = fastest(100000, [&] { model->forward(1, call, in, out); });
  const double backward =
      fastest(100000, [&] { model->backward(1, call, model::Saved(), in, out); });
  const double step = fastest(2000, [&] { executor.train(input, schedule); });
  std::printf(
      "{\"layers\": %lld, \"calls\": %lld, \"forward_ns\": %.1f, \"backward_ns\": %.1f, "
      "\"step_ns\": "
      "%.1f}\n",
      static_cast<long long>(layers), static_cast<long long>(2 * layers), forward, backward, step);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: bench_crossings PLUGIN LAYERS\n");
    return 2;
  }
  try {
    return run(argv[1], std::atoll(argv[2]));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
