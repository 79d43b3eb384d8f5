// Rows of a tensor-parallel cut, then the interval of them that a data rank holds, as boxes.
#include "core/checkpoint/placement.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fastllm::checkpoint {

int64_t Run::count() const {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return n;
}

fastllm_box Run::box() const {
  return {int32_t(shape.size()), offset, shape.data(), strides.data()};
}

std::vector<Run> runs_of(const shard::Layout& layout, int rank, const std::string& state, int stage,
                         int group_index, int piece_index) {
  std::vector<Run> runs;
  const int64_t state_begin = layout.shard_begin(rank, state, stage, group_index);
  if (state_begin < 0) return runs;
  const shard::Group& group = layout.stages()[size_t(stage)].groups[size_t(group_index)];
  const shard::Piece& piece = group.pieces[size_t(piece_index)];
  const shard::World& world = layout.world();
  const int data_rank = world.data_rank(rank);

  // The interval of the group's buffer that this rank holds, in elements of the piece.
  const int64_t shard_first = data_rank * group.shard_elements;
  const int64_t begin = std::max(piece.begin, shard_first) - piece.begin;
  const int64_t end = std::min(piece.end, shard_first + group.shard_elements) - piece.begin;
  if (begin >= end) return runs;
  const int64_t flat_of_piece = state_begin + piece.begin - shard_first;

  // Blocks and what lies outside of them are equally far apart: one count of rows.
  const shard::Cut cut =
      shard::cut_of(layout.description().parameters[size_t(piece.parameter)], world, rank);
  const int64_t rows = cut.outer * cut.blocks, length = cut.chunk;
  const int64_t row_stride = rows > 1 ? cut.block_stride : length;
  auto add = [&](int64_t first, int64_t count) {  // within one row
    runs.push_back({cut.offset + first / length * row_stride + first % length,
                    {count},
                    {1},
                    flat_of_piece + first});
  };
  if (rows == 1 || row_stride == length) {
    runs.push_back({cut.offset + begin, {end - begin}, {1}, flat_of_piece + begin});
    return runs;
  }
  int64_t at = begin;
  if (at % length != 0) {
    const int64_t count = std::min(length - at % length, end - at);
    add(at, count);
    at += count;
  }
  if (const int64_t whole = (end - at) / length; whole > 0) {
    runs.push_back({cut.offset + at / length * row_stride,
                    {whole, length},
                    {row_stride, 1},
                    flat_of_piece + at});
    at += whole * length;
  }
  if (at < end) add(at, end - at);
  return runs;
}

void LayoutText::stage(int index) { text_ += fmt::format("stage {}\n", index); }
void LayoutText::group(const std::string& name, int64_t shard_elements, int64_t shard_padding,
                       int64_t shard_begin) {
  held_ = shard_elements > 0;
  if (held_)
    text_ += fmt::format("group {} {} {} {}\n", name, shard_elements, shard_padding, shard_begin);
}
void LayoutText::piece(const std::string& parameter, const std::vector<int64_t>& shape) {
  if (held_)
    text_ += fmt::format("piece {}:{} [{}]\n", parameter.size(), parameter, fmt::join(shape, ","));
}
void LayoutText::run(const fastllm_box& box, int64_t flat) {
  text_ += fmt::format("run {} [{}] [{}] {}\n", box.offset,
                       fmt::join(box.shape, box.shape + box.ndim, ","),
                       fmt::join(box.strides, box.strides + box.ndim, ","), flat);
}

std::string layout_text(const shard::Layout& layout, int rank, const std::string& state) {
  LayoutText text;
  const shard::World& world = layout.world();
  for (const shard::Placed& placed : layout.on_device(rank)) {
    const shard::Stage& stage = layout.stages()[size_t(placed.stage)];
    text.stage(stage.index);
    for (int g = 0; g < int(stage.groups.size()); ++g) {
      const shard::Group& group = stage.groups[size_t(g)];
      if (!layout.state_has(state, group)) continue;
      text.group(group.name, group.shard_elements,
                 group.shard_padding(world.data_rank(rank), world.data),
                 layout.shard_begin(rank, state, placed.stage, g));
      for (int p = 0; p < int(group.pieces.size()); ++p) {
        const model::Parameter& parameter =
            layout.description().parameters[size_t(group.pieces[size_t(p)].parameter)];
        text.piece(parameter.name, parameter.shape);
        for (const Run& run : runs_of(layout, rank, state, placed.stage, g, p))
          text.run(run.box(), run.flat);
      }
    }
  }
  return text.text();
}

}  // namespace fastllm::checkpoint
