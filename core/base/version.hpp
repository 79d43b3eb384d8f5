// Which fastllm this is: the only place that knows.
#pragma once

#include <string>

namespace fastllm {

// "0.1.0"
std::string version_text();

}  // namespace fastllm
