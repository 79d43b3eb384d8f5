#include "core/train/parameter_views.hpp"

namespace fastllm::train {

std::vector<ParameterView> parameter_views(shard::Store& store, const std::string& state) {
  std::vector<ParameterView> views;
  if (!store.has_state(state)) return views;
  const shard::Layout& layout = store.layout();
  const shard::World& world = layout.world();
  const int data_rank = world.data_rank(store.rank());
  const std::vector<shard::StatePart>& parts = store.parts(state);
  for (const shard::Placed& placed : layout.on_device(store.rank())) {
    const auto& groups = layout.stages()[size_t(placed.stage)].groups;
    for (size_t g = 0; g < groups.size() && !placed.copy; ++g) {
      const int64_t begin = layout.shard_begin(store.rank(), state, placed.stage, int(g));
      if (begin < 0) continue;
      for (const shard::Piece& piece : groups[g].pieces) {
        const int64_t first = groups[g].to_shard(piece.begin, data_rank, world.data);
        const int64_t last = groups[g].to_shard(piece.end, data_rank, world.data);
        if (first == last) continue;
        const model::Parameter& p = layout.description().parameters[size_t(piece.parameter)];
        ParameterView view;
        view.parameter = piece.parameter;
        view.shape = last - first == p.elements() ? p.shape : std::vector<int64_t>{last - first};
        const shard::StatePart& part = shard::part_of(parts, begin + first);
        view.tensor.data = part.at(begin + first);
        view.tensor.device = {kDLCPU, 0};
        view.tensor.dtype = part.type;
        views.push_back(std::move(view));
      }
    }
  }
  for (ParameterView& view : views) {
    view.tensor.shape = view.shape.data();
    view.tensor.ndim = int32_t(view.shape.size());
  }
  return views;
}

}  // namespace fastllm::train
