// What the loader gives to a step, and what a dataset gives to the loader.
// A dataset writes into the caller's memory: token ids go from the file's map to the batch at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fastllm::data {

constexpr int64_t kIgnoredLabel = -100;

struct Span {  // inclusive token positions
  int64_t first = 0, last = 0;
  bool operator==(const Span&) const = default;
};

struct Sample {
  std::span<int64_t> tokens;  // caller's memory, sequence_length + predicted_tokens to fill
  std::vector<Span> loss_masking_spans;  // relative to the sample
  // Pieces of documents in order, none empty, then the padding; they add up to the number of tokens.
  std::vector<int64_t> document_lengths;
  int64_t padding = 0;  // tokens at the end that are none, but kIgnoredLabel
};

// A fixed number of samples; item(i) is a pure function of the data and i. Any thread.
class SampledDataset {
 public:
  virtual ~SampledDataset() = default;
  virtual int64_t size() const = 0;
  // Fills what `tokens` spans and replaces the rest of the sample; `padding` is 0 when it is called.
  virtual void get(int64_t index, Sample& sample) const = 0;
  virtual std::string name() const = 0;
  // For provenance: changes when the files do. One line a file.
  virtual std::vector<std::string> fingerprints() const = 0;
  // Can samples carry loss-masking spans at all?
  virtual bool has_spans() const { return false; }
  // Where a token of a sample came from, for messages: "position 3 of document 7 of x.bin".
  virtual std::string locate(int64_t index, int64_t position) const;
};

// One micro-batch: [samples, length] row-major int64 each. Lives until the step is over. Where several
// ranks share each sample, a rank has the `length` tokens of it from `first` on.
struct Batch {
  int64_t samples = 0, length = 0;
  int64_t first = 0;
  int64_t sequence_length = 0;  // of whole samples; 0: length
  std::vector<int64_t> tokens;
  std::vector<int64_t> labels;     // the next token; kIgnoredLabel where none counts
  std::vector<int64_t> positions;  // in the document when documents are separated, else the sample
  std::vector<int64_t> documents;  // number in the sample; all 0 when they are not separated
  // Cumulative lengths of attention ranges over the tokens of whole samples.
  std::vector<int32_t> cu_seqlens;
  int64_t valid_labels = 0;  // here

  // labels_2, labels_3 .. for models that predict several tokens: one token further each. With
  // separated documents a label in a later document than its token does not count.
  struct FurtherLabels {
    std::vector<int64_t> labels;
    int64_t valid = 0;
  };
  std::vector<FurtherLabels> further_labels;

  int64_t whole_length() const { return sequence_length > 0 ? sequence_length : length; }
};

}  // namespace fastllm::data
