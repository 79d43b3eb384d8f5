// A set of documents that can be read in any order; what sampling draws from. Immutable; any
// thread. Documents may be empty: they keep their number and give nothing to a sample.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/data/batch.hpp"

namespace fastllm::data {

class IndexedDataset {
 public:
  virtual ~IndexedDataset() = default;
  virtual int64_t num_documents() const = 0;
  virtual int64_t num_tokens() const = 0;
  virtual int64_t document_size(int64_t document) const = 0;  // tokens
  // Reads tokens.size() tokens from `offset` on; throws Error(kInvalid) when they are not inside
  // the document. spans: null when not wanted; else the loss-masking spans that touch the tokens
  // are appended, clipped to them and relative to `offset`. Nothing is appended when the dataset
  // has none (has_spans() tells).
  virtual void get(int64_t document, int64_t offset, std::span<int64_t> tokens,
                   std::vector<Span>* spans) const = 0;
  virtual bool has_spans() const = 0;
  virtual std::string name() const = 0;
  // "document 7 of data/shard.bin"
  virtual std::string locate(int64_t document) const = 0;
  virtual std::vector<std::string> fingerprints() const = 0;  // as SampledDataset's
};

using IndexedPointer = std::shared_ptr<const IndexedDataset>;

// The documents of the parts, in order.
IndexedPointer make_concatenated(std::string name, std::vector<IndexedPointer> parts);

// Documents round(begin * n) to round(end * n) (half to even), fractions of the documents; must not
// be empty.
IndexedPointer make_slice(IndexedPointer dataset, double begin, double end);

// What a dataset on the disk is called in messages: its path, "/" as "__".
std::string path_as_name(const std::filesystem::path& path);

// Appends lines of `more` that are not there yet.
void merge_fingerprints(std::vector<std::string>& all, const std::vector<std::string>& more);

}  // namespace fastllm::data
