// What a plan is told of the machines: how fast a rank computes, reads memory and sends. All that is
// not told is left out of the plan, and said to be.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/distributed/groups.hpp"

namespace fastllm::plan {

// "989T" -> 989e12: a number with k, M, G, T or P behind it, powers of 1000; with Ki, Mi, Gi, Ti of
// 1024. nullopt: no such thing, or not above 0.
std::optional<double> parse_quantity(std::string_view text);

struct Hardware {
  std::optional<double> peak;              // FLOP/s of a rank in its products
  std::optional<double> memory_bandwidth;  // bytes/s of a rank, read and written
  std::optional<double> memory;            // bytes that a rank may take
  // Bytes/s that a rank sends: to ranks of its computer, to others, and by name of a group ("data"),
  // which comes before both.
  std::optional<double> intra, inter;
  std::map<std::string, double> group = {};
  double overlap = 0;  // share of gathering and reducing that goes on while layers compute

  std::optional<double> bandwidth(const distributed::World& world,
                                  distributed::GroupKind kind) const;
};

// Whether ranks of one group of that kind are on several computers.
bool spans_computers(const distributed::World& world, distributed::GroupKind kind);

}  // namespace fastllm::plan
