// The processor's kernels against plain loops, in every case of the shared table.
#include <gtest/gtest.h>

#include "tests/support/cpu_kernels.hpp"
#include "tests/support/plain_kernels.hpp"

namespace fastllm::testing {
namespace {

// Of the norm of an output. Sums of float32 lose a few of its 24 bits.
constexpr double kTolerance = 2e-6;

struct Named {
  Kernel<CpuSide> cpu;
  Kernel<PlainSide> plain;
};
std::vector<Named> all() {
  std::vector<Named> result;
  const auto cpu = kernel_table<CpuSide>();
  const auto plain = kernel_table<PlainSide>();
  for (size_t i = 0; i < cpu.size(); ++i) result.push_back({cpu[i], plain[i]});
  return result;
}
void PrintTo(const Named& named, std::ostream* out) { *out << named.cpu.name; }

class Kernels : public ::testing::TestWithParam<Named> {};

TEST_P(Kernels, AreLikePlainLoopsAndGiveTheSameBitsAgain) {
  for (size_t i = 0; i < GetParam().cpu.cases.size(); ++i) {
    SCOPED_TRACE(GetParam().cpu.cases[i].name);
    CpuSide cpu, again;
    PlainSide plain;
    const KernelOutputs found = GetParam().cpu.cases[i].run(cpu),
                        repeated = GetParam().cpu.cases[i].run(again),
                        expected = GetParam().plain.cases[i].run(plain);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t k = 0; k < found.size(); ++k) {
      EXPECT_LT(distance(found[k].values, expected[k].values), kTolerance) << found[k].name;
      EXPECT_EQ(found[k].values, repeated[k].values) << found[k].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, Kernels, ::testing::ValuesIn(all()),
                         [](const auto& named) { return named.param.cpu.name; });

}  // namespace
}  // namespace fastllm::testing
