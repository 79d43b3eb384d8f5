#include "core/plan/hardware.hpp"

#include <charconv>
#include <cmath>
#include <utility>

namespace fastllm::plan {

using distributed::GroupKind;
using distributed::World;

std::optional<double> parse_quantity(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || !std::isfinite(value) || value <= 0) return std::nullopt;
  const std::string_view unit(end, size_t(text.data() + text.size() - end));
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"", 1},     {"k", 1e3},     {"M", 1e6},     {"G", 1e9},     {"T", 1e12},
      {"P", 1e15}, {"Ki", 0x1p10}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}};
  for (const auto& [name, factor] : kUnits)
    if (unit == name) return value * factor;
  return std::nullopt;
}

bool spans_computers(const World& world, GroupKind kind) {
  const int size = distributed::group_size(world, kind);
  if (size == 1) return false;
  const distributed::Group group = distributed::group_of(world, kind, 0);
  const int here = group.members.front() / world.local_world_size;
  for (int rank : group.members)
    if (rank / world.local_world_size != here) return true;
  return false;
}

std::optional<double> Hardware::bandwidth(const World& world, GroupKind kind) const {
  const auto own = group.find(distributed::group_name(kind));
  if (own != group.end()) return own->second;
  return spans_computers(world, kind) ? inter : intra;
}

}  // namespace fastllm::plan
