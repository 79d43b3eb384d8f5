// checkpoint::Format, Reader and Writer over a plugin's fastllm_format_api.
#pragma once

#include <memory>

#include "core/checkpoint/format.hpp"
#include "core/plugin/context.hpp"

namespace fastllm::plugin {

// Copies and checks the table and reads the declared fields. Throws what is wrong with it, without
// the plugin's name.
std::unique_ptr<checkpoint::Format> make_format(std::shared_ptr<const Identity> identity,
                                                const fastllm_format_api* theirs);

}  // namespace fastllm::plugin
