#include "tests/parity/plain_rotary.hpp"

#include <algorithm>
#include <cmath>

namespace fastllm::gpt::testing {

at::Tensor plain_frequencies(const GptConfig& c) {
  const auto& r = c.rotary;
  const auto pair = at::arange(c.head_width / 2, at::kDouble);
  const auto plain = at::pow(r.theta, pair * (-2.0 / double(c.head_width)));
  const auto slow = plain / r.scale_factor;
  if (r.kind == RotaryKind::kLinear) return slow;
  if (r.kind == RotaryKind::kLlama3) {
    const auto wavelength = 2 * M_PI / plain;
    const auto keep = ((r.original_context_length / wavelength - r.low_frequency_factor) /
                       (r.high_frequency_factor - r.low_frequency_factor))
                          .clamp(0, 1);
    return (1 - keep) * slow + keep * plain;
  }
  if (r.kind == RotaryKind::kYarn) {
    const auto corner = [&](double turns) {
      return double(c.head_width) * std::log(r.original_context_length / (turns * 2 * M_PI)) /
             (2 * std::log(r.theta));
    };
    const double low = std::max(std::floor(corner(r.beta_fast)), 0.0);
    double high = std::min(std::ceil(corner(r.beta_slow)), double(c.head_width - 1));
    if (high == low) high += 0.001;
    const auto blend = ((pair - low) / (high - low)).clamp(0, 1);
    return slow * blend + plain * (1 - blend);
  }
  return plain;
}

at::Tensor plain_rotary(const GptConfig& c, const at::Tensor& x, const at::Tensor& positions) {
  const int64_t half = c.head_width / 2;
  const auto angles =
      positions.to(at::kDouble).unsqueeze(-1) * plain_frequencies(c);  // [b, s, half]
  const auto cosine = angles.cos().unsqueeze(1) * c.rotary.attention_factor,
             sine = angles.sin().unsqueeze(1) * c.rotary.attention_factor;
  if (c.rotary.interleaved) {
    const auto pairs = x.unflatten(-1, {half, 2});
    const auto a = pairs.select(-1, 0), b = pairs.select(-1, 1);
    return at::stack({a * cosine - b * sine, b * cosine + a * sine}, -1).flatten(-2);
  }
  const auto a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a * cosine - b * sine, b * cosine + a * sine}, -1);
}

}  // namespace fastllm::gpt::testing
