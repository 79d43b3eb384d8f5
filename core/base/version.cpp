#include "core/base/version.hpp"

namespace fastllm {

const char* version_text() { return FASTLLM_VERSION_TEXT; }

}  // namespace fastllm
