// What made this run: the program, its plugins, its data, its configuration
// (core/checkpoint/provenance.hpp).
#pragma once

#include "apps/host/job.hpp"
#include "core/config/node.hpp"
#include "core/train/evaluator.hpp"

namespace fastllm::host {

// Names the plugins that are loaded by now.
config::Node make_provenance(Job& job, const train::Datasets& datasets);

}  // namespace fastllm::host
