// Walks the host's stages once a state and turns every box into sorted, disjoint segments.
#include "layout.hpp"

#include <fastllm/checkpoint_format.hpp>

#include "text.hpp"

namespace fastllm::distributed {
namespace {

// Sorts and drops what is there twice: replicated parameters lie alike on every tensor rank.
void make_disjoint(std::vector<Segment>& segments) {
  std::sort(segments.begin(), segments.end(), [](const Segment& a, const Segment& b) {
    return std::pair(a.global, a.rank) < std::pair(b.global, b.rank);
  });
  std::vector<Segment> kept;
  int64_t covered = 0;
  for (Segment segment : segments) {
    const int64_t skip = std::min(std::max<int64_t>(covered - segment.global, 0), segment.count);
    segment.global += skip;
    segment.flat += skip;
    segment.count -= skip;
    if (segment.count == 0) continue;
    covered = segment.global + segment.count;
    kept.push_back(segment);
  }
  segments = std::move(kept);
}

StateMap map_ranks(const fastllm_world* world, int32_t first_rank, int32_t last_rank,
                   const std::string& state, const std::set<std::string>& without, bool copies) {
  StateMap map;
  for (int32_t rank = first_rank; rank < last_rank; ++rank) {
    int64_t& size = map.sizes[rank];
    StoredParameter* current = nullptr;
    sdk::visit_state(
        world, rank, state,
        [&](const sdk::VisitedPiece& seen) {
          size = std::max(size, seen.group->shard_begin + seen.group->shard_elements);
          const std::string name = seen.piece->parameter;
          const bool frozen = (seen.group->flags & FASTLLM_GROUP_FROZEN) || without.contains(name);
          current = nullptr;
          const bool copy = seen.group->flags & FASTLLM_GROUP_COPY;
          if ((copy && !copies) || (state != "weights" && frozen)) return;
          auto [at, is_new] = map.parameters.try_emplace(name);
          current = &at->second;
          if (!is_new) return;
          current->shape.assign(seen.piece->shape, seen.piece->shape + seen.piece->ndim);
          current->elements = sdk::element_count(seen.piece->shape, seen.piece->ndim);
          map.names.push_back(name);
        },
        [&](const sdk::VisitedPiece&, const fastllm_box& box, int64_t flat) {
          if (!current) return;
          for_each_row(&box, current->elements,
                       [&](int64_t global, int64_t count, int64_t stride, int64_t position) {
                         if (stride == 1) {
                           current->segments.push_back({global, count, rank, flat + position});
                         } else {
                           for (int64_t i = 0; i < count; ++i)
                             current->segments.push_back(
                                 {global + i * stride, 1, rank, flat + position + i});
                         }
                       });
        });
  }
  for (auto& [name, parameter] : map.parameters) make_disjoint(parameter.segments);
  return map;
}

}  // namespace

int64_t check_box(const fastllm_box* box, int64_t elements) {
  if (!box) return elements;
  int64_t total = 1, reach = box->offset;  // the furthest element
  bool inside = box->ndim >= 0 && box->offset >= 0;
  for (int32_t d = 0; inside && d < box->ndim; ++d) {
    int64_t span = 0;
    inside =
        box->shape[d] >= 0 && box->strides[d] >= 0 &&
        !__builtin_mul_overflow(total, box->shape[d], &total) &&
        !__builtin_mul_overflow(std::max<int64_t>(box->shape[d] - 1, 0), box->strides[d], &span) &&
        !__builtin_add_overflow(reach, span, &reach);
  }
  if (inside && total == 0) return 0;
  if (!inside || reach >= elements) {
    sdk::fail(FASTLLM_INVALID, cat("expected a box inside a tensor of ", elements,
                                   " elements, found one that reaches element ", reach));
  }
  return total;
}

StateMap map_state(const fastllm_world* world, int32_t first_rank, int32_t last_rank,
                   const std::string& state, const std::set<std::string>& without) {
  return map_ranks(world, first_rank, last_rank, state, without, false);
}

StateMap map_rank(const fastllm_world* world, int32_t rank, const std::string& state) {
  return map_ranks(world, rank, rank + 1, state, {}, true);
}

std::set<std::string> frozen_parameters(const fastllm_world* world, int32_t ranks) {
  std::set<std::string> names;
  for (int32_t rank = 0; rank < ranks; ++rank) {
    sdk::visit_state(
        world, rank, "weights",
        [&](const sdk::VisitedPiece& seen) {
          if (seen.group->flags & FASTLLM_GROUP_FROZEN) names.insert(seen.piece->parameter);
        },
        [](const sdk::VisitedPiece&, const fastllm_box&, int64_t) {});
  }
  return names;
}

}  // namespace fastllm::distributed
