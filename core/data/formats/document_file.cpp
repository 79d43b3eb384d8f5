#include "core/data/formats/document_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace fastllm::data {

void DocumentFile::check_document(int64_t document) const {
  if (document < 0 || document >= num_documents()) {
    throw Error(Status::kInvalid,
                fmt::format("expected a document from 0 to {} of {}, found {}", num_documents() - 1,
                            paths_.index.string(), document));
  }
}

void DocumentFile::get(int64_t document, int64_t offset, std::span<int64_t> tokens,
                       std::vector<Span>* spans) const {
  const int64_t size = document_size(document);
  const auto length = int64_t(tokens.size());
  if (offset < 0 || offset > size || length > size - offset) {
    throw Error(Status::kInvalid,
                fmt::format("expected a range inside the {} tokens of {}, found {} tokens from {}",
                            size, locate(document), length, offset));
  }
  read_tokens(document, offset, tokens);
  if (!spans || length == 0 || !has_spans()) return;
  const auto known = ptrdiff_t(spans->size());
  append_spans(document, *spans);
  auto clipped = spans->begin() + known;
  for (auto span = clipped; span != spans->end(); ++span) {
    const Span part{std::max(span->first, offset) - offset,
                    std::min(span->last, offset + length - 1) - offset};
    if (part.first <= part.last) *clipped++ = part;
  }
  spans->erase(clipped, spans->end());
}

std::string DocumentFile::locate(int64_t document) const {
  return fmt::format("document {} of {}", document, paths_.tokens.string());
}

std::vector<std::string> DocumentFile::fingerprints() const {
  std::call_once(hashed_, [this] { fingerprints_ = make_fingerprints(); });
  return fingerprints_;
}

void DocumentFile::check_not_empty() const {
  if (num_tokens() > 0) return;
  throw Error(Status::kInvalid,
              fmt::format("expected documents with tokens in {}, found {} documents and no token; "
                          "leave the dataset out or prepare it again",
                          paths_.index.string(), num_documents()));
}

void DocumentFile::expect_count(const char* key, const char* what, std::optional<int64_t> wanted,
                                int64_t found) const {
  if (!wanted || *wanted == found) return;
  throw Error(Status::kInvalid,
              fmt::format("expected {} {} in {}, as the configuration says, found {}; correct {}, "
                          "or use the data it was written for",
                          *wanted, what, paths_.index.string(), found, key));
}

}  // namespace fastllm::data
