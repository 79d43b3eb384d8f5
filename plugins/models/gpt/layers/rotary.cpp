// Angles are made in double and rounded once, so that long positions do not lose digits.
// The table grows to the longest position seen; a row never changes once made.
#include "layers/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/rotary.hpp"

namespace fastllm::gpt {
namespace {

// Llama 3: long waves are slowed down by the factor, short ones stay, those between are blended.
double llama3_frequency(const RotaryConfig& c, double frequency) {
  const double waves = c.original_context_length * frequency / (2 * std::numbers::pi);
  if (waves > c.high_frequency_factor) return frequency;
  if (waves < c.low_frequency_factor) return frequency / c.scale_factor;
  const double keep =
      (waves - c.low_frequency_factor) / (c.high_frequency_factor - c.low_frequency_factor);
  return (1 - keep) * frequency / c.scale_factor + keep * frequency;
}

// YaRN (Peng, Quesnelle, Fan & Shippole 2023): the same idea, blended by the number of the pair,
// between those that turn beta_fast and beta_slow times within the original context.
double yarn_frequency(const RotaryConfig& c, int64_t head_width, int64_t pair, double frequency) {
  const double width = double(head_width);
  const auto pair_that_turns = [&](double times) {
    return width * std::log(c.original_context_length / (times * 2 * std::numbers::pi)) /
           (2 * std::log(c.theta));
  };
  const double low = std::max(std::floor(pair_that_turns(c.beta_fast)), 0.0);
  double high = std::min(std::ceil(pair_that_turns(c.beta_slow)), width - 1);
  if (low == high) high += 0.001;
  const double slow = std::clamp((double(pair) - low) / (high - low), 0.0, 1.0);
  return slow * frequency / c.scale_factor + (1 - slow) * frequency;
}

double pair_frequency(const RotaryConfig& c, int64_t head_width, int64_t pair) {
  const double frequency = std::pow(c.theta, -2.0 * double(pair) / double(head_width));
  switch (c.kind) {
    case RotaryKind::kLinear:
      return frequency / c.scale_factor;
    case RotaryKind::kLlama3:
      return llama3_frequency(c, frequency);
    case RotaryKind::kYarn:
      return yarn_frequency(c, head_width, pair, frequency);
    case RotaryKind::kNone:
    case RotaryKind::kDefault:
      break;
  }
  return frequency;
}

}  // namespace

Rotary::Rotary(const GptConfig& config) : config_(config.rotary), head_width_(config.head_width) {
  if (!enabled()) return;
  for (int64_t pair = 0; pair < head_width_ / 2; ++pair)
    frequencies_.push_back(pair_frequency(config_, head_width_, pair));
}

void Rotary::extend(int64_t positions) {
  const int64_t half = head_width_ / 2;
  int64_t position = int64_t(table_.size()) / head_width_;
  if (position >= positions) return;
  table_.resize(size_t(positions * head_width_));
  for (; position < positions; ++position) {
    float* row = table_.data() + position * head_width_;
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(position) * frequencies_[size_t(i)];
      row[i] = float(std::cos(angle) * config_.attention_factor);
      row[half + i] = float(std::sin(angle) * config_.attention_factor);
    }
  }
}

void Rotary::apply(const at::Tensor& values, int64_t heads, const at::Tensor& positions,
                   int64_t limit, bool backward) {
  check_indices(positions, "positions", limit, "the length of the sequence", 0);
  const int64_t* begin = positions.const_data_ptr<int64_t>();
  const int64_t tokens = values.size(0);
  if (tokens == 0) return;
  extend(*std::max_element(begin, begin + tokens) + 1);
  rotate({.tokens = tokens,
          .heads = heads,
          .head_width = head_width_,
          .stride = values.stride(0),
          .interleaved = config_.interleaved},
         table_.data(), begin, backward, values.mutable_data_ptr<float>());
}

}  // namespace fastllm::gpt
