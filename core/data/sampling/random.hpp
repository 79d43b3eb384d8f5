// Random orders that equal the reference's, bit for bit: PyTorch's CPU randperm and NumPy's legacy
// RandomState. Both seed the 32-bit Mersenne Twister with init_genrand(seed mod 2^32), which is
// what std::mt19937's constructor does; its output is fixed by the C++ standard. std::shuffle and
// distributions are not: never use them here.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace fastllm::data {

inline std::mt19937 make_generator(uint64_t seed) { return std::mt19937(uint32_t(seed)); }

// From this many elements on, PyTorch draws 64 bits and fills from the inside out.
constexpr uint64_t kRandpermWide = std::numeric_limits<uint32_t>::max() / 20;

// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on CPU; Index must hold n - 1.
template <class Index>
std::vector<Index> torch_randperm(uint64_t n, uint64_t seed) {
  std::mt19937 generator = make_generator(seed);
  std::vector<Index> order(n);
  if (n < kRandpermWide) {
    std::iota(order.begin(), order.end(), Index(0));
    for (uint64_t i = 0; i + 1 < n; ++i) {
      uint64_t other = i + uint32_t(generator()) % uint32_t(n - i);
      std::swap(order[i], order[other]);
    }
  } else {
    for (uint64_t i = 0; i < n; ++i) {
      uint64_t high = generator();
      uint64_t other = (high << 32 | generator()) % (i + 1);
      order[i] = order[other];
      order[other] = Index(i);
    }
  }
  return order;
}

// Uniform in [0, largest] as the legacy RandomState draws it: words masked to the bits of
// `largest`, too large ones rejected; nothing is drawn for 0.
inline uint32_t numpy_bounded(std::mt19937& generator, uint32_t largest) {
  if (largest == 0) return 0;
  uint32_t mask = std::numeric_limits<uint32_t>::max() >> std::countl_zero(largest);
  while (true) {
    uint32_t value = uint32_t(generator()) & mask;
    if (value <= largest) return value;
  }
}

// RandomState.shuffle; at most 2^32 elements.
template <class T>
void numpy_shuffle(std::mt19937& generator, std::span<T> values) {
  for (size_t i = values.size(); i-- > 1;) {
    std::swap(values[i], values[numpy_bounded(generator, uint32_t(i))]);
  }
}

}  // namespace fastllm::data
