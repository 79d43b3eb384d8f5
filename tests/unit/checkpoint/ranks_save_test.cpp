// Two ranks, as threads, that save one checkpoint together: who does what, and what is left of a
// save that fails on one of them.
#include <array>
#include <condition_variable>
#include <future>
#include <mutex>

#include "core/checkpoint/finder.hpp"
#include "core/checkpoint/saver.hpp"
#include "core/distributed/failure.hpp"
#include "tests/unit/checkpoint/formats.hpp"
#include "tests/unit/checkpoint/tiny_disk.hpp"
#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::test {
namespace {

using namespace checkpoint;
using distributed::PeerFailure;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

// Where the two wait for each other, unless one has failed.
class Meeting {
 public:
  void meet(const std::string& place) {
    std::unique_lock lock(mutex_);
    if (waiting_) {
      EXPECT_EQ(place, place_);
      waiting_ = false;
      ++meetings_;
      changed_.notify_all();
      return;
    }
    waiting_ = true;
    place_ = place;
    const int before = meetings_;
    changed_.wait(lock, [&] { return meetings_ > before || failed_; });
    if (meetings_ == before) throw PeerFailure("the other rank failed");
  }
  void fail() {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    changed_.notify_all();
  }
  void await_failure() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failed_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string place_;
  bool waiting_ = false, failed_ = false;
  int meetings_ = 0;
};

class RanksSave : public ::testing::Test {
 protected:
  RanksSave() {
    for (const auto& job : jobs_) job->fill();
    for (MemoryFormat& format : formats) format.abilities |= FASTLLM_CAN_PARALLEL;
  }
  fs::path base() const { return root_ / "checkpoint"; }
  fs::path aside() const { return root_ / ".saving"; }
  SaveRequest request(int rank, Format& format) {
    return {.format = format,
            .states = jobs_[size_t(rank)]->flat_states(),
            .metadata = jobs_[size_t(rank)]->metadata,
            .base = base(),
            .iteration = 20,
            .aside = aside(),
            .meet = [this](const std::string& place) { meeting->meet(place); }};
  }
  // Both at once; what each fails with.
  std::array<std::string, 2> save_both(const std::array<SaveRequest, 2>& requests) {
    std::array<std::string, 2> failures;
    distributed::testing::run_ranks(2, [&](int rank) {
      try {
        save(requests[size_t(rank)]);
      } catch (const std::exception& e) {
        failures[size_t(rank)] = e.what();
        meeting->fail();
      }
    });
    return failures;
  }
  std::array<std::string, 2> save_both() {
    return save_both({request(0, formats[0]), request(1, formats[1])});
  }

  MemoryFormat formats[2];  // of each rank its own
  std::unique_ptr<Meeting> meeting = std::make_unique<Meeting>();
  TemporaryDirectory folder_;
  fs::path root_ = folder_.path() / "experiment";

 private:
  static std::unique_ptr<Job> make_job(int rank) {
    return std::make_unique<Job>(small_metadata("", "{world_size: 2}"), rank);
  }
  std::unique_ptr<Job> jobs_[2] = {make_job(0), make_job(1)};
};

TEST_F(RanksSave, OneCheckpointWithAFileOfEach) {
  const std::array<std::string, 2> fine;
  EXPECT_EQ(save_both(), fine);
  EXPECT_THAT(names_in(base() / "20"), ElementsAre("data_0", "data_1", "manifest.json", "ok"));
  EXPECT_EQ(save_both(), fine);  // in place of the first
  EXPECT_EQ(what_it_lacks(base() / "20"), "");
  EXPECT_TRUE(names_in(aside()).empty());
}

TEST_F(RanksSave, AFormatThatOneRankAloneCanWriteIsRefused) {
  formats[1].abilities &= ~uint32_t(FASTLLM_CAN_PARALLEL);
  const std::string text = message_of([&] { save(request(1, formats[1])); });
  EXPECT_EQ(text, "saving iteration 20 in " + base().string() +
                      ": expected a checkpoint format that several ranks can write at once, found "
                      "memory, which cannot; use distributed, or one rank");
  EXPECT_FALSE(fs::exists(root_));
}

TEST_F(RanksSave, ARankThatSeesAnotherFolderSaysSoAndMakesNone) {
  std::array requests{request(0, formats[0]), request(1, formats[1])};
  const fs::path elsewhere = folder_.path() / "elsewhere";
  requests[1].aside = elsewhere / ".saving";
  EXPECT_THAT(
      save_both(requests),
      ElementsAre(
          "the other rank failed",
          HasSubstr("expected the folder checkpoint-20 that rank 0 made in " +
                    requests[1].aside.string() + " or " + (requests[1].base / ".saving").string() +
                    ", found it in neither; choose a run.experiment_dir that is the same "
                    "folder for all ranks")));
  EXPECT_FALSE(fs::exists(elsewhere));
  EXPECT_FALSE(fs::exists(base() / ".saving"));
}

// Else the other would tell of a missing file, and what is at the root of it would not be heard.
TEST_F(RanksSave, TheFolderStaysWhileTheOtherStillWrites) {
  std::promise<void> other_writes;
  HookedFormat failing(formats[0], [&](const std::string& step, const fs::path&) {
    if (step != "declare exp_avgs") return;
    other_writes.get_future().wait_for(std::chrono::seconds(20));
    throw Error(Status::kUnavailable, "the cable fell out");
  });
  HookedFormat slow(formats[1], [&](const std::string& step, const fs::path& directory) {
    if (step != "finish") return;
    other_writes.set_value();
    meeting->await_failure();
    EXPECT_TRUE(fs::exists(directory / "data_1"));
  });
  EXPECT_THAT(save_both({request(0, failing), request(1, slow)}),
              ElementsAre(HasSubstr("the cable fell out"), "the other rank failed"));
  EXPECT_TRUE(names_in(base()).empty());
  EXPECT_THAT(names_in(aside()), ElementsAre("checkpoint-20"));

  meeting = std::make_unique<Meeting>();
  std::array<std::string, 2> failures;
  EXPECT_THAT(logged([&] { failures = save_both(); }),
              HasSubstr("left by a save that did not finish"));
  EXPECT_THAT(failures, ElementsAre("", ""));
  EXPECT_EQ(what_it_lacks(base() / "20"), "");
  EXPECT_TRUE(names_in(aside()).empty());
}

TEST_F(RanksSave, WhatAllHaveWrittenIsRemovedWhenRankZeroCannotEndTheSave) {
  std::array requests{request(0, formats[0]), request(1, formats[1])};
  requests[0].extra_files["no such folder/provenance.yaml"] = "seed: 1\n";
  EXPECT_THAT(save_both(requests),
              ElementsAre(HasSubstr("no such folder"), "the other rank failed"));
  EXPECT_TRUE(names_in(base()).empty());
  EXPECT_TRUE(names_in(aside()).empty());
}

TEST_F(RanksSave, AFullDiskIsToldAsItIs) {
  HookedFormat full(formats[1], [&](const std::string& step, const fs::path&) {
    if (step == "finish") throw Error(Status::kUnavailable, errno_text(ENOSPC));
  });
  EXPECT_THAT(
      save_both({request(0, formats[0]), request(1, full)})[1],
      AllOf(HasSubstr("bytes are needed in all"),
            HasSubstr("free some, or choose another run.experiment_dir; the next start removes "
                      "what is left of this save")));
}

TEST_F(RanksSave, TheFolderIsFoundInsideAFileSystemOfItsOwn) {
  TinyDisk disk(base(), "1m");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  EXPECT_THAT(save_both(), ElementsAre("", ""));
  EXPECT_EQ(what_it_lacks(base() / "20"), "");
}

}  // namespace
}  // namespace fastllm::test
