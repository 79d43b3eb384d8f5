// Passes over arrays against one number at a time, for all pairs of types.
#include "core/shard/elements.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstring>
#include <random>
#include <vector>

#include "core/base/half.hpp"
#include "core/base/tensor.hpp"

namespace fastllm::shard {
namespace {

using Bytes = std::vector<std::byte>;

float load(const Bytes& bytes, DLDataType type, int64_t i) {
  if (type.bits == 32) return reinterpret_cast<const float*>(bytes.data())[i];
  const uint16_t stored = reinterpret_cast<const uint16_t*>(bytes.data())[i];
  return type.code == kDLBfloat ? from_bfloat16(stored) : from_float16(stored);
}
void store(Bytes& bytes, DLDataType type, int64_t i, float value) {
  if (type.bits == 32)
    reinterpret_cast<float*>(bytes.data())[i] = value;
  else
    reinterpret_cast<uint16_t*>(bytes.data())[i] =
        type.code == kDLBfloat ? to_bfloat16(value) : to_float16(value);
}

// Of all sizes, subnormal and beyond the largest float16 among them.
Bytes make_numbers(DLDataType type, int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(size_t(n) * (type.bits / 8));
  for (int64_t i = 0; i < n; ++i)
    store(bytes, type, i, std::ldexp(float(int32_t(random())) * 0x1p-31f, int(random() % 44) - 26));
  return bytes;
}

TEST(Elements, CopyAndAddEqualOneAtATime) {
  const int usual = omp_get_max_threads();
  for (const DLDataType to : {kFloat32, kBfloat16, kFloat16})
    for (const DLDataType from : {kFloat32, kBfloat16, kFloat16})
      for (const int64_t n : {0, 1, 15, 200003}) {  // chunks for several threads at the end
        SCOPED_TRACE(dtype_text(from) + " to " + dtype_text(to) + ", " + std::to_string(n));
        const Bytes values = make_numbers(from, n, 1), before = make_numbers(to, n, 2);
        Bytes copied = before, added = before;
        for (int64_t i = 0; i < n; ++i) {
          store(copied, to, i, load(values, from, i));
          store(added, to, i, load(before, to, i) + load(values, from, i));
        }
        for (const int threads : {1, 3}) {
          omp_set_num_threads(threads);
          Bytes found = before;
          copy(found.data(), to, values.data(), from, n);
          EXPECT_TRUE(found == copied);
          found = before;
          add(found.data(), to, values.data(), from, n);
          EXPECT_TRUE(found == added);
        }
        omp_set_num_threads(usual);
      }
}

TEST(Elements, FillZeroKeepsToItsRange) {
  for (const DLDataType type : {kFloat32, kBfloat16}) {
    Bytes bytes = make_numbers(type, 100000, 3);
    const size_t size = type.bits / 8;
    Bytes expected = bytes;
    std::memset(expected.data() + size, 0, 99998 * size);
    fill_zero(bytes.data() + size, type, 99998);
    EXPECT_TRUE(bytes == expected);
  }
}

}  // namespace
}  // namespace fastllm::shard
