// The host's "fastllm.collectives/0": lets plugins communicate over the groups of the running job.
#pragma once

#include <fastllm/collectives.h>

#include <functional>
#include <string_view>

#include "core/distributed/communicator.hpp"

namespace fastllm::plugin {

// By a group's name; null: there is none of that name.
using GroupFinder = std::function<distributed::Communicator*(std::string_view name)>;

// Makes the table available to plugins until the next call; an empty finder takes it away: one rank.
// Before plugins ask for tables, and not while one is being called. What the finder gives stays meanwhile.
void offer_collectives(GroupFinder finder);

}  // namespace fastllm::plugin
