// Means by name over some steps: losses and metrics of a log interval or an evaluation.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/training_state.hpp"
#include "core/train/metrics/metrics.hpp"

namespace fastllm::train {

class Means {
 public:
  void add(const std::map<std::string, double>& values) {
    for (const auto& [name, value] : values) sums_.values[name] += value;
    ++sums_.steps;
  }
  // Those names, in that order; nan where nothing was added. Starts again.
  std::vector<std::pair<std::string, double>> take(const std::vector<std::string>& names) {
    std::vector<std::pair<std::string, double>> means;
    for (const auto& name : names) {
      means.emplace_back(
          name, sums_.steps ? sums_.values[name] / double(sums_.steps) : Metrics::kMissing);
    }
    sums_ = {};
    return means;
  }
  std::vector<std::pair<std::string, double>> take_all() {
    std::vector<std::pair<std::string, double>> means;
    for (const auto& [name, sum] : sums_.values)
      means.emplace_back(name, sum / double(sums_.steps));
    sums_ = {};
    return means;
  }
  // What was added so far, for a checkpoint, and back.
  const checkpoint::Sums& sums() const { return sums_; }
  void restore(checkpoint::Sums sums) { sums_ = std::move(sums); }

 private:
  checkpoint::Sums sums_;
};

}  // namespace fastllm::train
