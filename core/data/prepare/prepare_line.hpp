// One line of a JSON lines file to a document that is not tokenized yet. Lines are hostile: each
// is checked, and an error names its file and number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/prepare/prepare_inputs.hpp"

namespace fastllm::data {

constexpr const char* kTokensField = "tokens";

// Where a line lies. Its number is counted only for a message.
struct LinePlace {
  const InputFile* file = nullptr;
  int64_t begin = 0;  // byte offset in the file

  [[noreturn]] void fail(const std::string& message) const;
};

struct LineFields {
  std::string text, spans;      // names; empty spans: not read
  int64_t highest_id = 0;       // of ready token ids
  std::string highest_because;  // "int16, vocab_size 300", for the message
};

// Text with spans over its characters, or ids with spans over them.
struct LineDocument {
  bool is_text = false;
  std::string text;
  std::vector<int64_t> ids;
  std::vector<Span> spans;
};

LineDocument parse_line(std::string_view line, const LinePlace& place, const LineFields& fields);

}  // namespace fastllm::data
