#include "core/train/executor/crossings.hpp"

#include <algorithm>

namespace fastllm::train {
namespace {

// By value: the stages that read it, ascending, each once.
std::vector<std::vector<int>> reading_stages(const Wiring& wiring, const shard::Layout& layout) {
  std::vector<std::vector<int>> stages(wiring.values.size());
  for (size_t l = 0; l < wiring.layers.size(); ++l) {
    const int stage = layout.stage_of_layer(int(l));
    for (const Input& input : wiring.layers[l].inputs) {
      if (input.value < 0 || stage < 0) continue;
      std::vector<int>& readers = stages[size_t(input.value)];
      if (readers.empty() || readers.back() != stage) readers.push_back(stage);
    }
  }
  return stages;
}

}  // namespace

Crossings make_crossings(const Wiring& wiring, const shard::Layout& layout) {
  Crossings crossings;
  crossings.into.resize(layout.stages().size());
  const int ranks = layout.world().pipeline;
  const auto readers = reading_stages(wiring, layout);
  for (size_t v = 0; v < wiring.values.size(); ++v) {
    const int first = layout.stage_of_layer(wiring.values[v].layer);
    if (first < 0) continue;  // made on every rank
    std::vector<char> has(size_t(ranks), 0);
    has[size_t(first % ranks)] = 1;
    const auto wanted_from = [&](int stage) {
      return std::any_of(readers[v].begin(), readers[v].end(), [&](int reader) {
        return reader >= stage && !has[size_t(reader % ranks)];
      });
    };
    for (int stage = first + 1; wanted_from(stage); ++stage) {
      if (has[size_t(stage % ranks)]) continue;
      crossings.into[size_t(stage)].push_back(int(v));
      has[size_t(stage % ranks)] = 1;
    }
  }
  return crossings;
}

std::vector<int> uses_on(const Wiring& wiring, const shard::Layout& layout,
                         const Crossings& crossings, int pipeline_rank) {
  std::vector<int> uses(wiring.values.size(), 0);
  const std::vector<char> here = layers_on(wiring, layout, pipeline_rank);
  for (size_t l = 0; l < wiring.layers.size(); ++l)
    for (const Input& input : wiring.layers[l].inputs)
      if (here[l] && input.value >= 0) ++uses[size_t(input.value)];
  const int ranks = layout.world().pipeline;
  for (size_t stage = 1; stage < crossings.into.size(); ++stage)
    if (int(stage - 1) % ranks == pipeline_rank)
      for (int value : crossings.into[stage]) ++uses[size_t(value)];
  return uses;
}

std::vector<char> layers_on(const Wiring& wiring, const shard::Layout& layout, int pipeline_rank) {
  std::vector<char> here;
  for (size_t l = 0; l < wiring.layers.size(); ++l) {
    const int stage = layout.stage_of_layer(int(l));
    here.push_back(stage < 0 || layout.stages()[size_t(stage)].pipeline_rank == pipeline_rank);
  }
  return here;
}

}  // namespace fastllm::train
