// How long a step takes: what a rank computes, waits for others, sends and gathers, and moves in
// memory, one after the other except for what is said to overlap.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace fastllm::plan {

struct Part {
  std::string name;  // "computing"
  double seconds = 0;
};

struct StepTime {
  // Of the slowest kind of rank; nullopt: not enough is known.
  std::optional<double> seconds;
  std::vector<Part> parts;            // add up to it
  std::string bound_by;               // the largest part
  std::vector<std::string> left_out;  // what was not told, and so is not in it
  double tokens_per_second = 0, days = 0;
  double utilization = 0;  // model operations of a second over the peak of all ranks
};

struct Plan;
struct Hardware;

}  // namespace fastllm::plan
