// Every configuration key of the core (docs/compatibility.md, without the model's own), in the
// order of dumps.
#pragma once

#include <vector>

#include "core/config/schema.hpp"

namespace fastllm::train {

config::Schema make_core_schema();

// Declares a model plugin's fields below model.base_model, in the place the dumps have them.
void add_model_fields(config::Schema& schema, const std::vector<config::Field>& fields);

}  // namespace fastllm::train
