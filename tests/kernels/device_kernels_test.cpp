// Device kernels against the processor's, in every case of the shared table and every type of element.
// Needs a GPU; skips with the reason.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "tests/support/cpu_kernels.hpp"
#include "tests/support/device_kernels.hpp"

namespace fastllm::testing {
namespace {

struct Type {
  DLDataType type;
  double tolerance;  // of the norm of an output: rounding to the type, and other orders of sums
};
constexpr Type kTypes[]{{kFloat32, 1e-5}, {kBfloat16, 4e-3}, {kFloat16, 1e-3}};

class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = cuda::why_no_device()) GTEST_SKIP() << *why;
  }
};

// The number of a kernel in the table.
class DeviceKernels : public OnDevice, public ::testing::WithParamInterface<int> {};

template <class Element>
void expect_like_processor(int kernel, const Type& type) {
  const auto on_device = kernel_table<DeviceSide<Element>>()[size_t(kernel)];
  const auto on_processor = kernel_table<CpuSide>()[size_t(kernel)];
  for (size_t i = 0; i < on_device.cases.size(); ++i) {
    CpuSide processor(type.type);
    const KernelOutputs expected = on_processor.cases[i].run(processor);
    for (size_t shift : {size_t(0), sizeof(Element)}) {  // shifted memory is not read in packs
      SCOPED_TRACE(on_device.cases[i].name + " shift " + std::to_string(shift));
      DeviceSide<Element> device(shift), again(shift);
      const KernelOutputs found = on_device.cases[i].run(device),
                          repeated = on_device.cases[i].run(again);
      ASSERT_EQ(found.size(), expected.size());
      for (size_t k = 0; k < found.size(); ++k) {
        SCOPED_TRACE(found[k].name);
        EXPECT_LT(distance(found[k].values, expected[k].values),
                  expected[k].exact && same_dtype(type.type, kFloat32) ? 1e-300 : type.tolerance);
        EXPECT_EQ(distance(repeated[k].values, found[k].values), 0);
      }
    }
  }
}

TEST_P(DeviceKernels, AreLikeTheProcessorsInEveryType) {
  for (const Type& type : kTypes) {
    SCOPED_TRACE(dtype_text(type.type));
    if (type.type.bits == 32)
      expect_like_processor<float>(GetParam(), type);
    else if (type.type.code == kDLBfloat)
      expect_like_processor<__nv_bfloat16>(GetParam(), type);
    else
      expect_like_processor<__half>(GetParam(), type);
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceKernels,
                         ::testing::Range(0, int(kernel_table<CpuSide>().size())),
                         [](const auto& kernel) {
                           return kernel_table<CpuSide>()[size_t(kernel.param)].name;
                         });

// Heads are blocks of one launch; each is as if it were alone.
class DeviceBlocks : public OnDevice {};
TEST_F(DeviceBlocks, AreEachAsIfAlone) {
  const SoftmaxCase c{33, 64, 72, 31, 64, 0.2};
  const gpt::cuda::Blocks blocks{3, c.rows * c.stride + 8, 4096};
  const auto scores = Numbers(30)(blocks.count * blocks.scores);
  const auto rows = size_t(blocks.count * c.rows);
  const auto run = [&](bool together) {
    DeviceSide<float> side;
    float* data = side.values(scores);
    const gpt::SoftmaxRows statistics{side.put(std::vector<float>(rows)),
                                      side.put(std::vector<float>(rows))};
    if (together) gpt::cuda::attention_softmax(c.block(), blocks, data, statistics, side.get());
    for (int64_t b = 0; !together && b < blocks.count; ++b) {
      gpt::ScoreBlock block = c.block();
      block.first_number += uint64_t(b) * blocks.numbers;
      side.attention_softmax(
          block, data + b * blocks.scores,
          {statistics.maximum + b * c.rows, statistics.inverse_sum + b * c.rows});
    }
    return std::vector{side.take(data, scores.size()), side.take(statistics.maximum, rows),
                       side.take(statistics.inverse_sum, rows)};
  };
  EXPECT_EQ(run(true), run(false));
}

class DeviceStreams : public OnDevice {};
TEST_F(DeviceStreams, WaitForEventsOfOthers) {
  constexpr int64_t kCount = int64_t(1) << 24;
  cuda::Stream first(0), second(0);
  const cuda::DeviceMemory a(0, kCount * 4), b(0, kCount * 4);
  cuda::fill_zero(a.data(), kFloat32, kCount, first.get());
  std::vector<float> ones(size_t(kCount), 1);
  const cuda::PinnedMemory there(kCount * 4), back(kCount * 4);
  std::memcpy(there.data(), ones.data(), there.bytes());
  cuda::check(
      cudaMemcpyAsync(a.data(), there.data(), there.bytes(), cudaMemcpyHostToDevice, first.get()),
      "a copy to a CUDA device");
  cuda::Event copied(0);
  copied.record(first.get());
  second.wait(copied);
  cuda::copy(b.data(), kFloat32, a.data(), kFloat32, kCount, second.get());
  cuda::check(
      cudaMemcpyAsync(back.data(), b.data(), back.bytes(), cudaMemcpyDeviceToHost, second.get()),
      "a copy from a CUDA device");
  second.synchronize();
  EXPECT_EQ(std::memcmp(back.data(), ones.data(), back.bytes()), 0);
}

TEST_F(DeviceStreams, TellHowMuchMemoryThereIsNotEnoughOf) {
  try {
    const cuda::DeviceMemory too_much(0, size_t(1) << 60);
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kOutOfMemory);
    EXPECT_NE(std::string(e.what()).find("cudaErrorMemoryAllocation"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace fastllm::testing
