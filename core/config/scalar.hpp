// How a scalar's text becomes a value and back: YAML 1.2's core schema when reading, forms that
// YAML 1.1 readers agree with when writing. The digits of a real number are the fewest that give it
// back. Internal to core/config.
#pragma once

#include <string>
#include <string_view>

#include "core/config/node.hpp"

namespace fastllm::config {

// Value of a plain (unquoted) scalar. Text that no rule of the core schema takes stays text
// ("1_000", "on", "1e"). A number beyond the range of a double throws Error(kInvalid).
Node resolve_plain(std::string_view text);

// "0.0001", "1.0e-05", ".inf": as YAML 1.1 and 1.2 readers both take for a float.
std::string yaml_real(double value);
// The same number for JSON; not finite: "null", since JSON has no other word for it.
std::string json_real(double value);
// Text as a YAML scalar: plain where every reader takes it for text, else quoted.
std::string yaml_text(std::string_view text);
std::string json_text(std::string_view text);

// Byte position of the first thing that is not UTF-8, or a NUL; npos: none.
size_t find_bad_utf8(std::string_view text);

}  // namespace fastllm::config
