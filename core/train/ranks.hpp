// What a run does together with its other ranks, as far as training knows of them. The default is a
// run of one rank, for which every question is answered at once. Borrows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/distributed/communicator.hpp"

namespace fastllm::train {

struct Ranks {
  distributed::Communicator* world = nullptr;  // all ranks; null: one
  // Those that hold the other parts of this rank's weights, and take other samples; null: none.
  distributed::Communicator* data = nullptr;
  // Those that have the other stages, and those that hold other parts of each weight; null: none.
  distributed::Communicator* pipeline = nullptr;
  distributed::Communicator* tensor = nullptr;
  // A further group, such as the ranks that share a tied weight, for the rest of the run. All its
  // members ask for it, in the same order.
  std::function<distributed::Communicator*(const distributed::Group&)> add_group = {};
  // Waits until all ranks are at this place; empty: nobody to wait for.
  std::function<void(const std::string& place)> meet = {};
  // Ends the run unless all ranks have the same text, and names what differs; empty: nobody to ask.
  std::function<void(const std::string& what, const std::string& text)> agree = {};

  bool main() const { return !world || world->rank() == 0; }
  int size() const { return world ? world->size() : 1; }
  // Ranks that work on the same samples.
  int replicas() const { return size() / (data ? data->size() : 1); }
  // The largest of what the ranks say. All ranks ask.
  int64_t most(int64_t here) const;
  // Whether any rank says so. All ranks ask.
  bool any(bool here) const { return most(here) != 0; }
  // What rank 0 says. All ranks ask.
  int64_t of_main(int64_t value) const;
};

}  // namespace fastllm::train
