#include "core/base/text.hpp"

#include <fmt/format.h>

#include <cmath>

namespace fastllm {

std::string with_commas(double value, int decimals) {
  if (!std::isfinite(value)) return fmt::format("{}", value);
  std::string digits = fmt::format("{:.{}f}", std::fabs(value), decimals);
  size_t whole = digits.find('.');
  if (whole == std::string::npos) whole = digits.size();
  for (size_t i = whole; i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return std::signbit(value) ? "-" + digits : digits;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{}", seconds);
  auto total = int64_t(std::nearbyint(seconds));
  int64_t days = total / 86400, rest = total % 86400;
  std::string clock = fmt::format("{}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
  if (days == 0) return clock;
  return fmt::format("{} day{}, {}", days, days == 1 ? "" : "s", clock);
}

std::string local_time_text(std::time_t time) {
  std::tm parts{};
  localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string mib_text(int64_t bytes) { return with_commas(double(bytes) / (1 << 20), 2) + " MiB"; }

std::string float_text(double value) {
  std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

}  // namespace fastllm
