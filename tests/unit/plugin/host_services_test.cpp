// The rest of the host's table: tables by id, failure texts, cancellation, memory; and what a
// call's context costs.
#include "core/plugin/host_services.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <thread>

#include "core/base/cancel.hpp"
#include "core/base/log.hpp"
#include "core/plugin/crash.hpp"
#include "core/plugin/host_memory.hpp"
#include "tests/support/tensor.hpp"

namespace fastllm::plugin {
namespace {

using ::fastllm::testing::Tensor;
using ::testing::HasSubstr;

TEST(HostServices, OfferTablesByTheirId) {
  int table = 0;
  EXPECT_EQ(host_table()->get("test.table/0"), nullptr);
  offer("test.table/0", &table);
  EXPECT_EQ(host_table()->get("test.table/0"), &table);
  EXPECT_EQ(host_table()->get("test.table/1"), nullptr);
  offer("test.table/0", nullptr);
  EXPECT_EQ(host_table()->get("test.table/0"), nullptr);
  EXPECT_EQ(host_table()->get(nullptr), nullptr);
}

TEST(HostServices, HaveEveryMember) {
  const auto* host = host_table();
  EXPECT_EQ(host->size, sizeof *host);
  for (size_t at = offsetof(fastllm_host, name); at < sizeof *host; at += sizeof(void*)) {
    const void* member;
    std::memcpy(&member, reinterpret_cast<const char*>(host) + at, sizeof member);
    EXPECT_NE(member, nullptr) << at;
  }
  EXPECT_STREQ(host->name, "fastllm-host");
}

int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// A model is made again for each checkpoint that is compared with it.
TEST(HostServices, LogNotesOfMakingAModelOnce) {
  auto identity = Identity::make("noting", "1", "n.so"), other = Identity::make("other", "1", "o");
  const auto say = [](const Identity& who, const char* call, int32_t level, const char* text) {
    CallScope scope(who, call);
    host_table()->log(level, text);
  };
  const auto info = int32_t(log::Level::kInfo), warning = int32_t(log::Level::kWarning);
  ::testing::internal::CaptureStdout();
  for (int i = 0; i < 2; ++i) {
    say(*identity, "create", info, "a key has no effect");
    say(*other, "create", info, "a key has no effect");
    say(*identity, "create", info, "another key has none");
    say(*identity, "create", warning, "a warning is a warning");
    say(*identity, "forward", info, "forward is no making");
  }
  log::flush();
  const std::string text = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(times(text, "plugin noting: a key has no effect"), 1) << text;
  EXPECT_EQ(times(text, "plugin other: a key has no effect"), 1) << text;
  EXPECT_EQ(times(text, "another key has none"), 1) << text;
  EXPECT_EQ(times(text, "a warning is a warning"), 2) << text;
  EXPECT_EQ(times(text, "forward is no making"), 2) << text;
}

TEST(HostServices, SayWhetherToStop) {
  EXPECT_EQ(host_table()->cancelled(), 0);
  stop_signal() = 2;
  EXPECT_NE(host_table()->cancelled(), 0);
  stop_signal() = 0;
}

// Calls nest: a format asks the host, which asks a model. The outer call is found again as it was.
TEST(CallScope, NestsAndEndsWithItsThread) {
  auto outer = Identity::make("outer", "1", "o.so"), inner = Identity::make("inner", "2", "i.so");
  EXPECT_EQ(t_call.plugin.get(), nullptr);
  {
    CallScope first(*outer, "open", -1, "/x");
    set_failure(FASTLLM_INVALID, "outer text", true);
    {
      CallScope second(*inner, "forward", 3);
      EXPECT_EQ(describe(t_call), "plugin inner (i.so 2), layer 3 forward");
      EXPECT_FALSE(failure_given());
    }
    EXPECT_EQ(describe(t_call), "plugin outer (o.so 1), open /x");
    EXPECT_TRUE(failure_given());
    std::thread([&] {  // a plugin's own thread is taken to be in the call that is going on
      EXPECT_EQ(active_plugin_id(), "outer");
      CallScope third(*inner, "read");
      EXPECT_EQ(active_plugin_id(), "inner");
    })
        .join();
  }
  EXPECT_EQ(t_call.plugin.get(), nullptr);
}

TEST(CallScope, FailureTextsAreBounded) {
  auto identity = Identity::make("long", "1", "l.so");
  CallScope scope(*identity, "x");
  EXPECT_EQ(host_table()->fail(FASTLLM_DATA_LOSS, std::string(1 << 20, 'a').c_str()),
            FASTLLM_DATA_LOSS);
  EXPECT_EQ(latest_failure().size(), size_t(64) << 10);
  EXPECT_EQ(host_table()->fail(FASTLLM_OK, "no success"), FASTLLM_INTERNAL);
}

// Printed, not judged: timing decides no test.
TEST(CallScope, CostOfAnEmptyCall) {
  auto identity = Identity::make("empty", "1", "e.so");
  fastllm_status (*volatile function)(int) = [](int) -> fastllm_status { return FASTLLM_OK; };
  constexpr int kCalls = 1'000'000;
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) call_status(*identity, "forward", 1, nullptr, function, i);
  double ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() /
      kCalls;
  std::printf("an empty call through the context takes %.1f ns\n", ns);
  EXPECT_EQ(t_call.plugin.get(), nullptr);
}

TEST(HostMemory, IsLikeTheGivenTensorAndComesBack) {
  release_cached_memory();
  Tensor<float> like({3, 5});
  DLManagedTensorVersioned* out = nullptr;
  ASSERT_EQ(host_table()->alloc(like.view(), nullptr, &out), FASTLLM_OK);
  const DLTensor& tensor = out->dl_tensor;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data) % 64, 0u);
  EXPECT_EQ(tensor.ndim, 2);
  EXPECT_EQ(tensor.shape[0], 3);
  EXPECT_EQ(tensor.strides[0], 5);
  EXPECT_EQ(tensor.strides[1], 1);
  EXPECT_EQ(tensor.dtype.bits, 32);
  EXPECT_EQ(tensor.byte_offset, 0u);
  EXPECT_EQ(out->version.major, uint32_t(DLPACK_MAJOR_VERSION));
  std::memset(tensor.data, 1, 60);
  void* data = tensor.data;
  std::thread([&] { out->deleter(out); }).join();  // from any thread
  EXPECT_EQ(cached_bytes(), 64u);
  ASSERT_EQ(host_table()->alloc(like.view(), nullptr, &out), FASTLLM_OK);
  EXPECT_EQ(out->dl_tensor.data, data);  // the same block again
  out->deleter(out);
  release_cached_memory();
  EXPECT_EQ(cached_bytes(), 0u);
}

// Sizes that vary a little find the same block; what was not used for longest makes room.
TEST(HostMemory, KeepsWhatIsUsed) {
  release_cached_memory();
  auto take = [](int64_t bytes) {
    DLManagedTensorVersioned* out = nullptr;
    DLTensor like{nullptr, {kDLCPU, 0}, 1, {kDLUInt, 8, 1}, &bytes, nullptr, 0};
    EXPECT_EQ(host_table()->alloc(&like, nullptr, &out), FASTLLM_OK);
    return out;
  };
  auto give = [](DLManagedTensorVersioned* block) { block->deleter(block); };
  auto* first = take((int64_t(17) << 20) - 5);
  void* data = first->dl_tensor.data;
  give(first);
  first = take((int64_t(16) << 20) + 1);
  EXPECT_EQ(first->dl_tensor.data, data);
  give(first);

  constexpr int64_t kLarge = int64_t(300) << 20;  // never touched: no memory
  std::vector<DLManagedTensorVersioned*> large;
  for (int i = 0; i < 3; ++i) large.push_back(take(kLarge));
  for (auto* block : large) give(block);
  EXPECT_LE(cached_bytes(), uint64_t(1) << 30);
  EXPECT_GE(cached_bytes(), uint64_t(3 * kLarge));
  give(take((int64_t(200) << 20)));  // more than the bound with it
  EXPECT_LE(cached_bytes(), uint64_t(1) << 30);
  auto* recent = take(kLarge);
  EXPECT_EQ(recent->dl_tensor.data, data = recent->dl_tensor.data);
  give(recent);
  give(take(int64_t(2) << 30));  // alone beyond the bound: not kept, and nothing goes for it
  EXPECT_GE(cached_bytes(), uint64_t(2 * kLarge));
  release_cached_memory();
}

TEST(HostMemory, ScalarsAndEmptyTensors) {
  DLManagedTensorVersioned* out = nullptr;
  Tensor<float> scalar({}), empty({4, 0});
  ASSERT_EQ(host_table()->alloc(scalar.view(), nullptr, &out), FASTLLM_OK);
  EXPECT_NE(out->dl_tensor.data, nullptr);
  out->deleter(out);
  ASSERT_EQ(host_table()->alloc(empty.view(), nullptr, &out), FASTLLM_OK);
  EXPECT_EQ(out->dl_tensor.data, nullptr);
  out->deleter(out);
  release_cached_memory();
}

TEST(HostMemory, RefusesWhatCannotBe) {
  auto identity = Identity::make("asker", "1", "a.so");
  Tensor<float> like({3, 5});
  DLManagedTensorVersioned* out = nullptr;
  auto refusal = [&](const DLTensor& tensor) {
    CallScope scope(*identity, "x");
    EXPECT_NE(host_table()->alloc(&tensor, nullptr, &out), FASTLLM_OK);
    return latest_failure();
  };
  int64_t huge[] = {std::numeric_limits<int64_t>::max(), 16}, negative[] = {3, -1};
  DLTensor tensor = *like.view();
  tensor.shape = huge;
  EXPECT_THAT(refusal(tensor), HasSubstr("expected a tensor whose bits can be counted in 64 bits"));
  tensor.shape = negative;
  EXPECT_THAT(refusal(tensor),
              HasSubstr("expected dimensions of 0 or more, found -1 in dimension 1"));
  tensor = *like.view();
  tensor.ndim = 1000;
  EXPECT_THAT(refusal(tensor), HasSubstr("expected a tensor of 0 to 64 dimensions, found 1000"));
  tensor = *like.view();
  tensor.dtype.lanes = 4;
  EXPECT_THAT(refusal(tensor), HasSubstr("expected a tensor of one lane"));
  tensor = *like.view();
  tensor.device = {kDLCUDA, 0};
  EXPECT_THAT(refusal(tensor),
              HasSubstr("this host allocates on the CPU only; asked for device type 2"));
  int64_t large[] = {int64_t(1) << 30, int64_t(1) << 24};  // 64 PiB: countable, not to be had
  tensor = *like.view();
  tensor.shape = large;
  EXPECT_THAT(refusal(tensor), HasSubstr("cannot allocate 72057594037927936 bytes for a plugin"));
  EXPECT_EQ(host_table()->alloc(nullptr, nullptr, &out), FASTLLM_INVALID);
  EXPECT_EQ(out, nullptr);
}

}  // namespace
}  // namespace fastllm::plugin
