// Counter-based random numbers for dropout: number `index` of a stream depends on the stream's key
// and on the index alone, so any thread may make any part, and a recomputed forward and the
// backward make the same numbers again instead of keeping them.
//
// The generator is splitmix64 (Steele, Lea & Flood, "Fast splittable pseudorandom number
// generators", 2014), entered at any place of its sequence. It costs two products an element, which
// vectorise inside the loops that use the numbers; the host's Philox makes four numbers at a time
// and does not. What is constexpr here also runs inside kernels/cuda: the same numbers there.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "kernels/common.hpp"

namespace fastllm::gpt {

// splitmix64's finalizer: every bit of the input reaches every bit of the output.
FASTLLM_INLINE constexpr uint64_t mix_bits(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}
constexpr uint64_t kGoldenGamma = 0x9E3779B97F4A7C15u;

// What a layer draws numbers for. Each has a stream of its own in every call.
enum class RandomUse : uint64_t {
  kAttention = 1,
  kAttentionOutput,
  kMlpOutput,
  kEmbedding,
  kRouter
};

// The key of one use in one call; seed and offset are the call's (model.h).
inline uint64_t stream_key(uint64_t seed, uint64_t offset, RandomUse use) {
  uint64_t key = mix_bits(seed + kGoldenGamma);
  for (uint64_t part : {offset, uint64_t(use)}) key = mix_bits((key ^ part) + kGoldenGamma);
  return key;
}

// 64 random bits, uniform.
FASTLLM_INLINE constexpr uint64_t random_bits(uint64_t key, uint64_t index) {
  return mix_bits(key + (index + 1) * kGoldenGamma);
}

// Inverted dropout: an element is 0 with the given probability, else multiplied by 1 / (1 -
// probability), which keeps its mean. Inactive (the default): nothing changes.
struct Dropout {
  uint64_t key = 0;
  uint64_t threshold = 0;  // of the upper 32 bits: below it an element is dropped
  float scale = 1;
  // Elements in runs, with numbers left out between them: number `first` of all elements in runs is
  // element 0. run 0: all in one.
  int64_t run = 0, skip = 0, first = 0;

  constexpr bool active() const { return threshold > 0; }
  // For elements that are counted from that one on.
  Dropout from(int64_t element) const {
    Dropout result = *this;
    if (run > 0)
      result.first += element;
    else
      result.key += uint64_t(element) * kGoldenGamma;
    return result;
  }
  // For elements that come in runs of `length`, after each of which `left_out` numbers follow.
  Dropout in_runs(int64_t length, int64_t left_out) const {
    Dropout result = *this;
    result.run = length;
    result.skip = left_out;
    return result;
  }
  // Calls visit(begin, end, dropout) for the runs of `count` elements; factor(i) of that dropout is
  // element i's, for i from begin to below end.
  template <class Visit>
  void for_each_run(int64_t count, Visit&& visit) const {
    if (run == 0 || !active()) return visit(int64_t{0}, count, *this);
    for (int64_t begin = 0; begin < count;) {
      const int64_t number = first + begin, before = number / run;
      const int64_t end = std::min(count, begin + run - number % run);
      Dropout one{key, threshold, scale};
      visit(begin, end, one.from(first + before * skip));
      begin = end;
    }
  }
  // In one run: what element `index` is multiplied by, in forward and in backward.
  FASTLLM_INLINE constexpr float factor(uint64_t index) const {
    return (random_bits(key, index) >> 32) < threshold ? 0.0f : scale;
  }
  // In runs or not, for who meets elements one by one.
  constexpr float factor_at(uint64_t index) const {
    const uint64_t number = uint64_t(first) + index;
    return factor(run > 0 ? number + number / uint64_t(run) * uint64_t(skip) : index);
  }
};

// probability in [0, 1); one below 2^-33 counts as 0.
inline Dropout make_dropout(double probability, uint64_t key) {
  Dropout dropout;
  dropout.key = key;
  dropout.threshold = uint64_t(probability * 4294967296.0 + 0.5);
  dropout.scale = float(1 / (1 - probability));
  return dropout;
}

}  // namespace fastllm::gpt
