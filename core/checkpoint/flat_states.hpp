// The flat states of one rank that a save takes or a load fills, with the layout that says what
// lies in them. Apart from the store so that formats and arithmetic work for any rank of any world.
// Borrows everything.
#pragma once

#include <fastllm/plugin.h>

#include <functional>
#include <string>
#include <vector>

#include "core/base/tensor.hpp"
#include "core/shard/layout.hpp"
#include "core/shard/store.hpp"

namespace fastllm::checkpoint {

struct FlatState {
  std::string name;          // "weights", "exp_avgs", ...
  DLTensor* flat = nullptr;  // 1-D, in host memory; null: in parts, of several types
  std::vector<shard::StatePart> parts = {};  // side by side from 0 on
  DLDataType file_type() const { return flat ? flat->dtype : kFloat32; }
  int64_t file_bytes() const { return file_type().bits / 8; }  // of an element
  // In memory, from a position of the state to the end of the group that it is in.
  DLDataType type_at(int64_t position) const {
    return flat ? flat->dtype : shard::part_of(parts, position).type;
  }
  char* at(int64_t position) const {
    if (!flat) return reinterpret_cast<char*>(shard::part_of(parts, position).at(position));
    return static_cast<char*>(flat->data) + int64_t(flat->byte_offset) +
           position * (flat->dtype.bits / 8);
  }
};

// Waits until all ranks of a world are at the same place, such as "saving iteration 100".
using Meet = std::function<void(const std::string& place)>;

struct FlatStates {
  const shard::Layout* layout = nullptr;
  int rank = 0;
  std::vector<FlatState> states;  // weights first; never gradients
};

// Of a running job: weights and the optimizer's states.
inline FlatStates states_of(shard::Store& store) {
  FlatStates result{&store.layout(), store.rank(), {}};
  for (const std::string& name : store.states()) {
    if (name == "grads") continue;
    DLTensor* const flat = store.flat(name);
    result.states.push_back(
        {name, flat, flat ? std::vector<shard::StatePart>{} : store.parts(name)});
  }
  return result;
}

// body(placed, group, piece, parameter) for each piece of a rank, in the order of its states; group
// and piece are indices as runs_of takes them.
template <class Body>
void for_each_piece(const FlatStates& states, Body&& body) {
  for (const shard::Placed& placed : states.layout->on_device(states.rank)) {
    const auto& groups = states.layout->stages()[size_t(placed.stage)].groups;
    for (int g = 0; g < int(groups.size()); ++g) {
      for (int p = 0; p < int(groups[size_t(g)].pieces.size()); ++p) {
        const int parameter = groups[size_t(g)].pieces[size_t(p)].parameter;
        body(placed, g, p, states.layout->description().parameters[size_t(parameter)]);
      }
    }
  }
}

}  // namespace fastllm::checkpoint
