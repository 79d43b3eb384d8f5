// The watch over failures, with ranks as watches of one process and a store in memory. Waits for what
// must come, with a bound far above it; nothing is decided by how long something took.
#include "core/distributed/failure.hpp"

#include <gmock/gmock.h>

#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::distributed {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::MemoryStore;

class Watches : public ::testing::Test {
 protected:
  std::unique_ptr<FailureWatch> watch(int rank, int size) {
    WatchOptions options;
    options.beat = milliseconds(5);
    options.silence = milliseconds(300);
    options.suspicion = milliseconds(100);
    options.grace = milliseconds(300);
    options.end_process = [this, rank](const std::string& sentence) {
      const std::lock_guard lock(mutex);
      ended[rank] = sentence;
    };
    std::vector<std::string> names;
    for (int r = 0; r < size; ++r) names.push_back("host, process " + std::to_string(r));
    return std::make_unique<FailureWatch>(std::make_shared<MemoryStore>(contents), rank, names,
                                          options);
  }
  // The sentence that a rank learns; "(none)" after a long time without one.
  static std::string learnt(const FailureWatch& watch) {
    try {
      watch.await(milliseconds(10000));
    } catch (const PeerFailure& e) {
      return e.what();
    }
    return "(none)";
  }
  std::string ended_with(int rank) {
    for (int i = 0; i < 1000; ++i) {
      {
        const std::lock_guard lock(mutex);
        if (ended.contains(rank)) return ended[rank];
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    return "(none)";
  }
  std::shared_ptr<MemoryStore::Contents> contents = std::make_shared<MemoryStore::Contents>();
  std::mutex mutex;
  std::map<int, std::string> ended;
};

TEST_F(Watches, ASentenceReachesAll) {
  auto a = watch(0, 3), b = watch(1, 3), c = watch(2, 3);
  b->fail("the disk is full");
  EXPECT_EQ(learnt(*a), "rank 1 failed: the disk is full");
  EXPECT_EQ(learnt(*c), "rank 1 failed: the disk is full");
  EXPECT_THROW(a->check(), PeerFailure);
  // Its training thread looks at nothing: the watch ends the process.
  EXPECT_EQ(ended_with(2), "rank 1 failed: the disk is full");
}

TEST_F(Watches, OneThatWasAskedToStopStopsAll) {
  auto a = watch(0, 3), b = watch(1, 3), c = watch(2, 3);
  b->fail("stopped while loading", Status::kCancelled);
  const std::string told = "rank 1 was asked to stop: stopped while loading";
  EXPECT_EQ(learnt(*a), told);
  try {
    a->check();
    FAIL();
  } catch (const PeerFailure& e) {
    EXPECT_EQ(e.status(), Status::kCancelled);
    EXPECT_EQ(std::string(e.what()), told);
  }
  EXPECT_EQ(ended_with(2), told);
}

TEST(WatchOfABusyRank, EndsItWithTheCodeOfAnInterruption) {
  const auto end_busy = [](Status status) {
    auto contents = std::make_shared<MemoryStore::Contents>();
    WatchOptions options;
    options.beat = milliseconds(5);
    options.grace = milliseconds(50);
    options.interrupted_code = 3;
    const std::vector<std::string> names(2);
    FailureWatch busy(std::make_shared<MemoryStore>(contents), 0, names, options);
    FailureWatch other(std::make_shared<MemoryStore>(contents), 1, names, options);
    other.fail("x", status);
    std::this_thread::sleep_for(std::chrono::seconds(20));
  };
  EXPECT_EXIT(end_busy(Status::kCancelled), ::testing::ExitedWithCode(3), "rank 1 was asked to");
  EXPECT_EXIT(end_busy(Status::kInvalid), ::testing::ExitedWithCode(1), "rank 1 failed: x");
}

TEST_F(Watches, TheFirstSentenceIsTheReason) {
  auto a = watch(0, 2), b = watch(1, 2);
  b->fail("first");
  EXPECT_EQ(learnt(*a), "rank 1 failed: first");
  a->fail("a consequence");
  EXPECT_EQ(contents->values["failure"], "rank 1 failed: first");
}

TEST_F(Watches, OneWithoutASignOfLifeIsNamed) {
  auto a = watch(0, 3), b = watch(1, 3);  // rank 2 is dead
  EXPECT_EQ(learnt(*a),
            "rank 2 (host, process 2) failed: it has ended or stands still, for it has shown no "
            "sign of life for 0.3 s");
  EXPECT_EQ(learnt(*b), learnt(*a));
}

TEST_F(Watches, OneThatIsDoneIsNotMissed) {
  auto a = watch(0, 2), b = watch(1, 2);
  b.reset();
  EXPECT_NO_THROW(a->await(milliseconds(700)));
}

TEST_F(Watches, OneWhoseConnectionEndedIsNamedAtOnce) {
  auto a = watch(0, 3), b = watch(1, 3), c = watch(2, 3);
  a->lost(2);
  const std::string told =
      "rank 2 (host, process 2) failed: it ended without a word, as a process does that is killed";
  EXPECT_EQ(learnt(*a), told);
  EXPECT_EQ(learnt(*b), told);
}

TEST_F(Watches, OneThatSaidItIsDoneMayGo) {
  auto a = watch(0, 2), b = watch(1, 2);
  b.reset();
  a->lost(1);
  EXPECT_NO_THROW(a->await(milliseconds(100)));
}

TEST_F(Watches, OneThatFailedIsToldByItsOwnSentence) {
  auto a = watch(0, 3), b = watch(1, 3), c = watch(2, 3);
  b->fail("the disk is full");
  a->lost(1);
  EXPECT_EQ(learnt(*c), "rank 1 failed: the disk is full");
}

TEST_F(Watches, ALostStoreIsRankZero) {
  auto b = watch(1, 2);
  {
    const std::lock_guard lock(contents->mutex);
    contents->lost = true;
  }
  EXPECT_EQ(learnt(*b),
            "rank 0 (host, process 0) failed: it ended without a word, and with it the store of "
            "the run");
}

TEST_F(Watches, AfterAFailedCallTheLateOneIsNamed) {
  Group group{"data", "x_0_0", 0, {0, 1, 2}};
  auto a = watch(0, 3), b = watch(1, 3), c = watch(2, 3);
  for (auto* w : {a.get(), b.get(), c.get()}) w->begin(group, Operation::kAllGather, 1);
  a->begin(group, Operation::kAllReduce, 2);
  c->begin(group, Operation::kAllReduce, 2);
  try {
    a->explain(group, Operation::kAllReduce, 2, "timed out");
    FAIL();
  } catch (const PeerFailure& e) {
    EXPECT_STREQ(
        e.what(),
        "rank 1 failed: it did not come to all_reduce number 2 over group data_x_0_0 while "
        "rank 0 waited (timed out); the last it began was all_gather number 1 over group "
        "data_x_0_0");
  }
  EXPECT_EQ(learnt(*c), learnt(*a));
}

TEST_F(Watches, AfterAFailedCallADeadOneIsNamedSooner) {
  Group group{"data", "x_0_0", 0, {0, 1}};
  WatchOptions slow;
  slow.beat = milliseconds(5);
  slow.silence = milliseconds(3600000);
  slow.suspicion = milliseconds(100);
  slow.end_process = [](const std::string&) {};
  FailureWatch a(std::make_shared<MemoryStore>(contents), 0, {"h, process 1", "h, process 2"},
                 slow);
  try {
    a.explain(group, Operation::kAllReduce, 1, "connection closed");
    FAIL();
  } catch (const PeerFailure& e) {
    EXPECT_THAT(e.what(), HasSubstr("rank 1 (h, process 2) failed: it has ended or stands still"));
  }
}

}  // namespace
}  // namespace fastllm::distributed
