// The flat states of one rank that a save takes or a load fills, with the layout that says what
// lies in them. Apart from the store so that formats and arithmetic work for any rank of any world.
// Borrows everything.
#pragma once

#include <fastllm/plugin.h>

#include <functional>
#include <string>
#include <vector>

#include "core/shard/layout.hpp"
#include "core/shard/store.hpp"

namespace fastllm::checkpoint {

struct FlatState {
  std::string name;          // "weights", "exp_avgs", ...
  DLTensor* flat = nullptr;  // 1-D, in host memory
  int64_t elements() const { return flat->shape[0]; }
  int64_t element_bytes() const { return flat->dtype.bits / 8; }
  char* bytes() const { return static_cast<char*>(flat->data) + flat->byte_offset; }
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
    if (name != "grads") result.states.push_back({name, store.flat(name)});
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
