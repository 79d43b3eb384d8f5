// What a computer without a usable GPU is told. Where there is one, there is nothing to be told.
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/cuda/error.hpp"
#include "core/cuda/stream.hpp"

namespace fastllm::cuda {
namespace {

TEST(CudaDevice, IsNamedInTheErrorWhereThereIsNone) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) GTEST_SKIP() << "this computer has a CUDA device";
  const auto why = why_no_device();
  ASSERT_TRUE(why.has_value());
  const std::string name = cudaGetErrorName(error == cudaSuccess ? cudaErrorNoDevice : error);
  EXPECT_NE(why->find("found " + name), std::string::npos) << *why;
  try {
    const Stream stream(0);
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnavailable);
    const std::string text = e.what();
    EXPECT_TRUE(text.starts_with("expected a CUDA device, found " + name)) << text;
    EXPECT_NE(text.find("nvidia-smi"), std::string::npos) << text;
  }
}

TEST(CudaErrors, NameWhatWasExpectedAndWhatTheRuntimeSays) {
  EXPECT_NO_THROW(check(cudaSuccess, "anything"));
  try {
    check(cudaErrorInvalidValue, "a copy on a CUDA device");
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_STREQ(
        e.what(),
        "expected a copy on a CUDA device, found cudaErrorInvalidValue (invalid argument); "
        "nvidia-smi shows whether driver and device are well");
  }
}

}  // namespace
}  // namespace fastllm::cuda
