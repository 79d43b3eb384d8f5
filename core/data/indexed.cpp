// Views on sets of documents that are sets of documents themselves: several in a row, a share.
#include "core/data/indexed.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <utility>

#include "core/base/error.hpp"

namespace fastllm::data {
namespace {

class Concatenated final : public IndexedDataset {
 public:
  Concatenated(std::string name, std::vector<IndexedPointer> parts)
      : name_(std::move(name)), parts_(std::move(parts)) {
    if (parts_.empty()) {
      throw Error(Status::kInvalid,
                  fmt::format("expected at least one dataset in the concatenated dataset {}, found "
                              "none; list one under datasets",
                              name_));
    }
    for (const auto& part : parts_) {
      first_.push_back(documents_);
      documents_ += part->num_documents();
      tokens_ += part->num_tokens();
    }
  }

  int64_t num_documents() const override { return documents_; }
  int64_t num_tokens() const override { return tokens_; }
  int64_t document_size(int64_t document) const override {
    auto [part, local] = find(document);
    return part->document_size(local);
  }
  void get(int64_t document, int64_t offset, std::span<int64_t> tokens,
           std::vector<Span>* spans) const override {
    auto [part, local] = find(document);
    part->get(local, offset, tokens, spans);
  }
  bool has_spans() const override {
    return std::any_of(parts_.begin(), parts_.end(), [](auto& part) { return part->has_spans(); });
  }
  std::string name() const override { return name_; }
  std::string locate(int64_t document) const override {
    auto [part, local] = find(document);
    return part->locate(local);
  }
  std::vector<std::string> fingerprints() const override {
    std::vector<std::string> all;
    for (const auto& part : parts_) merge_fingerprints(all, part->fingerprints());
    return all;
  }

 private:
  std::pair<const IndexedDataset*, int64_t> find(int64_t document) const {
    if (document < 0 || document >= documents_) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a document from 0 to {} in dataset {}, found {}",
                              documents_ - 1, name_, document));
    }
    size_t part =
        size_t(std::upper_bound(first_.begin(), first_.end(), document) - first_.begin()) - 1;
    return {parts_[part].get(), document - first_[part]};
  }

  std::string name_;
  std::vector<IndexedPointer> parts_;
  std::vector<int64_t> first_;  // number of the first document of each part
  int64_t documents_ = 0, tokens_ = 0;
};

class Slice final : public IndexedDataset {
 public:
  Slice(IndexedPointer dataset, int64_t first, int64_t last, std::string name)
      : dataset_(std::move(dataset)), first_(first), last_(last), name_(std::move(name)) {
    for (int64_t document = first_; document < last_; ++document) {
      tokens_ += dataset_->document_size(document);
    }
  }

  int64_t num_documents() const override { return last_ - first_; }
  int64_t num_tokens() const override { return tokens_; }
  int64_t document_size(int64_t document) const override {
    return dataset_->document_size(checked(document));
  }
  void get(int64_t document, int64_t offset, std::span<int64_t> tokens,
           std::vector<Span>* spans) const override {
    dataset_->get(checked(document), offset, tokens, spans);
  }
  bool has_spans() const override { return dataset_->has_spans(); }
  std::string name() const override { return name_; }
  std::string locate(int64_t document) const override {
    return dataset_->locate(checked(document));
  }
  std::vector<std::string> fingerprints() const override { return dataset_->fingerprints(); }

 private:
  int64_t checked(int64_t document) const {
    if (document < 0 || document >= last_ - first_) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a document from 0 to {} in dataset {}, found {}",
                              last_ - first_ - 1, name_, document));
    }
    return document + first_;
  }

  IndexedPointer dataset_;
  int64_t first_, last_;  // [first_, last_) of dataset_
  std::string name_;
  int64_t tokens_ = 0;
};

}  // namespace

IndexedPointer make_concatenated(std::string name, std::vector<IndexedPointer> parts) {
  return std::make_shared<Concatenated>(std::move(name), std::move(parts));
}

IndexedPointer make_slice(IndexedPointer dataset, double begin, double end) {
  // std::nearbyint rounds halves to even in the default mode, as the reference's round() does.
  FASTLLM_ASSERT(std::fegetround() == FE_TONEAREST);
  std::string name = fmt::format("{}_{}_{}", dataset->name(), begin, end);
  if (!(begin >= 0 && begin <= 1 && end >= 0 && end <= 1)) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected begin and end of a slice of dataset {} from 0 to 1, found {} and "
                    "{}; they are fractions of its documents",
                    dataset->name(), begin, end));
  }
  int64_t count = dataset->num_documents();
  auto first = int64_t(std::nearbyint(begin * double(count)));
  auto last = int64_t(std::nearbyint(end * double(count)));
  if (first >= last) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected documents in the slice {} to {} of dataset {}, found none: its {} "
                    "documents round to {} until {}; widen the slice",
                    begin, end, dataset->name(), count, first, last));
  }
  return std::make_shared<Slice>(std::move(dataset), first, last, std::move(name));
}

std::string path_as_name(const std::filesystem::path& path) {
  std::string name;
  for (char c : path.string()) {
    if (c == '/') {
      name += "__";
    } else {
      name += c;
    }
  }
  return name;
}

void merge_fingerprints(std::vector<std::string>& all, const std::vector<std::string>& more) {
  for (const std::string& line : more) {
    if (std::find(all.begin(), all.end(), line) == all.end()) all.push_back(line);
  }
}

}  // namespace fastllm::data
