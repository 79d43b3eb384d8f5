// What a run on GPUs is told by a program without the library for them.
#include "core/distributed/device_backend.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace fastllm::distributed {
namespace {

TEST(DeviceBackend, SaysHowToBuildTheLibraryThatIsNotThere) {
  const auto library = std::filesystem::path(FASTLLM_BINARY_DIR) / "lib/fastllm/libfastllm_nccl.so";
  if (std::filesystem::exists(library))
    GTEST_SKIP() << "built with CUDA: " << library << " is there";
  try {
    load_device_backend();
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnavailable);
    const std::string text = e.what();
    EXPECT_TRUE(
        text.starts_with("a run on GPUs needs " + library.string() + ", which cannot be used: "))
        << text;
    EXPECT_NE(text.find("-DFASTLLM_WITH_CUDA=ON"), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with("or run on the processor")) << text;
  }
}

}  // namespace
}  // namespace fastllm::distributed
