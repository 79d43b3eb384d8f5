// The shared table names every kernel that the built libraries define, on the processor and, where it
// is built, on the device. What they define is read from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cpu_kernels.hpp"
#include "tests/support/symbols.hpp"

namespace fastllm::testing {
namespace {

using Names = std::set<std::string>;

Names in_table() {
  Names names;
  for (const auto& kernel : kernel_table<CpuSide>()) {
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is in the table twice";
    EXPECT_FALSE(kernel.cases.empty()) << kernel.name << " has no case";
  }
  return names;
}

// Functions that compute nothing: they say how much scratch memory another one needs, or choose.
bool is_question(const std::string& name) {
  return name.ends_with("_scratch") || name == "scratch_size" || name == "prefers_tiles";
}
// Parts of attention's products, which a device leaves to cuBLAS like all products.
const Names kProcessorAlone{"multiply_panel", "pack_panels", "pack_transposed_panels"};

Names kernels_in(const std::string& name_space, const std::string& files) {
  Names names = functions_in(name_space, files);
  std::erase_if(names, is_question);
  return names;
}
Names united(Names names, const Names& others) {
  names.insert(others.begin(), others.end());
  return names;
}

TEST(KernelList, NamesEveryKernelOfTheProcessor) {
  const Names of_gpt = kernels_in("fastllm::gpt", FASTLLM_CPU_GPT_KERNELS);
  Names found = united(kernels_in("fastllm::shard", FASTLLM_CPU_ELEMENTS),
                       kernels_in("fastllm::optim", FASTLLM_CPU_ADAMW));
  for (const std::string& name : of_gpt)
    if (!kProcessorAlone.contains(name)) found.insert(name);
  EXPECT_EQ(found, in_table());
  for (const std::string& name : kProcessorAlone) EXPECT_TRUE(of_gpt.contains(name)) << name;
}

#ifdef FASTLLM_CUDA_GPT_KERNELS
TEST(KernelList, NamesEveryKernelOfTheDevice) {
  EXPECT_EQ(united(kernels_in("fastllm::gpt::cuda", FASTLLM_CUDA_GPT_KERNELS),
                   kernels_in("fastllm::cuda", FASTLLM_CUDA_CORE_KERNELS)),
            in_table());
}
#endif

}  // namespace
}  // namespace fastllm::testing
