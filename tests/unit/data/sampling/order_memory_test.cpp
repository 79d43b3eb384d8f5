// What a long order says of its memory before it is made, and when there was not so much.
#include "core/data/sampling/order_memory.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <limits>

#include "core/data/sampling/document_order.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

OrderMemory memory_of(int64_t documents, int64_t epochs, int64_t samples = 0) {
  return {"tiny", "full", documents, epochs, samples};
}

// Claims any number of tokens in two documents.
class Claiming final : public IndexedDataset {
 public:
  explicit Claiming(int64_t tokens) : tokens_(tokens) {}
  int64_t num_documents() const override { return 2; }
  int64_t num_tokens() const override { return tokens_; }
  int64_t document_size(int64_t) const override { return tokens_ / 2; }
  void get(int64_t, int64_t, std::span<int64_t>, std::vector<Span>*) const override {}
  bool has_spans() const override { return false; }
  std::string name() const override { return "claiming"; }
  std::string locate(int64_t) const override { return ""; }
  std::vector<std::string> fingerprints() const override { return {}; }

 private:
  int64_t tokens_;
};

TEST(OrderMemory, CountsIndicesAndSumsOfTokens) {
  EXPECT_EQ(memory_of(64, 3).bytes(), 192 * 4 + 7 * 8u);
  EXPECT_EQ(memory_of(64, 3, 10).bytes(), 192 * 4 + 7 * 8 + 10 * 4u);
  const uint64_t many = uint64_t(1) << 33;  // indices of 64 bits
  EXPECT_EQ(memory_of(int64_t(1) << 10, int64_t(1) << 23).bytes(), many * 8 + (many / 32 + 1) * 8);
  // Three orders of an epoch each: the largest that still has indices of 32 bits.
  EXPECT_EQ((OrderMemory{"x", "epoch", int64_t(1) << 32, 1, 0, 3}.bytes()),
            3 * ((uint64_t(1) << 34) + ((uint64_t(1) << 27) + 1) * 8));
  EXPECT_EQ(memory_of(INT64_MAX, INT64_MAX).bytes(), kNoLimit);
  EXPECT_EQ(memory_of(INT64_MAX, 2).bytes(), kNoLimit);
}

TEST(OrderMemory, ALargeOneIsToldAndASmallOneIsNot) {
  EXPECT_EQ(test::logged([] { memory_of(1000, 1000).announce(kNoLimit); }), "");
  // 4 bytes each and 8 for every 32nd: 4.25 times 100 million, in 2^20.
  EXPECT_THAT(test::logged([] { memory_of(1000, 100'000).announce(kNoLimit); }),
              HasSubstr("with shuffle full the order of 1,000 documents times 100,000 epochs of "
                        "dataset tiny takes "
                        "405.31 MiB of memory and some time to make"));
}

TEST(OrderMemory, OneThatCannotFitIsRefusedWithTheRemedy) {
  const OrderMemory memory = memory_of(64, 3, 10);
  EXPECT_EQ(test::logged([&] { memory.announce(memory.bytes()); }), "");
  EXPECT_THAT(message_of([&] { memory.announce(memory.bytes() - 1); }, Status::kOutOfMemory),
              AllOf(StartsWith("expected an order of documents that fits the 0.00 MiB of memory"),
                    HasSubstr("64 documents times 3 epochs and of 10 samples of dataset tiny"),
                    HasSubstr("shuffle by epoch (data.sampling.shuffle: epoch")));
  EXPECT_THAT(message_of([] { memory_of(INT64_MAX, INT64_MAX).announce(); }, Status::kOutOfMemory),
              HasSubstr("more than 8 EiB"));
}

TEST(OrderMemory, TheOrderThatDidNotFitIsTheCause) {
  EXPECT_THAT(
      message_of([] { memory_of(64, 3).guard([] { throw std::bad_alloc(); }); },
                 Status::kOutOfMemory),
      AllOf(StartsWith("out of memory: with shuffle full the order of 64 documents times 3 epochs"),
            HasSubstr("not so much left; shuffle by epoch")));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end the process instead
TEST(OrderMemory, AnOrderThatIsTooLongForTheAddressSpaceSaysSo) {
  for (Shuffle shuffle : {Shuffle::kFull, Shuffle::kLegacy}) {
    DocumentOrder order(std::make_shared<Claiming>(4),
                        {.shuffle = shuffle, .epochs = int64_t(1) << 47, .memory_limit = kNoLimit});
    EXPECT_THAT(message_of([&] { order.run(0); }, Status::kOutOfMemory),
                AllOf(StartsWith("out of memory: "), HasSubstr("the order of 2 documents")));
  }
}
#endif

TEST(OrderMemory, EpochsAreOrderedOneByOneAndUpToThreeAreThere) {
  for (const auto& [epochs, at_once] : {std::pair(1, 1), {2, 2}, {100, 3}}) {
    const uint64_t bytes = uint64_t(at_once) * (2 * 4 + 8);
    const auto make = [&, epochs = epochs](uint64_t limit) {
      DocumentOrder(std::make_shared<Claiming>(4), {.epochs = epochs, .memory_limit = limit});
    };
    make(bytes);
    EXPECT_THAT(message_of([&] { make(bytes - 1); }, Status::kOutOfMemory),
                HasSubstr(fmt::format("2 documents times {} epochs", at_once)));
  }
}

TEST(OrderMemory, MoreTokensThanCanBeCountedAreRefused) {
  EXPECT_THAT(
      message_of(
          [&] {
            DocumentOrder(
                std::make_shared<Claiming>(int64_t(1) << 40),
                {.shuffle = Shuffle::kFull, .epochs = int64_t(1) << 30, .memory_limit = kNoLimit});
          },
          Status::kInvalid),
      HasSubstr("expected fewer than 2^63 tokens over all epochs"));
}

TEST(MemoryLimit, IsSharedByTheProcessesOfTheComputer) {
  EXPECT_EQ(memory_limit(4), memory_limit() / 4);
}

#ifndef __SANITIZE_ADDRESS__  // it has reserved far more already, and every limit ends the process
TEST(MemoryLimit, IsThatOfTheProcessWhereThatIsLess) {
  const uint64_t whole = memory_limit();
  EXPECT_GT(whole, uint64_t(1) << 20);
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(resource, &before), 0);
    rlimit less = before;
    less.rlim_cur = whole / 2;
    ASSERT_EQ(::setrlimit(resource, &less), 0);
    const uint64_t limited = memory_limit();
    ::setrlimit(resource, &before);
    EXPECT_EQ(limited, whole / 2);
  }
}

TEST(MemoryLimit, OfEachProcessIsNotShared) {
  const uint64_t whole = memory_limit();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  rlimit less = before;
  less.rlim_cur = whole / 2;  // of each
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &less), 0);
  const uint64_t two = memory_limit(2), four = memory_limit(4);
  ::setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(two, whole / 2);
  EXPECT_EQ(four, whole / 4);
}
#endif

TEST(MemoryLimit, TheTightestControlGroupCounts) {
  const TemporaryDirectory folder;
  const auto put = [&](const std::string& name, const std::string& text) {
    const auto path = folder.path() / name;
    std::filesystem::create_directories(path.parent_path());
    write_file_atomic(path, text);
  };
  const auto limit = [&](const std::string& membership) {
    return control_group_limit(membership, folder.path());
  };
  EXPECT_EQ(limit("0::/\n"), kNoLimit);
  put("jobs/7/memory.max", "max\n");
  EXPECT_EQ(limit("0::/jobs/7\n"), kNoLimit);
  put("jobs/memory.max", "3000\n");
  EXPECT_EQ(limit("0::/jobs/7\n"), 3000u);
  put("memory.max", "2000\n");  // a container's own
  EXPECT_EQ(limit("0::/elsewhere\n"), 2000u);
  put("memory/jobs/memory.limit_in_bytes", "1000\n");
  put("cpu/jobs/memory.limit_in_bytes", "1\n");
  EXPECT_EQ(limit("9:cpu:/jobs\n4:memory:/jobs\n0::/\n"), 1000u);
}

}  // namespace
}  // namespace fastllm::data
