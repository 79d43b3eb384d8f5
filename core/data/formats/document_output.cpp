#include "core/data/formats/document_output.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/output_file.hpp"
#include "core/data/formats/token_checks.hpp"

namespace fastllm::data {

DocumentOutput::DocumentOutput(const std::filesystem::path& path, TokenType type)
    : path_(path), aside_(path) {
  index_.type = type;
  if (path.has_parent_path()) make_directories(path.parent_path());
  aside_ += fmt::format(".tmp.{}", ::getpid());
  fd_ = create_output(aside_);
}

DocumentOutput::~DocumentOutput() {
  if (fd_ >= 0) ::close(fd_);
  if (!published_) ::unlink(aside_.c_str());
}

void DocumentOutput::add(std::span<const int64_t> tokens,
                         const std::optional<std::vector<Span>>& spans) {
  FASTLLM_ASSERT(fd_ >= 0);
  const size_t document = index_.sizes.size();
  check_document(tokens, index_.type, spans, document, path_);
  if (document > 0 && spans.has_value() != !index_.span_counts.empty())
    refuse_mixed_spans(document, spans.has_value(), path_);
  if (spans) {
    index_.span_counts.push_back(int32_t(spans->size()));
    index_.spans.insert(index_.spans.end(), spans->begin(), spans->end());
  }
  index_.sizes.push_back(int32_t(tokens.size()));
  buffer_.resize(tokens.size() * size_t(token_type_info(index_.type).bytes));
  narrow_tokens(index_.type, tokens, buffer_);
  write_all(fd_, buffer_, aside_);
}

void DocumentOutput::check_not_empty() const {
  if (!index_.sizes.empty()) return;
  throw Error(Status::kInvalid,
              fmt::format("expected at least one document for {}, found none", path_.string()));
}

void DocumentOutput::close() { close_output(fd_, aside_); }

void DocumentOutput::publish() {
  FASTLLM_ASSERT(fd_ < 0 && !published_);
  rename_output(aside_, path_);
  published_ = true;
}

}  // namespace fastllm::data
