// Small formatters for people: thousands separators, durations, times. Locale-free and thread-safe.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

namespace fastllm {

// 2770.144 with 2 decimals -> "2,770.14"; nan and inf print as such.
std::string with_commas(double value, int decimals);

// Seconds, rounded to whole ones, as Python prints a timedelta: "0:05:23", "1 day, 2:03:04".
std::string duration_text(double seconds);

// Local date and time to the second: "2025-03-21 21:57:24".
std::string local_time_text(std::time_t time);

// Bytes in 2^20 with two decimals: "692.54 MiB".
std::string mib_text(int64_t bytes);

// "1.0", "0.5", "1e-12": as the reference prints floats.
std::string float_text(double value);

}  // namespace fastllm
