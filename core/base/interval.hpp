// When something happens: every n iterations, every so many seconds, or both (docs/compatibility.md).
#pragma once

#include <cstdint>
#include <optional>

namespace fastllm {

struct Interval {
  std::optional<int64_t> interval;  // above 0; nullopt: never
  int64_t offset = 0;               // in [0, interval)
  // Also when so much time has passed since it last happened, or since the loop began. Ours.
  std::optional<double> seconds;

  Interval() = default;
  // Reduces the offset modulo the interval.
  Interval(std::optional<int64_t> every, int64_t first, std::optional<double> period = {});

  // At all, by iterations or by time.
  bool enabled() const { return interval || seconds; }
  // By iterations alone, as what follows: a pure function of the iteration.
  bool enabled(int64_t iteration) const;
  // By either. seconds_since: since it last happened. Ranks have different clocks: what they find
  // must be put to a vote.
  bool due(int64_t iteration, double seconds_since) const;
  // How often it was due in 0 .. iteration; iteration 0 counts when the offset is 0.
  int64_t count(int64_t iteration) const;
  // Every iteration of this one is one of `other`. Never is part of everything.
  bool is_sub_interval_of(const Interval& other) const;
};

}  // namespace fastllm
