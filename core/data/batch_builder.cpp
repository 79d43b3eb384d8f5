// Rows of a micro-batch go straight from the dataset into the batch; then ids are checked and
// labels, positions and attention ranges follow from the documents in each row.
#include "core/data/batch_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <string>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"

namespace fastllm::data {

std::unique_ptr<Batch> BatchBuilder::build(int64_t number) const {
  int64_t rows = options_.micro_batch_size, length = options_.sequence_length;
  int64_t first =
      options_.first_sample + (number * options_.batch_data_size + options_.batch_data_rank) * rows;
  auto cells = size_t(rows * length);
  auto batch = std::make_unique<Batch>();
  batch->samples = rows;
  batch->length = length;
  batch->labels.resize(cells);
  batch->positions.resize(cells);
  batch->documents.resize(cells);
  batch->cu_seqlens.push_back(0);
  batch->further_labels.resize(size_t(options_.predicted_tokens - 1));
  for (auto& further : batch->further_labels) further.labels.resize(cells);
  // A sample has some tokens more than its row. It spills over into the next row, which is read
  // after the labels are set.
  const int64_t sample_tokens = length + options_.predicted_tokens;
  batch->tokens.resize(cells + size_t(options_.predicted_tokens));
  Sample sample;
  for (int64_t row = 0; row < rows; ++row) {
    sample.padding = 0;
    sample.tokens = std::span(batch->tokens).subspan(size_t(row * length), size_t(sample_tokens));
    try {
      read_sample(first + row, sample);
      check_ids(first + row, sample);
    } catch (Error& error) {
      error.add_context(
          fmt::format("Failed to get sample {} from dataset {}", first + row, dataset_.name()));
      throw;
    }
    const auto row_of = [&](std::vector<int64_t>& labels) {
      return std::span(labels).subspan(size_t(row * length), size_t(length));
    };
    set_labels(sample, 1, row_of(batch->labels));
    for (size_t i = 0; i < batch->further_labels.size(); ++i)
      set_labels(sample, int64_t(i) + 2, row_of(batch->further_labels[i].labels));
    set_documents(sample, row, *batch);
    // No label counts there, and no token sees it: any id will do.
    std::fill(sample.tokens.end() - sample.padding, sample.tokens.end(), int64_t(0));
  }
  batch->tokens.resize(cells);
  if (options_.sequence_data_size > 1) keep_part(*batch);
  const auto count_valid = [](const std::vector<int64_t>& labels) {
    return int64_t(labels.size()) - std::count(labels.begin(), labels.end(), kIgnoredLabel);
  };
  batch->valid_labels = count_valid(batch->labels);
  for (auto& further : batch->further_labels) further.valid = count_valid(further.labels);
  return batch;
}

void BatchBuilder::read_sample(int64_t index, Sample& sample) const {
  auto start = std::chrono::steady_clock::now();
  dataset_.get(index, sample);
  double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  if (ms > options_.sample_warn_ms) {
    log::warning(fmt::format("Sample {} from dataset {} took {} ms to load", index, dataset_.name(),
                             with_commas(ms, 2)));
  }
}

void BatchBuilder::check_ids(int64_t index, const Sample& sample) const {
  if (options_.vocab_size <= 0) return;
  const auto end = sample.tokens.end() - sample.padding;
  auto bad = std::find_if(sample.tokens.begin(), end, [&](int64_t id) {
    return uint64_t(id) >= uint64_t(options_.vocab_size);  // negative ids are large ones
  });
  if (bad == end) return;
  std::string raise = *bad < 0 ? "" : fmt::format(", or set vocab_size to at least {}", *bad + 1);
  throw Error(
      Status::kInvalid,
      fmt::format(
          "expected token ids from 0 to {} (vocab_size {}), found {} at {}; prepare the data with "
          "the tokenizer of the model{}",
          options_.vocab_size - 1, options_.vocab_size, *bad,
          dataset_.locate(index, bad - sample.tokens.begin()), raise));
}

void BatchBuilder::set_labels(const Sample& sample, int64_t distance,
                              std::span<int64_t> labels) const {
  const auto length = int64_t(labels.size());
  std::copy_n(sample.tokens.begin() + distance, length, labels.begin());
  // Label i is token i + distance.
  const auto ignore = [&](int64_t first_token, int64_t last_token) {
    const int64_t first = std::max<int64_t>(first_token - distance, 0),
                  last = std::min(last_token - distance, length - 1);
    for (int64_t i = first; i <= last; ++i) labels[size_t(i)] = kIgnoredLabel;
  };
  for (const Span& span : sample.loss_masking_spans) ignore(span.first, span.last);
  if (distance == 1 || options_.cross_document_attention) return;
  // The next token counts whatever its document is, as in the reference; tokens beyond it cannot
  // be guessed across a border that attention does not cross.
  int64_t begin = 0;
  for (const int64_t tokens : sample.document_lengths) {
    if (begin > 0) ignore(begin, std::min(begin + distance, begin + tokens) - 1);
    begin += tokens;
  }
}

void BatchBuilder::keep_part(Batch& batch) const {
  const int64_t whole = batch.length, part = whole / options_.sequence_data_size;
  batch.sequence_length = whole;
  batch.length = part;
  batch.first = part * options_.sequence_data_rank;
  const auto cut = [&](std::vector<int64_t>& values) {
    for (int64_t row = 0; row < batch.samples; ++row)  // to the front, never beyond what is read
      std::copy_n(values.begin() + row * whole + batch.first, part, values.begin() + row * part);
    values.resize(size_t(batch.samples * part));
  };
  for (auto* values : {&batch.tokens, &batch.labels, &batch.positions, &batch.documents})
    cut(*values);
  for (auto& further : batch.further_labels) cut(further.labels);
}

void BatchBuilder::set_documents(const Sample& sample, int64_t row, Batch& batch) const {
  int64_t at = row * batch.length, end = at + batch.length;
  if (options_.cross_document_attention) {
    std::iota(batch.positions.begin() + at, batch.positions.begin() + end, int64_t(0));
    batch.cu_seqlens.push_back(int32_t(end));
    return;  // documents: all 0
  }
  for (size_t document = 0; document < sample.document_lengths.size(); ++document) {
    int64_t next =
        std::min(at + sample.document_lengths[document], end);  // the last token is only a label
    if (next == at) continue;
    std::iota(batch.positions.begin() + at, batch.positions.begin() + next, int64_t(0));
    std::fill(batch.documents.begin() + at, batch.documents.begin() + next, int64_t(document));
    batch.cu_seqlens.push_back(int32_t(next));
    at = next;
  }
  FASTLLM_ASSERT(at == end);
}

}  // namespace fastllm::data
