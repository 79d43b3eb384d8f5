// Which fastllm this is: the only place that knows.
#pragma once

namespace fastllm {

// "0.1.0"; stays for the life of the process.
const char* version_text();

}  // namespace fastllm
