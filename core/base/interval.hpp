// When something happens every n iterations (docs/compatibility.md).
#pragma once

#include <cstdint>
#include <optional>

namespace fastllm {

struct Interval {
  std::optional<int64_t> interval;  // above 0; nullopt: never
  int64_t offset = 0;               // in [0, interval)

  Interval() = default;
  // Reduces the offset modulo the interval.
  Interval(std::optional<int64_t> every, int64_t first);

  bool enabled() const { return interval.has_value(); }
  bool enabled(int64_t iteration) const;
  // How often it was due in 0 .. iteration; iteration 0 counts when the offset is 0.
  int64_t count(int64_t iteration) const;
  // Every iteration of this one is one of `other`. Never is part of everything.
  bool is_sub_interval_of(const Interval& other) const;
};

}  // namespace fastllm
