// Interval arithmetic with a floor that also holds before the offset.
#include "core/base/interval.hpp"

#include <limits>

namespace fastllm {
namespace {

int64_t floor_divide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

}  // namespace

Interval::Interval(std::optional<int64_t> every, int64_t first, std::optional<double> period)
    : interval(every), offset(every ? first % *every : first), seconds(period) {}

bool Interval::enabled(int64_t iteration) const {
  return interval && (iteration - offset) % *interval == 0;
}

bool Interval::due(int64_t iteration, double seconds_since) const {
  return enabled(iteration) || (seconds && seconds_since >= *seconds);
}

int64_t Interval::count(int64_t iteration) const {
  if (!interval) return 0;
  const int64_t before = floor_divide(iteration - offset, *interval);
  return before < std::numeric_limits<int64_t>::max() ? before + 1 : before;
}

bool Interval::is_sub_interval_of(const Interval& other) const {
  if (!interval) return true;
  if (!other.interval) return false;
  return *interval % *other.interval == 0 &&
         offset % *other.interval == other.offset % *other.interval;
}

}  // namespace fastllm
