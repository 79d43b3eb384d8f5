// Several datasets mixed by weight (docs/compatibility.md): sample i comes from the dataset that is
// furthest behind its share, w_j * (i + 1) - k_j, the first of equals; it is that dataset's next
// sample.
//
// The rule is followed step by step from 0, also for a start in the middle: every sample of a part
// is taken exactly once, in order. (Starting from floor(w_j * i), as the reference does for each i,
// gives the same for two parts, but repeats and leaves out samples for about half of all weights of
// three parts and more.)
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/data/batch.hpp"

namespace fastllm::data {

// The order alone. Any thread. A first access far in takes i * parts steps (some 10 ms a million),
// later ones none.
class BlendOrder {
 public:
  explicit BlendOrder(const std::vector<double>& weights);  // any scale; normalised here
  const std::vector<double>& weights() const { return weights_; }
  struct Choice {
    int64_t part, sample;
    bool operator==(const Choice&) const = default;
  };
  Choice at(int64_t index) const;

 private:
  using Counts = std::vector<int64_t>;  // samples taken from each part
  using Block = std::vector<Choice>;
  std::shared_ptr<const Block> block(int64_t number) const;
  size_t step(Counts& taken, int64_t index) const;

  std::vector<double> weights_;
  mutable std::mutex mutex_;
  mutable std::vector<Counts> starts_;  // before each block reached so far
  mutable std::map<int64_t, std::shared_ptr<const Block>> cache_;  // the latest few blocks
};

struct BlendedPart {
  double weight = 0;
  // Makes the part with that many samples (at least) and that seed.
  std::function<std::shared_ptr<const SampledDataset>(int64_t num_samples, uint64_t seed)> sample;
};

// legacy: the reference's older numbers of samples, and the same seed for all parts.
std::shared_ptr<const SampledDataset> make_blended(std::string name,
                                                   const std::vector<BlendedPart>& parts,
                                                   int64_t num_samples, uint64_t seed,
                                                   bool legacy = false);

}  // namespace fastllm::data
