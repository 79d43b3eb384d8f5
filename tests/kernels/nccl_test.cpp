// The library of communicators over NCCL: that it loads and says what is missing needs no GPU; the
// collectives need two, and skip with the reason. Two threads are two ranks there.
#include <gtest/gtest.h>

#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "core/base/half.hpp"
#include "core/cuda/error.hpp"
#include "core/cuda/memory.hpp"
#include "core/cuda/stream.hpp"
#include "core/distributed/device_backend.hpp"

namespace fastllm::distributed {
namespace {

using std::chrono::milliseconds;

// Texts in this process, for ranks that are threads of it.
class ProcessStore final : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    texts_[key] = value;
  }
  std::optional<std::string> get(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    const auto at = texts_.find(key);
    return at == texts_.end() ? std::nullopt : std::optional(at->second);
  }
  bool has(std::span<const std::string> keys) override {
    for (const std::string& key : keys)
      if (!get(key)) return false;
    return true;
  }
  int64_t add(const std::string& key, int64_t amount) override {
    const std::lock_guard lock(mutex_);
    return counts_[key] += amount;
  }
  void remove(const std::string& key) override {
    const std::lock_guard lock(mutex_);
    texts_.erase(key);
    counts_.erase(key);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, int64_t> counts_;
};

Group pair_of(int rank) { return {"data", "", rank, {0, 1}}; }

TEST(NcclLibrary, LoadsAndSaysWhatDeviceIsMissing) {
  DeviceBackend& backend = load_device_backend();
  const auto why = cuda::why_no_device();
  ProcessStore store;
  // Where there are devices, there is none of this number.
  const int device = why ? 0 : 1000;
  try {
    backend.open_communicator(store, pair_of(0), device, milliseconds(1000), {});
    FAIL() << "expected an error";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kUnavailable);
    const std::string text = e.what();
    EXPECT_TRUE(text.starts_with(why ? *why : "expected CUDA device 1000, found")) << text;
    EXPECT_NE(text.find(why ? "run on the processor" : "CUDA_VISIBLE_DEVICES"), std::string::npos)
        << text;
  }
}

// Numbers on a device, and back.
class OnDevice {
 public:
  OnDevice(int device, DLDataType type, const std::vector<float>& numbers)
      : stream_(device), memory_(device, numbers.size() * type.bits / 8), type_(type) {
    std::vector<char> bytes(memory_.bytes());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const uint16_t half = to_bfloat16(numbers[i]);
      std::memcpy(bytes.data() + i * type.bits / 8,
                  type.bits == 32 ? static_cast<const void*>(&numbers[i]) : &half, type.bits / 8);
    }
    cuda::check(cudaMemcpyAsync(memory_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice,
                                stream_.get()),
                "a copy to a CUDA device");
    stream_.synchronize();
  }
  Memory memory() const {
    return {memory_.data(),
            int64_t(memory_.bytes()) * 8 / type_.bits,
            type_,
            {kDLCUDA, stream_.device()},
            stream_.get()};
  }
  std::vector<float> numbers() {
    std::vector<char> bytes(memory_.bytes());
    cuda::check(cudaMemcpyAsync(bytes.data(), memory_.data(), bytes.size(), cudaMemcpyDeviceToHost,
                                stream_.get()),
                "a copy from a CUDA device");
    stream_.synchronize();
    std::vector<float> result(size_t(memory().count));
    for (size_t i = 0; i < result.size(); ++i) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + i * type_.bits / 8, 2);
      if (type_.bits == 32)
        std::memcpy(&result[i], bytes.data() + 4 * i, 4);
      else
        result[i] = from_bfloat16(half);
    }
    return result;
  }

 private:
  cuda::Stream stream_;
  cuda::DeviceMemory memory_;
  DLDataType type_;
};

class NcclCollectives : public ::testing::TestWithParam<DLDataType> {
 protected:
  void SetUp() override {
    if (const auto why = cuda::why_no_device()) GTEST_SKIP() << *why;
    int count = 0;
    cuda::check(cudaGetDeviceCount(&count), "the number of CUDA devices");
    if (count < 2) GTEST_SKIP() << "expected two GPUs for two ranks, found " << count;
  }
  // body(communicator, rank), each in a thread.
  template <class Body>
  void on_both(Body&& body) {
    ProcessStore store;
    std::exception_ptr errors[2];
    const auto rank = [&](int r) {
      try {
        auto communicator =
            load_device_backend().open_communicator(store, pair_of(r), r, milliseconds(60000), {});
        body(*communicator, r);
        communicator->barrier();
      } catch (...) {
        errors[r] = std::current_exception();
      }
    };
    std::thread other(rank, 1);
    rank(0);
    other.join();
    for (const auto& error : errors)
      if (error) std::rethrow_exception(error);
  }
};

TEST_P(NcclCollectives, DoWhatTheirNamesSay) {
  using Numbers = std::vector<float>;
  on_both([&](Communicator& communicator, int r) {
    const float own = float(r + 1);
    OnDevice sum(r, GetParam(), {own, 10 * own}), mean(r, GetParam(), {own, 3 * own}),
        whole(r, GetParam(), {0, 0}), part(r, GetParam(), {own}), sent(r, GetParam(), {own}),
        received(r, GetParam(), {0}), scattered(r, kFloat32, {0}),
        all(r, GetParam(), {own, own + 4}), exchanged(r, GetParam(), {0, 0}),
        copied(r, GetParam(), {own, own});
    communicator.all_reduce(sum.memory(), Reduce::kSum).wait();
    EXPECT_EQ(sum.numbers(), (Numbers{3, 30}));
    communicator.all_reduce(mean.memory(), Reduce::kMean).wait();
    EXPECT_EQ(mean.numbers(), (Numbers{1.5, 4.5}));
    communicator.all_gather(part.memory(), whole.memory()).wait();
    EXPECT_EQ(whole.numbers(), (Numbers{1, 2}));
    communicator.reduce_scatter(all.memory(), scattered.memory(), Reduce::kSum).wait();
    EXPECT_EQ(scattered.numbers(), (Numbers{r == 0 ? 3.0f : 11.0f}));
    communicator.all_to_all(all.memory(), {}, exchanged.memory(), {}).wait();
    EXPECT_EQ(exchanged.numbers(), (r == 0 ? Numbers{1, 2} : Numbers{5, 6}));
    communicator.broadcast(copied.memory(), 1).wait();
    EXPECT_EQ(copied.numbers(), (Numbers{2, 2}));
    // Both send first: lanes of the two directions do not wait for each other.
    Pending sending = communicator.send(sent.memory(), 1 - r);
    communicator.receive(received.memory(), 1 - r).wait();
    sending.wait();
    EXPECT_EQ(received.numbers(), (Numbers{float(2 - r)}));
    EXPECT_GT(communicator.traffic().bytes(), 0);
  });
}
INSTANTIATE_TEST_SUITE_P(Types, NcclCollectives, ::testing::Values(kFloat32, kBfloat16),
                         [](const auto& type) { return dtype_text(type.param); });

}  // namespace
}  // namespace fastllm::distributed
