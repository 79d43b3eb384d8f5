#include "core/base/version.hpp"

namespace fastllm {

std::string version_text() { return FASTLLM_VERSION_TEXT; }

}  // namespace fastllm
