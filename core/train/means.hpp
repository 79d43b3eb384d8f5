// Means by name over some steps: losses and metrics of a log interval or an evaluation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/train/metrics/metrics.hpp"

namespace fastllm::train {

class Means {
 public:
  void add(const std::map<std::string, double>& values) {
    for (const auto& [name, value] : values) sums_[name] += value;
    ++count_;
  }
  // Those names, in that order; nan where nothing was added. Starts again.
  std::vector<std::pair<std::string, double>> take(const std::vector<std::string>& names) {
    std::vector<std::pair<std::string, double>> means;
    for (const auto& name : names) {
      means.emplace_back(name, count_ ? sums_[name] / double(count_) : Metrics::kMissing);
    }
    clear();
    return means;
  }
  std::vector<std::pair<std::string, double>> take_all() {
    std::vector<std::pair<std::string, double>> means;
    for (const auto& [name, sum] : sums_) means.emplace_back(name, sum / double(count_));
    clear();
    return means;
  }

 private:
  void clear() {
    sums_.clear();
    count_ = 0;
  }
  std::map<std::string, double> sums_;
  int64_t count_ = 0;
};

}  // namespace fastllm::train
