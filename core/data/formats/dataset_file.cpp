// What is read once the file was found to be what it says (dataset_file_opener.cpp).
#include "core/data/formats/dataset_file.hpp"

#include <fstream>
#include <system_error>

#include "core/base/error.hpp"
#include "core/data/fingerprint.hpp"
#include "core/data/formats/dataset_file_format.hpp"
#include "core/data/formats/unaligned.hpp"

namespace fastllm::data {

namespace fs = std::filesystem;

DatasetFile::DatasetFile(const fs::path& path, const MemmapExpectations& expected)
    : DocumentFile({path, path, path}), file_(path) {
  open();
  check_not_empty();
  expect(expected);
}

void DatasetFile::expect(const MemmapExpectations& expected) const {
  expect_count("num_documents", "documents", expected.num_documents, documents_);
  expect_count("num_tokens", "tokens", expected.num_tokens, num_tokens_);
}

int64_t DatasetFile::document_size(int64_t document) const {
  check_document(document);
  return load<int64_t>(ends_, document + 1) - load<int64_t>(ends_, document);
}

void DatasetFile::read_tokens(int64_t document, int64_t offset, std::span<int64_t> tokens) const {
  const int64_t first = load<int64_t>(ends_, document) + offset;
  widen_tokens(type_, {tokens_ + first * itemsize_, tokens.size() * size_t(itemsize_)}, tokens);
}

void DatasetFile::append_spans(int64_t document, std::vector<Span>& spans) const {
  append_ranges(masked_, document, spans);
}

void DatasetFile::append_ranges(const Ranges& ranges, int64_t document,
                                std::vector<Span>& spans) const {
  auto end = int64_t(load<int32_t>(ranges.counts, document + 1));
  for (auto i = int64_t(load<int32_t>(ranges.counts, document)); i < end; ++i) {
    Span span{load<int32_t>(ranges.pairs, 2 * i),
              int64_t(load<int32_t>(ranges.pairs, 2 * i + 1)) - 1};
    if (span.first <= span.last) spans.push_back(span);  // a range may be empty
  }
}

std::vector<Span> DatasetFile::preference_spans(const Ranges& ranges, int64_t document) const {
  check_document(document);
  FASTLLM_ASSERT(ranges.counts);
  std::vector<Span> spans;
  append_ranges(ranges, document, spans);
  return spans;
}

std::vector<std::string> DatasetFile::make_fingerprints() const {
  return {fingerprint_sampled(paths_.path.string(), file_.bytes())};
}

bool is_dataset_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;  // opening a pipe would wait
  std::ifstream file(path, std::ios::binary);
  std::string first(dataset_file::kMagic.size(), '\0');
  return file.read(first.data(), std::streamsize(first.size())) && first == dataset_file::kMagic;
}

}  // namespace fastllm::data
