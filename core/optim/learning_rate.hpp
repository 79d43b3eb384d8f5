// Learning rate as a function of the update number (docs/compatibility.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace fastllm::optim {

enum class DecayStyle { kConstant, kLinear, kPower, kCosine };

struct LearningRate {
  double base = 1e-4;
  DecayStyle decay_style = DecayStyle::kConstant;
  std::optional<int64_t> decay_iterations;  // the update at which decay ends, warmup included
  double decay_power = 1;
  int64_t warmup_iterations = 0;
  double minimum = 0;
  std::string schedule;  // "linear,10,0,0.001;constant,100,0.001": replaces the others; "": unset

  // Throws Error(kInvalid); its text begins with the key ("decay_iterations: ...").
  void validate() const;
  double at(int64_t update) const;  // update: 1 for the first successful one
};

}  // namespace fastllm::optim
