// Names of later releases that guides show, with what they are called today (training-config.md 8).
#pragma once

#include "core/config/schema.hpp"

namespace fastllm::train {

void add_later_names(config::Schema& schema);

}  // namespace fastllm::train
