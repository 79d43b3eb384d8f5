// model::Model and ModelFactory over a plugin's fastllm_model_api.
#pragma once

#include <memory>

#include "core/plugin/context.hpp"
#include "core/plugin/registry.hpp"

namespace fastllm::plugin {

// Copies and checks the table and reads the declared fields. Throws what is wrong with it, without
// the plugin's name.
std::unique_ptr<ModelFactory> make_model_factory(std::shared_ptr<const Identity> identity,
                                                 const fastllm_model_api* theirs);

}  // namespace fastllm::plugin
