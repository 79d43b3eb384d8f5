// What a document must satisfy to be written, whatever the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/data/batch.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

// Throws Error(kInvalid): more than 2^31 - 1 tokens, an id that the type cannot hold, a span that is
// not inside. document: its number, path: of the file, for the message.
void check_document(std::span<const int64_t> tokens, TokenType type,
                    const std::optional<std::vector<Span>>& spans, size_t document,
                    const std::filesystem::path& path);

// Some documents came with a list of spans, some without.
[[noreturn]] void refuse_mixed_spans(size_t document, bool carries,
                                     const std::filesystem::path& path);

}  // namespace fastllm::data
