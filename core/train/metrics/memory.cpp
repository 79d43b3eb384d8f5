#include "core/train/metrics/memory.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

namespace fastllm::train {
namespace {

// Value of a "VmRSS:   123 kB" line in 2^20 bytes.
double status_mib(const std::string& line, const char* key) {
  if (line.rfind(key, 0) != 0) return std::numeric_limits<double>::quiet_NaN();
  return std::strtod(line.c_str() + std::string(key).size(), nullptr) / 1024;
}

}  // namespace

MemoryUse MemoryProbe::read() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  MemoryUse use{nan, nan, nan};
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (double v = status_mib(line, "VmRSS:"); !std::isnan(v)) use.now = v;
    if (double v = status_mib(line, "VmHWM:"); !std::isnan(v)) use.peak = v;
  }
  if (std::isnan(use.peak)) return use;
  global_peak_ = std::max(global_peak_, use.peak);
  use.global_peak = global_peak_;
  std::ofstream("/proc/self/clear_refs")
      << "5";  // resets VmHWM; refused in some containers, which only widens `peak`
  return use;
}

}  // namespace fastllm::train
