#include "core/shard/tied_groups.hpp"

#include <set>
#include <string>

namespace fastllm::shard {

std::map<int, distributed::Group> tied_groups(const Layout& layout, int rank) {
  std::map<int, std::set<int>> users;  // pipeline ranks by main stage
  std::map<int, std::string> names;
  for (const Tied& tied : layout.tied()) {
    for (int stage : tied.stages)
      users[tied.main_stage].insert(layout.stages()[size_t(stage)].pipeline_rank);
    names.emplace(tied.main_stage, layout.description().parameters[size_t(tied.parameter)].name);
  }
  std::map<int, distributed::Group> groups;
  for (const auto& [stage, members] : users) {
    const auto group = distributed::tied_group(layout.world(), names.at(stage),
                                               {members.begin(), members.end()}, rank);
    if (group) groups.emplace(stage, *group);
  }
  return groups;
}

}  // namespace fastllm::shard
