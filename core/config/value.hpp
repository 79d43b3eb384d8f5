// One value against its declaration: types, bounds, choices, and the sentence that says what to
// write instead. Internal to core/config.
#pragma once

#include <string>

#include "core/config/node.hpp"
#include "core/config/schema.hpp"

namespace fastllm::config {

// Checks, and converts in place to the declared form (an integer to a real number, "bf16" to
// "bfloat16").
// "": fine. Else "expected ..., found ...; write ...", without place or path.
std::string check_value(const Field& field, Node& value);

// The declared default in its converted form; null: computed later, or required.
Node default_value(const Field& field);

// "an integer of at least 1, or null (keeps all)": for errors and for the reference page.
std::string expected_text(const Field& field);
// What a message shows of a value: "1.0e-4", "the text \"on\"", "a block".
std::string found_text(const Node& value);
// "a number" for any number, else the kind: for "is a block, not a number".
std::string broad_kind(const Node& value);

const std::vector<std::string>& dtype_names();  // the plain ones
// Regular expression of everything that is accepted for one.
std::string dtype_pattern();

}  // namespace fastllm::config
