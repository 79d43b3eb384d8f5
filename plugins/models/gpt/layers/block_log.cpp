// One pass over a tensor a number: for looking at a run, not for speed.
#include "layers/block_log.hpp"

#include <unistd.h>
#include <fastllm/plugin.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

namespace fastllm::gpt {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Resident memory of the process; Linux tells it in pages.
double resident_mib() {
  std::ifstream file("/proc/self/statm");
  double all = 0, resident = 0;
  file >> all >> resident;
  return resident * double(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

std::string statistics(const at::Tensor& tensor, int64_t level) {
  const float* values = tensor.const_data_ptr<float>();
  const int64_t count = tensor.numel();
  if (count == 0) return "";
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < count; ++i) sum += values[i];
  const double mean = sum / double(count);
  for (int64_t i = 0; i < count; ++i) squares += (values[i] - mean) * (values[i] - mean);
  std::string text =
      " mean " + number(mean) + " deviation " + number(std::sqrt(squares / double(count)));
  if (level < 3) return text;
  const int64_t shown = std::min(int64_t{1} << std::min<int64_t>(level - 3, 20), count);
  text += " values";
  for (int64_t i = 0; i < shown; ++i)
    text.append(1, ' ').append(number(values[i * (count / shown)]));
  return text;
}

}  // namespace

void BlockLog::write(const char* what, const at::Tensor& tensor) const {
  std::string line = prefix_ + " " + what;
  if (level_ > 0 && tensor.defined()) {
    line += " [";
    for (int64_t i = 0; i < tensor.dim(); ++i)
      line += (i ? ", " : "") + std::to_string(tensor.size(i));
    line += "]";
    if (level_ > 1) line += statistics(tensor, level_);
  }
  if (memory_) line += " | resident " + number(resident_mib()) + " MiB";
  sdk::log_info(line);
}

}  // namespace fastllm::gpt
