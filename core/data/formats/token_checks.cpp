// One place for the sentences that both writers of datasets say.
#include "core/data/formats/token_checks.hpp"

#include <fmt/format.h>

#include <limits>

#include "core/base/error.hpp"

namespace fastllm::data {

void check_document(std::span<const int64_t> tokens, TokenType type,
                    const std::optional<std::vector<Span>>& spans, size_t document,
                    const std::filesystem::path& path) {
  constexpr auto kMost = std::numeric_limits<int32_t>::max();
  if (tokens.size() > size_t(kMost)) {
    throw Error(Status::kInvalid,
                fmt::format("expected at most {} tokens in document {} of {}, found {}; cut it",
                            kMost, document, path.string(), tokens.size()));
  }
  TokenTypeInfo info = token_type_info(type);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < info.lowest || tokens[i] > info.highest) {
      throw Error(
          Status::kInvalid,
          fmt::format("expected token ids from {} to {} ({}) in document {} of {}, found "
                      "{} at position {}; choose a wider token type",
                      info.lowest, info.highest, info.name, document, path.string(), tokens[i], i));
    }
  }
  if (!spans) return;
  auto size = int64_t(tokens.size());
  for (const Span& span : *spans) {
    if (span.first < 0 || span.first > span.last || span.last >= size) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a span inside the {} tokens of document {}, found {} to "
                              "{}; spans are inclusive token positions",
                              size, document, span.first, span.last));
    }
  }
}

void refuse_mixed_spans(size_t document, bool carries, const std::filesystem::path& path) {
  throw Error(Status::kInvalid,
              fmt::format("expected a list of spans (it may be empty) with every document of {} or "
                          "with none, found document {} {} one",
                          path.string(), document, carries ? "with" : "without"));
}

}  // namespace fastllm::data
