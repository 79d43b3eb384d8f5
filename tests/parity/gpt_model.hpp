// gpt from the library's file, as the host loads it, with its keys given as overrides.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/model/model.hpp"
#include "core/plugin/registry.hpp"

namespace fastllm::testing {

using Overrides = std::vector<std::string>;  // "transformer.window_size=5"; the last one counts
Overrides with(Overrides base, const Overrides& more);

// Plugins are never unloaded: one registry for all tests of a program.
plugin::ModelFactory& gpt();

// shape: what the program's models have in common; overrides: what this one has besides.
std::unique_ptr<model::Model> make_gpt(const Overrides& shape, const Overrides& overrides);

}  // namespace fastllm::testing
