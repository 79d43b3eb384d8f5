// The save protocol under kills, full disks, faulty writers and leftovers.
#include "core/checkpoint/saver.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "core/base/text.hpp"
#include "core/checkpoint/finder.hpp"
#include "core/checkpoint/manifest.hpp"
#include "tests/unit/checkpoint/formats.hpp"
#include "tests/unit/checkpoint/tiny_disk.hpp"

namespace fastllm::test {
namespace {

using namespace checkpoint;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Saver : public ::testing::Test {
 protected:
  explicit Saver(const std::string& base_model = "") : job(small_metadata(base_model)) {
    job.fill();
  }
  fs::path base() const { return root_ / "checkpoint"; }
  fs::path aside() const { return root_ / ".saving"; }
  SaveRequest request(Format& format, int64_t iteration) {
    return {.format = format,
            .states = job.flat_states(),
            .metadata = job.metadata,
            .base = base(),
            .iteration = iteration,
            .aside = aside()};
  }
  fs::path save_at(int64_t iteration) { return save(request(distributed(), iteration)); }

  TemporaryDirectory folder_;
  fs::path root_ = folder_.path() / "experiment";
  Job job;
};

TEST_F(Saver, LeavesACompleteCheckpointAndNothingAside) {
  SaveRequest r = request(distributed(), 20);
  r.extra_files["provenance.yaml"] = "seed: 1\n";
  EXPECT_EQ(save(r), base() / "20");
  EXPECT_THAT(names_in(base() / "20"), ElementsAre("manifest.json", "metadata.yaml", "ok",
                                                   "provenance.yaml", "rank_0.safetensors"));
  EXPECT_EQ(fs::file_size(base() / "20" / "ok"), 0u);
  EXPECT_TRUE(names_in(aside()).empty());
  EXPECT_EQ(what_it_lacks(base() / "20"), "");
  const auto manifest = read_manifest(base() / "20");
  EXPECT_EQ(manifest->size(), 3u);  // not itself, not ok
  verify_checksums(base() / "20", *manifest);
  const Node written = config::parse_yaml(read_file(base() / "20" / "metadata.yaml"), "x");
  EXPECT_EQ(written.get_list<std::string>("shards"), states());
  EXPECT_EQ(written.get<std::string>("format"), "distributed");
}

TEST_F(Saver, NeverWritesBelowTheFinalName) {
  bool seen = false;
  HookedFormat format(distributed(), [&](const std::string&, const fs::path& directory) {
    seen = true;
    EXPECT_EQ(directory.parent_path(), aside());
    EXPECT_FALSE(fs::exists(base() / "20"));
    EXPECT_FALSE(fs::exists(directory / "ok"));
  });
  save(request(format, 20));
  EXPECT_TRUE(seen);
}

TEST_F(Saver, WeightsAloneWhenAskedFor) {
  SaveRequest r = request(distributed(), 1);
  r.states = job.flat_states(false);
  const Node written = config::parse_yaml(read_file(save(r) / "metadata.yaml"), "x");
  EXPECT_THAT(written.get_list<std::string>("shards"), ElementsAre("weights"));
}

// Killed at each step of a save: the older checkpoint stays newest and valid, the next save cleans
// up and succeeds.
TEST_F(Saver, AKillAtAnyStepLeavesTheOlderCheckpointNewest) {  // C43
  save_at(10);
  for (const std::string step : {"create", "declare weights", "write weights", "write exp_avgs_sq",
                                 "finish", "finished", "open"}) {
    const pid_t child = ::fork();
    if (child == 0) {
      HookedFormat format(distributed(), [&](const std::string& at, const fs::path&) {
        if (at == step) ::raise(SIGKILL);
      });
      save(request(format, 20));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << step;
    EXPECT_FALSE(names_in(aside()).empty()) << step;
    EXPECT_THAT(names_in(base()), ElementsAre("10")) << step;
    EXPECT_EQ(find_latest(base())->iteration, 10) << step;
    verify_checksums(base() / "10", *read_manifest(base() / "10"));
  }
  const std::string text = logged([&] { save_at(20); });
  EXPECT_THAT(text, HasSubstr("left by a save that did not finish"));
  EXPECT_EQ(find_latest(base())->iteration, 20);
  EXPECT_TRUE(names_in(aside()).empty());
}

TEST_F(Saver, AnIncompleteFolderOfThatNameGivesWay) {  // C31
  fs::create_directories(base() / "20");
  write_file(base() / "20" / "rank_0.safetensors", "half");
  const std::string text = logged([&] { save_at(20); });
  EXPECT_THAT(text, AllOf(HasSubstr("Replacing the incomplete"), HasSubstr("it lacks ok")));
  EXPECT_EQ(what_it_lacks(base() / "20"), "");
  EXPECT_TRUE(names_in(aside()).empty());
}

TEST_F(Saver, AFileOrACompleteSaveOfThatNameGivesWayToo) {
  fs::create_directories(base());
  write_file(base() / "20", "a file");
  save_at(20);
  EXPECT_EQ(what_it_lacks(base() / "20"), "");
  job.fill(1);
  EXPECT_THAT(logged([&] { save_at(20); }), HasSubstr("Replacing the complete save"));
  EXPECT_EQ(what_it_lacks(base() / "20"), "");
}

TEST_F(Saver, AFailingWriterLeavesNothing) {
  save_at(10);
  for (const std::string step : {"create", "write exp_avgs", "finish", "finished", "open"}) {
    HookedFormat format(distributed(), [&](const std::string& at, const fs::path&) {
      if (at == step) throw Error(Status::kUnavailable, "the cable fell out");
    });
    const std::string text = message_of([&] { save(request(format, 20)); });
    EXPECT_EQ(text, "saving iteration 20 in " + base().string() + ": the cable fell out");
    EXPECT_THAT(names_in(base()), ElementsAre("10"));
    EXPECT_TRUE(names_in(aside()).empty());
  }
}

TEST_F(Saver, SamplesAreReadBackAndComparedWithMemory) {  // C37
  HookedFormat format(distributed(), [&](const std::string& at, const fs::path&) {
    if (at == "open") job.data("exp_avgs")[0] += 1;  // as if the file held something else
  });
  EXPECT_THAT(message_of([&] { save(request(format, 20)); }),
              AllOf(HasSubstr("to read back as it is in memory"),
                    HasSubstr("exp_avgs of layers.0.word_embeddings_weight")));
  EXPECT_FALSE(fs::exists(base() / "20"));
}

TEST_F(Saver, AFormatThatKnowsParametersOnlyIsGivenThem) {
  MemoryFormat format;
  save(request(format, 3));
  std::set<std::string> names;
  for (const auto& [key, tensor] : format.tensors) {
    if (key.first == "exp_avgs") names.insert(key.second);
    const std::vector<float> expected = job.gather(key.first, key.second);
    EXPECT_EQ(std::memcmp(expected.data(), tensor.bytes.data(), tensor.bytes.size()), 0)
        << key.second;
  }
  EXPECT_EQ(names.size(), job.description.parameters.size());
}

TEST_F(Saver, ASymlinkedFolderIsWrittenWhereItLeads) {
  fs::create_directories(folder_.path() / "elsewhere");
  fs::create_directories(root_);
  fs::create_directory_symlink(folder_.path() / "elsewhere", base());
  save_at(20);
  EXPECT_EQ(what_it_lacks(folder_.path() / "elsewhere" / "20"), "");
}

// 200,000 elements a state, so that sizes are far above the overhead.
class FullDisk : public Saver {
 protected:
  FullDisk() : Saver("{vocab_size: 8000}") {}
};

TEST_F(FullDisk, AFileSizeLimitIsASentenceAndLeavesNothing) {
  save_at(10);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit tight { 1 << 20, before.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string text = message_of([&] { save_at(20); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_DFL);
  EXPECT_THAT(text, AllOf(HasSubstr("saving iteration 20"),
                          HasSubstr("rank_0.safetensors: File too large")));
  EXPECT_THAT(names_in(base()), ElementsAre("10"));
  EXPECT_TRUE(names_in(aside()).empty());
}

TEST_F(FullDisk, TooLittleRoomIsFoundBeforeWriting) {
  TinyDisk disk(root_, "1m");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  bool created = false;
  HookedFormat format(distributed(), [&](const std::string&, const fs::path&) { created = true; });
  const std::string text = message_of([&] { save(request(format, 20)); });
  EXPECT_THAT(text, AllOf(HasSubstr("saving iteration 20 in " + base().string()),
                          HasSubstr("expected room for " +
                                    with_commas(double(bytes_to_save(job.flat_states())), 0) +
                                    " bytes, found 1,0"),
                          HasSubstr("choose another run.experiment_dir")));
  EXPECT_FALSE(created);
  EXPECT_TRUE(names_in(base()).empty());
  EXPECT_TRUE(names_in(aside()).empty());
}

TEST_F(FullDisk, RoomTakenMeanwhileIsFoundWhileWriting) {
  TinyDisk disk(root_, "8m");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  save_at(10);
  HookedFormat format(distributed(), [&](const std::string& at, const fs::path&) {
    if (at == "create") write_file(root_ / "another program's", std::string(4 << 20, 'x'));
  });
  const std::string text = message_of([&] { save(request(format, 20)); });
  EXPECT_THAT(text, AllOf(HasSubstr("rank_0.safetensors: No space left on device"),
                          HasSubstr(with_commas(double(bytes_to_save(job.flat_states())), 0) +
                                    " bytes are needed in all"),
                          HasSubstr("bytes are free now")));
  EXPECT_THAT(names_in(base()), ElementsAre("10"));
  EXPECT_EQ(what_it_lacks(base() / "10"), "");
  EXPECT_TRUE(names_in(aside()).empty());
  fs::remove(root_ / "another program's");
  save_at(20);
  EXPECT_EQ(find_latest(base())->iteration, 20);
}

TEST(Leftovers, AreNotLookedForBehindALink) {
  TemporaryDirectory folder;
  std::filesystem::create_directories(folder.path() / "elsewhere/precious");
  std::filesystem::create_symlink("elsewhere", folder.path() / ".saving");
  EXPECT_THAT(message_of([&] { remove_leftovers(folder.path() / ".saving"); }),
              HasSubstr("remove the link"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "elsewhere/precious"));
}

TEST_F(Saver, AFolderThatIsAFileSystemOfItsOwnIsWrittenInside) {
  TinyDisk disk(base(), "1m");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a small file system here";
  save_at(20);
  EXPECT_EQ(what_it_lacks(base() / "20"), "");
  EXPECT_EQ(find_latest(base())->iteration, 20);
}

TEST_F(Saver, AFolderThatCannotBeWrittenIsASentence) {
  fs::create_directories(root_);
  write_file(base(), "a file");
  EXPECT_THAT(message_of([&] { save_at(20); }),
              AllOf(HasSubstr("saving iteration 20"), HasSubstr(base().string())));
}

}  // namespace
}  // namespace fastllm::test
