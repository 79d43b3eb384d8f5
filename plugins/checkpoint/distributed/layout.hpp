// Where each element of each parameter lies in the rank files, from the host's stages: a parameter
// is a list of segments, contiguous both in the global row-major tensor and in one rank's flat
// state. All arithmetic of the layout is the host's.
#pragma once

#include <fastllm/checkpoint_format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace fastllm::distributed {

struct Segment {
  int64_t global = 0;  // first element in the parameter
  int64_t count = 0;
  int32_t rank = 0;
  int64_t flat = 0;  // first element in that rank's state
};

struct StoredParameter {
  std::vector<int64_t> shape;  // global
  int64_t elements = 0;
  std::vector<Segment> segments;  // by global, each element in one of them
};

// One state over some ranks.
struct StateMap {
  std::vector<std::string> names;  // in the order of stages and buffers
  std::map<std::string, StoredParameter> parameters;
  std::map<int32_t, int64_t> sizes;  // elements of each rank's flat state, padding included
};

// Ranks [first, last). Left out are copies of tied stages, and of an optimizer state all parameters
// of frozen groups and those in `without`; of what several tensor ranks hold alike the first is
// taken.
StateMap map_state(const fastllm_world* world, int32_t first_rank, int32_t last_rank,
                   const std::string& state, const std::set<std::string>& without = {});
// All that one rank holds, copies too.
StateMap map_rank(const fastllm_world* world, int32_t rank, const std::string& state);

// Parameters in frozen groups.
std::set<std::string> frozen_parameters(const fastllm_world* world, int32_t ranks);

// Calls row(global, count, stride, position) for each innermost row of a box of a tensor with that
// many elements: `count` elements of the tensor from `global` on, `stride` apart, which are the
// box's own from `position` on. Null box: the whole tensor. Refuses a box that leaves the tensor.
template <class Row>
void for_each_row(const fastllm_box* box, int64_t elements, Row&& row);
// Throws unless the box lies inside; returns its number of elements.
int64_t check_box(const fastllm_box* box, int64_t elements);

template <class Row>
void for_each_row(const fastllm_box* box, int64_t elements, Row&& row) {
  const int64_t total = check_box(box, elements);
  if (total == 0) return;
  if (!box || box->ndim == 0) return row(box ? box->offset : 0, total, int64_t(1), int64_t(0));
  const int32_t last = box->ndim - 1;
  std::vector<int64_t> index(size_t(last), 0);
  int64_t global = box->offset;
  for (int64_t position = 0; position < total; position += box->shape[last]) {
    row(global, box->shape[last], box->strides[last], position);
    for (int32_t d = last - 1; d >= 0; --d) {
      global += box->strides[d];
      if (++index[size_t(d)] < box->shape[d]) break;
      global -= box->shape[d] * box->strides[d];
      index[size_t(d)] = 0;
    }
  }
}

// Calls part(segment, skip, offset, count) for the segments that [global, global + count) touches:
// `count` elements that begin `skip` into the segment and `offset` into the range. Returns how many
// elements were found.
template <class Part>
int64_t for_each_part(const StoredParameter& parameter, int64_t global, int64_t count,
                      Part&& part) {
  auto after = [](int64_t value, const Segment& segment) { return value < segment.global; };
  auto at = std::upper_bound(parameter.segments.begin(), parameter.segments.end(), global, after);
  if (at != parameter.segments.begin()) --at;
  int64_t found = 0;
  for (; at != parameter.segments.end() && at->global < global + count; ++at) {
    const int64_t begin = std::max(global, at->global);
    const int64_t end = std::min(global + count, at->global + at->count);
    if (begin >= end) continue;
    part(*at, begin - at->global, begin - global, end - begin);
    found += end - begin;
  }
  return found;
}

}  // namespace fastllm::distributed
