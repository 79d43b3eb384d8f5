// Resident memory of this process, from the operating system (docs/compatibility.md, runs on CPU). Linux: /proc/self/status.
// One reader: the training thread.
#pragma once

namespace fastllm::train {

// In 2^20 bytes; nan where the system does not tell.
struct MemoryUse {
  double now;          // resident set
  double peak;         // highest since the last read
  double global_peak;  // highest of the process's life
};

class MemoryProbe {
 public:
  // Reads, then starts a new peak where the system permits it (else `peak` is that of the process).
  MemoryUse read();

 private:
  double global_peak_ = 0;
};

}  // namespace fastllm::train
