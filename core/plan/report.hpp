// A plan for people, and for programs.
#pragma once

#include <string>

#include "core/config/node.hpp"
#include "core/plan/plan.hpp"

namespace fastllm::plan {

std::string report_text(const Plan& plan, const Hardware& hardware);
config::Node report_node(const Plan& plan, const Hardware& hardware);

}  // namespace fastllm::plan
