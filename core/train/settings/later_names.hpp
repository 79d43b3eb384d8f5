// Names of later releases that guides show, with what they are called today (docs/compatibility.md).
#pragma once

#include "core/config/schema.hpp"

namespace fastllm::train {

void add_later_names(config::Schema& schema);

}  // namespace fastllm::train
