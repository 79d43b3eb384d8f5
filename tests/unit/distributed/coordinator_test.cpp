// Comparing and meeting, with ranks as threads.
#include "core/distributed/coordinator.hpp"

#include <gmock/gmock.h>
#include <signal.h>

#include "core/base/cancel.hpp"
#include "core/distributed/communicator.hpp"
#include "core/distributed/introduction.hpp"
#include "core/distributed/rendezvous.hpp"
#include "tests/support/message_of.hpp"
#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::distributed {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::MemoryStore;
using testing::run_ranks;

constexpr milliseconds kLong(20000), kShort(50);

// What each rank's body throws; "" for nothing.
std::vector<std::string> errors_of(int size, const std::function<void(int, Store&)>& body) {
  auto contents = std::make_shared<MemoryStore::Contents>();
  std::vector<std::string> errors(static_cast<size_t>(size));
  run_ranks(size, [&](int rank) {
    MemoryStore store(contents);
    try {
      body(rank, store);
    } catch (const Error& e) {
      errors[size_t(rank)] = e.what();
    }
  });
  return errors;
}

TEST(Coordinator, EqualTextsPassAsOftenAsOneLikes) {
  const auto errors = errors_of(4, [](int rank, Store& store) {
    Coordinator c(store, rank, 4);
    c.agree("configuration", "a\nb", kLong);
    c.meet("here", kLong);
    c.agree("data", "x", kLong);
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(Coordinator, TheStoreDoesNotGrow) {
  auto contents = std::make_shared<MemoryStore::Contents>();
  const auto keys_after = [&](int meetings) {
    contents->values.clear();
    run_ranks(4, [&](int rank) {
      MemoryStore store(contents);
      Coordinator c(store, rank, 4);
      for (int i = 0; i < meetings; ++i) {
        c.meet("here", kLong);
        c.agree("data", "x", kLong);
      }
    });
    return contents->values.size();
  };
  EXPECT_EQ(keys_after(50), keys_after(1));
  EXPECT_EQ(keys_after(1), 1u);  // the last verdict, which nobody says to have read
}

TEST(Coordinator, ADifferenceIsNamedOnEveryRank) {
  const auto errors = errors_of(4, [](int rank, Store& store) {
    Coordinator c(store, rank, 4);
    c.agree("configuration", rank == 2 ? "seed: 1\nsize: 8" : "seed: 1\nsize: 4", kLong);
  });
  for (const auto& error : errors) {
    EXPECT_EQ(error,
              "expected the same configuration on all ranks, found a difference in line 2: ranks "
              "0-1, 3 have \"size: 4\", rank 2 has \"size: 8\"; start every rank with the same "
              "command, files and program");
  }
}

TEST(Coordinator, DifferencesInEveryForm) {
  EXPECT_EQ(difference("x", {"same", "same"}), "");
  EXPECT_THAT(difference("x", {"a\nb", "a"}),
              HasSubstr("line 2: rank 0 has \"b\", rank 1 has no such line"));
  EXPECT_THAT(difference("x", {"a", "b", "c", "b"}),
              HasSubstr("line 1: rank 0 has \"a\", ranks 1, 3 have \"b\", rank 2 has \"c\""));
  const std::string begin(500, '=');
  const std::string told = difference("x", {begin + "left", begin + "right"});
  EXPECT_THAT(told, HasSubstr("=left\""));
  EXPECT_THAT(told, HasSubstr("=right\""));
  EXPECT_LT(told.size(), 500u);
}

TEST(Coordinator, PlacesThatDifferAreNamed) {
  const auto errors = errors_of(3, [](int rank, Store& store) {
    Coordinator(store, rank, 3).meet(rank == 1 ? "save 10" : "evaluation 10", kLong);
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, HasSubstr("ranks 0, 2 are at \"evaluation 10\", rank 1 is at \"save 10\""));
}

TEST(Coordinator, WhoDoesNotComeIsNamedByAllWhoDo) {
  const auto errors = errors_of(4, [](int rank, Store& store) {
    if (rank != 2) Coordinator(store, rank, 4).meet("save 10", kShort);
  });
  for (int rank : {0, 1, 3}) {
    EXPECT_THAT(errors[size_t(rank)],
                HasSubstr("expected all ranks at save 10 within 0.05 s, found that rank 2 did not "
                          "come"));
  }
}

TEST(Coordinator, WaitingEndsWhenThereIsNoUseInIt) {
  const auto errors = errors_of(2, [](int rank, Store& store) {
    Coordinator c(store, rank, 2, [] { throw Error(Status::kUnavailable, "rank 1 failed: x"); });
    if (rank == 0) c.meet("the end", kLong);
  });
  EXPECT_EQ(errors[0], "rank 1 failed: x");
}

TEST(Rendezvous, NamesOfAllOnEveryRank) {
  std::mutex mutex;
  const auto errors = errors_of(3, [&](int rank, Store& store) {
    const auto names = introduce(store, {rank, 3, "1.0"}, kLong);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(names.size(), 3u);
    for (const auto& name : names) EXPECT_THAT(name, HasSubstr(", process "));
  });
  for (const auto& error : errors) EXPECT_EQ(error, "");
}

TEST(Rendezvous, AProblemOfAllIsTheFirstOnesToTell) {
  std::mutex mutex;
  int told_by_another = 0;
  const auto errors = errors_of(3, [&](int rank, Store& store) {
    try {
      introduce(store, {rank, 3, "1.0", "key: wrong"}, kLong);
    } catch (const ToldByAnother&) {
      const std::lock_guard lock(mutex);
      EXPECT_NE(rank, 0);
      ++told_by_another;
    }
  });
  EXPECT_EQ(errors[0], "key: wrong");
  EXPECT_EQ(told_by_another, 2);
}

TEST(Rendezvous, AProblemOfOneIsTheEndOfAll) {
  const auto errors = errors_of(3, [](int rank, Store& store) {
    introduce(store, {rank, 3, "1.0", rank == 1 ? "key: wrong\nother: missing" : ""}, kLong);
  });
  EXPECT_EQ(errors[1], "key: wrong\nother: missing");
  for (int rank : {0, 2}) {
    EXPECT_THAT(
        errors[size_t(rank)],
        ::testing::MatchesRegex("rank 1 \\(.*, process [0-9]+\\) failed: key: wrong\nother: "
                                "missing"));
  }
}

TEST(Rendezvous, ARunThatHasBegunIsLeftAlone) {
  auto contents = std::make_shared<MemoryStore::Contents>();
  MemoryStore store(contents);
  introduce(store, {0, 1, "1.0"}, kLong);
  const auto before = contents->values;
  EXPECT_THAT(test::message_of([&] {
                introduce(store, {0, 1, "1.0"}, kLong);
              }),
              HasSubstr("expected a run that waits for rank 0, found that the one at that port "
                        "began without it"));
  EXPECT_EQ(contents->values, before);
}

TEST(Rendezvous, ASignalEndsTheWaitOfAll) {
  stop_signal() = SIGTERM;
  const auto errors = errors_of(3, [](int rank, Store& store) {
    if (rank == 2) return;  // never comes
    try {
      introduce(store, {rank, 3, "1.0"}, kLong);
    } catch (const Error& e) {
      EXPECT_EQ(e.status(), Status::kCancelled);
      throw;
    }
  });
  stop_signal() = 0;
  for (int rank : {0, 1})
    EXPECT_THAT(errors[size_t(rank)],
                HasSubstr("was asked to stop: Interrupt signal SIGTERM received while waiting for "
                          "the other ranks: nothing was begun, nothing is saved"));
}

TEST(Rendezvous, WhoDoesNotComeAndWhoDid) {
  const auto errors = errors_of(4, [](int rank, Store& store) {
    if (rank != 1 && rank != 2) introduce(store, {rank, 4, "1.0"}, kShort);
  });
  for (int rank : {0, 3}) {
    EXPECT_THAT(errors[size_t(rank)], HasSubstr("expected 4 ranks within 0.05 s, found that ranks "
                                                "1-2 did not come; there are rank 0 ("));
    EXPECT_THAT(errors[size_t(rank)], HasSubstr("), rank 3 ("));
  }
}

TEST(Rendezvous, TwoOfTheSameNumber) {
  const auto errors = errors_of(3, [](int thread, Store& store) {
    introduce(store, {thread == 2 ? 1 : thread, 3, "1.0"}, kLong);
  });
  for (const auto& error : errors)
    EXPECT_THAT(error, HasSubstr("two processes say that they are rank 1: "));
}

TEST(Rendezvous, AnotherNumberOfRanks) {
  auto errors = errors_of(2, [](int rank, Store& store) {
    introduce(store, {rank, rank == 1 ? 3 : 2, "1.0"}, kLong);
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, HasSubstr("expected all ranks to be started for 2 ranks, as rank 0 was, "
                                 "found rank 1 ("));
    EXPECT_THAT(error, HasSubstr(") started for 3; start all with the same WORLD_SIZE"));
  }
  // Rank 0 does not look for a rank 2, which has to see for itself.
  errors = errors_of(3, [](int rank, Store& store) {
    introduce(store, {rank, rank == 2 ? 3 : 2, "1.0"}, kLong);
  });
  EXPECT_THAT(errors[2], HasSubstr("started for 3"));
}

TEST(Rendezvous, AnotherVersion) {
  const auto errors = errors_of(2, [](int rank, Store& store) {
    introduce(store, {rank, 2, rank == 1 ? "1.1" : "1.0"}, kLong);
  });
  for (const auto& error : errors)
    EXPECT_THAT(error,
                HasSubstr("expected version 1.0 on all ranks, as on rank 0, found 1.1 on rank 1"));
}

TEST(Rendezvous, NobodySaysWhereToMeet) {
  LaunchEnvironment launch;
  launch.world_size = 4;
  const auto told = [&] {
    return test::message_of([&] { find_meeting_place(launch, 0, kShort); });
  };
  EXPECT_EQ(told(),
            "expected the variables MASTER_ADDR and MASTER_PORT to say where 4 ranks meet, found "
            "neither; start with --nproc, torchrun or srun, which set them");
  launch.master_host = "localhost";
  EXPECT_THAT(told(), HasSubstr("found no MASTER_PORT"));
}

}  // namespace
}  // namespace fastllm::distributed
