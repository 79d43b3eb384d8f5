// Counts at the start of each block of samples are kept, so that choices are made again for a block
// alone, not for all samples before it.
#include "core/data/sampling/blended.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/base/error.hpp"
#include "core/data/indexed.hpp"

namespace fastllm::data {
namespace {

constexpr int64_t kBlock = 4096;  // samples
constexpr size_t kBlocksKept = 8;
constexpr uint64_t kPartSeedStep = 697;

class Blended final : public SampledDataset {
 public:
  Blended(std::string name, std::unique_ptr<const BlendOrder> order,
          std::vector<std::shared_ptr<const SampledDataset>> parts, int64_t size)
      : name_(std::move(name)), order_(std::move(order)), parts_(std::move(parts)), size_(size) {}

  int64_t size() const override { return size_; }
  void get(int64_t index, Sample& sample) const override {
    auto [part, local] = find(index);
    parts_[size_t(part)]->get(local, sample);
  }
  std::string name() const override { return name_; }
  std::vector<std::string> fingerprints() const override {
    std::vector<std::string> all;
    for (const auto& part : parts_) merge_fingerprints(all, part->fingerprints());
    return all;
  }
  bool has_spans() const override {
    for (const auto& part : parts_) {
      if (part->has_spans()) return true;
    }
    return false;
  }
  std::string locate(int64_t index, int64_t position) const override {
    auto [part, local] = find(index);
    return parts_[size_t(part)]->locate(local, position);
  }

 private:
  BlendOrder::Choice find(int64_t index) const {
    if (index < 0 || index >= size_) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a sample from 0 to {} of dataset {}, found {}", size_ - 1,
                              name_, index));
    }
    return order_->at(index);
  }

  std::string name_;
  std::unique_ptr<const BlendOrder> order_;
  std::vector<std::shared_ptr<const SampledDataset>> parts_;
  int64_t size_;
};

}  // namespace

BlendOrder::BlendOrder(const std::vector<double>& weights) : weights_(weights) {
  bool legal = true;
  auto sum_of = [&] {
    double sum = 0;
    for (double weight : weights_) {
      sum += weight;
      legal = legal && weight >= 0 && std::isfinite(weight);
    }
    return sum;
  };
  double sum = sum_of();
  if (!legal || !(sum > 0)) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected finite weights from 0 up, one of them above 0, found [{}]; write "
                    "shares such as 0.7 and 0.3",
                    fmt::join(weights, ", ")));
  }
  if (std::isinf(sum)) {
    // Finite weights, but not their sum. A power of two changes no digit of those that matter.
    for (double& weight : weights_) weight = std::ldexp(weight, -512);
    sum = sum_of();
  }
  for (double& weight : weights_) weight /= sum;
  starts_.emplace_back(weights_.size(), 0);
}

size_t BlendOrder::step(Counts& taken, int64_t index) const {
  size_t best = 0;
  double most = weights_[0] * double(index + 1) - double(taken[0]);
  for (size_t part = 1; part < weights_.size(); ++part) {
    double behind = weights_[part] * double(index + 1) - double(taken[part]);
    if (behind > most) {
      most = behind;
      best = part;
    }
  }
  ++taken[best];
  return best;
}

BlendOrder::Choice BlendOrder::at(int64_t index) const {
  FASTLLM_ASSERT(index >= 0);
  return (*block(index / kBlock))[size_t(index % kBlock)];
}

std::shared_ptr<const BlendOrder::Block> BlendOrder::block(int64_t number) const {
  std::lock_guard lock(mutex_);
  if (auto known = cache_.find(number); known != cache_.end()) return known->second;
  while (int64_t(starts_.size()) <= number) {
    Counts taken = starts_.back();
    int64_t first = int64_t(starts_.size() - 1) * kBlock;
    for (int64_t index = first; index < first + kBlock; ++index) step(taken, index);
    starts_.push_back(std::move(taken));
  }
  Counts taken = starts_[size_t(number)];
  auto made = std::make_shared<Block>();
  made->reserve(size_t(kBlock));
  for (int64_t index = number * kBlock; index < (number + 1) * kBlock; ++index) {
    size_t part = step(taken, index);
    made->push_back({int64_t(part), taken[part] - 1});
  }
  if (int64_t(starts_.size()) == number + 1) starts_.push_back(std::move(taken));
  // A loader moves forward: the lowest block is the one that nobody needs any more. One that starts
  // over makes room too.
  if (cache_.size() >= kBlocksKept) {
    cache_.erase(cache_.begin()->first < number ? cache_.begin() : std::prev(cache_.end()));
  }
  cache_.emplace(number, made);
  return made;
}

std::shared_ptr<const SampledDataset> make_blended(std::string name,
                                                   const std::vector<BlendedPart>& parts,
                                                   int64_t num_samples, uint64_t seed,
                                                   bool legacy) {
  if (parts.empty()) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected at least one dataset in the blended dataset {}, found none; list one "
                    "under datasets",
                    name));
  }
  std::vector<double> weights;
  for (const BlendedPart& part : parts) weights.push_back(part.weight);
  auto order = std::make_unique<const BlendOrder>(weights);
  std::vector<std::shared_ptr<const SampledDataset>> sampled;
  for (size_t j = 0; j < parts.size(); ++j) {
    double weight = order->weights()[j], total = double(num_samples);
    double count = legacy ? std::ceil(weight * (total + 5 * std::sqrt(total * (1 - weight))))
                          : std::ceil(weight * total) + 1;
    // A legacy part of weight 0 would have no sample at all, and none is ever taken from it.
    auto at_least = int64_t(std::max(count, 1.0));
    sampled.push_back(parts[j].sample(at_least, legacy ? seed : seed + kPartSeedStep * j));
  }
  return std::make_shared<Blended>(std::move(name), std::move(order), std::move(sampled),
                                   num_samples);
}

}  // namespace fastllm::data
