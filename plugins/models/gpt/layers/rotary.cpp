// Angles are made in double and rounded once, so that long positions do not lose digits.
// The table grows to the longest position seen; a row never changes once made.
#include "layers/rotary.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/rotary.hpp"

namespace fastllm::gpt {

void Rotary::extend(int64_t positions) {
  const int64_t half = head_width_ / 2;
  int64_t position = int64_t(table_.size()) / head_width_;
  if (position >= positions) return;
  table_.resize(size_t(positions * head_width_));
  for (; position < positions; ++position) {
    float* row = table_.data() + position * head_width_;
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          double(position) * std::pow(config_.theta, -2.0 * double(i) / double(head_width_));
      row[i] = float(std::cos(angle));
      row[half + i] = float(std::sin(angle));
    }
  }
}

void Rotary::apply(const at::Tensor& values, int64_t heads, const at::Tensor& positions,
                   int64_t limit, bool inverse) {
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
         table_.data(), begin, inverse, values.mutable_data_ptr<float>());
}

}  // namespace fastllm::gpt
