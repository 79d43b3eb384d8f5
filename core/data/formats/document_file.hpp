// What the readers of both formats have in common: ranges are checked, spans clipped, counts compared
// with those of the configuration, files hashed once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/data/indexed.hpp"

namespace fastllm::data {

struct MemmapExpectations {
  std::optional<int64_t> num_documents, num_tokens;  // checked when given
};

class DocumentFile : public IndexedDataset {
 public:
  void get(int64_t document, int64_t offset, std::span<int64_t> tokens,
           std::vector<Span>* spans) const final;
  std::string name() const final { return path_as_name(paths_.path); }  // "/" as "__"
  std::string locate(int64_t document) const final;
  std::vector<std::string> fingerprints() const final;
  // Throws Error(kInvalid) when the configuration says otherwise.
  virtual void expect(const MemmapExpectations& expected) const = 0;

 protected:
  struct Paths {
    std::filesystem::path path;           // as the configuration has it
    std::filesystem::path index, tokens;  // the files; may be the same
  };
  explicit DocumentFile(Paths paths) : paths_(std::move(paths)) {}

  void check_document(int64_t document) const;
  void check_not_empty() const;
  // key: of the configuration.
  void expect_count(const char* key, const char* what, std::optional<int64_t> wanted,
                    int64_t found) const;
  // Tokens from `offset` on, which lie in the document.
  virtual void read_tokens(int64_t document, int64_t offset, std::span<int64_t> tokens) const = 0;
  // All of the document's loss-masking spans; called when has_spans().
  virtual void append_spans(int64_t document, std::vector<Span>& spans) const = 0;
  virtual std::vector<std::string> make_fingerprints() const = 0;

  const Paths paths_;

 private:
  mutable std::once_flag hashed_;
  mutable std::vector<std::string> fingerprints_;
};

}  // namespace fastllm::data
