// The ranks that hold a stage because they use a weight of it that lives there (Layout::tied).
#pragma once

#include <map>

#include "core/distributed/groups.hpp"
#include "core/shard/layout.hpp"

namespace fastllm::shard {

// By main stage, of those that this rank shares with another; ascending. A group is named after the
// first weight, and one serves all tied weights of the stage, since it is held whole.
std::map<int, distributed::Group> tied_groups(const Layout& layout, int rank);

}  // namespace fastllm::shard
