#include "core/data/ordered_workers.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <latch>
#include <stdexcept>

namespace fastllm::data {
namespace {

TEST(OrderedWorkers, HandsOutResultsInOrder) {
  for (int threads : {0, 1, 2, 4}) {
    OrderedWorkers<int64_t> workers(500, threads, 7,
                                    [](int64_t number) { return number * number; });
    for (int64_t i = 0; i < 500; ++i) ASSERT_EQ(workers.next(), i * i);
    EXPECT_TRUE(workers.done());
    EXPECT_GE(workers.waited_ms(), 0);
  }
}

TEST(OrderedWorkers, MakesNoMoreAheadThanAllowed) {
  std::atomic<int64_t> made{0};
  int64_t handed = 0;
  OrderedWorkers<int64_t> workers(200, 3, 4, [&](int64_t number) { return ++made, number; });
  while (!workers.done()) {
    workers.next();
    ++handed;
    EXPECT_LE(made.load(), handed + 4);
  }
}

TEST(OrderedWorkers, DeliversAnExceptionInItsTurnAndAgain) {
  for (int threads : {0, 3}) {
    OrderedWorkers<int64_t> workers(100, threads, 8, [](int64_t number) {
      if (number >= 5) throw std::runtime_error("at " + std::to_string(number));
      return number;
    });
    for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(workers.next(), i);
    for (int again = 0; again < 2; ++again) {
      try {
        workers.next();
        ADD_FAILURE() << "no exception";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "at 5");
      }
    }
  }
}

TEST(OrderedWorkers, EndsAtAnyMoment) {
  for (int taken = 0; taken < 20; ++taken) {
    OrderedWorkers<int64_t> workers(1000, 4, 8, [](int64_t number) { return number; });
    for (int i = 0; i < taken; ++i) workers.next();
  }
  // While every worker waits for room, and while one is at work.
  std::latch full(2), begun(1), go_on(1);
  {
    OrderedWorkers<int64_t> waiting(1000, 2, 2,
                                    [&](int64_t number) { return full.count_down(), number; });
    full.wait();
  }
  std::thread opener;
  {
    OrderedWorkers<int64_t> working(1, 1, 1, [&](int64_t number) {
      begun.count_down();
      go_on.wait();
      return number;
    });
    begun.wait();
    opener = std::thread([&] { go_on.count_down(); });
  }
  opener.join();
}

}  // namespace
}  // namespace fastllm::data
