// The configuration keys of gpt, below model.base_model. Order of declaration is the order of every
// dump.
#pragma once

#include <fastllm/plugin.hpp>

namespace fastllm::gpt {

void declare_fields(const sdk::Sink& sink);

}  // namespace fastllm::gpt
