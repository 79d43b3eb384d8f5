// The ranks that share the work of one model, as layers see them: groups of the mesh through the
// host's collectives (fastllm/collectives.h). Calls are made by all ranks of a group in the same
// order. With one rank nothing is called, copied or allocated.
#pragma once

#include <ATen/core/Tensor.h>
#include <fastllm/model.hpp>

namespace fastllm::gpt {

class RankGroup {
 public:
  explicit RankGroup(const char* name) : name_(name) {}
  // Ranks have met from the first bind on; before, a group is this rank alone.
  void meet();

  int rank() const { return rank_; }
  int count() const { return count_; }
  bool alone() const { return count_ == 1; }

  // In place; contiguous tensors.
  void sum(const at::Tensor& values) const;
  void maximum(const at::Tensor& values) const;
  double sum(double value) const;
  // Rows of all ranks in their order: [n, ..] -> [count * n, ..]; the tensor itself when alone.
  at::Tensor gathered(const at::Tensor& rows) const;
  // The same into all [count * n, ..], which may be a part of other memory.
  void gather(const at::Tensor& rows, const at::Tensor& all) const;
  // The sum over ranks of this rank's rows: all [count * n, ..] -> own [n, ..]. alone: copies.
  void scatter_sum(const at::Tensor& all, const at::Tensor& own) const;
  // This rank's rows, or its columns' first one: a view.
  at::Tensor own_rows(const at::Tensor& all) const {
    return alone() ? all : all.narrow(0, rank_ * (all.size(0) / count_), all.size(0) / count_);
  }

 private:
  const char* name_;
  int rank_ = 0, count_ = 1;
};

struct Parallel {
  RankGroup tensor{"tensor"}, sequence_data{"sequence_data"};

  void meet() {
    tensor.meet();
    sequence_data.meet();
  }
};

// What this rank has of each sample where sequence-data ranks share them: of its `tokens` the
// `length` ones from `first` on. The default: all. Hidden states and what comes with the batch are of
// these tokens alone, sample after sample; attention ranges are of whole samples.
struct SamplePart {
  int64_t tokens = 0, first = 0, length = 0;

  SamplePart() = default;
  SamplePart(int64_t all, int64_t begin, int64_t count)
      : tokens(all), first(begin), length(count) {}
  SamplePart(const RankGroup& sequence_data, const sdk::Call& call) {
    if (!sequence_data.alone())
      *this = {call->length, call->position, call->length / sequence_data.count()};
  }
  bool all() const { return length == 0; }
  // The number of a token here among those of the whole micro-batch.
  int64_t number(int64_t token) const {
    return all() ? token : token / length * tokens + first + token % length;
  }
};

// Where a layer's work is divided over tensor ranks, between hidden states that are whole on all
// ranks, or of which each rank has its tokens (FASTLLM_SEQUENCE_TENSOR). Hidden states are [tokens,
// hidden]. After Korthikanti et al. 2022, "Reducing activation recomputation in large transformer
// models".
class TensorRegion {
 public:
  TensorRegion(const RankGroup& ranks, const sdk::Call& call)
      : ranks_(ranks), split_(!ranks.alone() && (call->flags & FASTLLM_SEQUENCE_TENSOR)) {}

  bool divided() const { return !ranks_.alone(); }
  // Each rank has its tokens alone outside.
  bool split() const { return split_; }
  int64_t all_tokens(int64_t outside) const { return split_ ? outside * ranks_.count() : outside; }
  int64_t first_token(int64_t outside) const { return split_ ? outside * ranks_.rank() : 0; }

  // From outside to all tokens, for a layer of which each rank has some outputs.
  at::Tensor enter(const at::Tensor& x) const { return split_ ? ranks_.gathered(x) : x; }
  // Of all tokens' rows those of the tokens outside: a view.
  at::Tensor own_tokens(const at::Tensor& all) const { return split_ ? ranks_.own_rows(all) : all; }
  // What each rank has a part of, for all tokens, becomes the sum on all ranks.
  void sum(const at::Tensor& parts) const { ranks_.sum(parts); }
  // Each rank's part of a sum, for all tokens, becomes the sum outside: memory to put the parts in,
  // then the sum, in `y`.
  at::Tensor parts(const at::Tensor& y) const;
  void leave(const at::Tensor& parts, const at::Tensor& y) const;

 private:
  const RankGroup& ranks_;
  bool split_;
};

}  // namespace fastllm::gpt
