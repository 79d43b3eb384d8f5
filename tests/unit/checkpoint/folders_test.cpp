// What lies in an experiment folder: finding, keeping, locking, provenance, counters.
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "core/checkpoint/convert.hpp"
#include "core/checkpoint/finder.hpp"
#include "core/checkpoint/lock.hpp"
#include "core/checkpoint/manifest.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/checkpoint/retention.hpp"
#include "core/checkpoint/training_state.hpp"
#include "tests/unit/checkpoint/support.hpp"

// What this program's flock() fails with, as on file systems without locks; 0: the kernel decides.
static int flock_error = 0;
extern "C" int flock(int fd, int operation) noexcept {
  if (flock_error == 0) return int(::syscall(SYS_flock, fd, operation));
  errno = flock_error;
  return -1;
}

namespace fastllm::test {
namespace {

using namespace checkpoint;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Folder : public ::testing::Test {
 protected:
  fs::path base() const { return folder_.path() / "checkpoint"; }
  void save(const std::string& name, bool complete = true) {
    fs::create_directories(base() / name);
    write_file(base() / name / "rank_0.safetensors", "data");
    if (!complete) return;
    write_file(base() / name / "metadata.yaml", "model: gpt");
    write_file(base() / name / "ok", "");
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  TemporaryDirectory folder_;
};

using Finder = Folder;
using Keeping = Folder;
using Locking = Folder;
using ProvenanceFile = Folder;

TEST_F(Finder, NumbersAreNumbers) {  // C33
  save("9000");
  save("10000");
  EXPECT_EQ(find_latest(base())->iteration, 10000);
  EXPECT_EQ(find_latest(base())->path, base() / "10000");
}

TEST_F(Finder, AnAbsentOrEmptyFolderIsAFreshStart) {
  EXPECT_EQ(find_latest(base()), std::nullopt);
  fs::create_directories(base());
  EXPECT_EQ(find_latest(base()), std::nullopt);
}

TEST_F(Finder, FallsBackFromAnIncompleteOneAndSaysWhatItLacks) {  // C31
  save("10");
  save("20", false);
  std::optional<Found> found;
  const std::string text = logged([&] { found = find_latest(base()); });
  EXPECT_EQ(found->iteration, 10);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr("checkpoint/20 is incomplete"),
            HasSubstr("it lacks ok (the mark of a finished save), manifest.json and metadata.yaml; "
                      "it holds rank_0.safetensors")));
  EXPECT_EQ(text.find("incomplete"), text.rfind("incomplete"));  // one warning
  save("30");
  EXPECT_EQ(logged([&] { found = find_latest(base()); }).find("incomplete", text.size()),
            std::string::npos);  // 20 is of no interest now
}

TEST_F(Finder, WithoutAManifestAsksForTheMetadata) {
  save("20");
  EXPECT_EQ(what_it_lacks(base() / "20"), "");  // as the reference leaves one
  fs::remove(base() / "20" / "metadata.yaml");
  EXPECT_THAT(what_it_lacks(base() / "20"), HasSubstr("manifest.json and metadata.yaml;"));
}

TEST_F(Finder, BelievesTheManifestOverTheMark) {
  save("20");
  fs::remove(base() / "20" / "metadata.yaml");
  write_file(base() / "20" / kManifestName,
             manifest_text({{"rank_0.safetensors", 9, "x"}, {"metadata.yaml", 3, "y"}}));
  EXPECT_THAT(
      what_it_lacks(base() / "20"),
      AllOf(HasSubstr("a whole rank_0.safetensors (4 of 9 bytes)"), HasSubstr("metadata.yaml;")));
  write_file(base() / "20" / kManifestName, "{");
  EXPECT_THAT(what_it_lacks(base() / "20"), HasSubstr("a readable manifest.json"));
  write_file(base() / "20" / kManifestName, R"({"files":[{"name":"../x","bytes":1,"sha256":""}]})");
  EXPECT_THAT(what_it_lacks(base() / "20"), HasSubstr("a readable manifest.json"));
}

TEST_F(Finder, OnlyIncompleteOnesIsAnErrorAndNotAFreshStart) {  // C41
  save("20", false);
  EXPECT_THAT(message_of([&] { find_latest(base()); }),
              AllOf(HasSubstr("found only incomplete ones: 20 lacks ok"),
                    HasSubstr("remove them to start from scratch")));
}

TEST_F(Finder, WhatCannotBeListedOrLookedAtIsToldWithPathAndReason) {
  write_file(base(), "a file");
  EXPECT_THAT(
      message_of([&] { find_latest(base()); }),
      AllOf(HasSubstr("cannot list the folder " + base().string() + ": " + errno_text(ENOTDIR)),
            HasSubstr("; make it readable, move it away, or choose another "
                      "run.experiment_dir")));
  fs::remove(base());
  save("10");
  const auto refused = [&](const fs::path& loop) {
    fs::create_symlink(loop.filename(), loop);
    EXPECT_THAT(message_of([&] { find_latest(base()); }),
                HasSubstr("cannot look for " + loop.string() + ": " + errno_text(ELOOP) +
                          "; make it readable, "));
    fs::remove(loop);
  };
  refused(base() / "20");
  fs::remove(base() / "10/ok");
  refused(base() / "10/ok");
  write_file(base() / "10/ok", "");
  EXPECT_EQ(find_latest(base())->iteration, 10);
  // A manifest that cannot be looked at makes the checkpoint incomplete; reading it says why.
  const fs::path manifest = base() / "10" / kManifestName;
  fs::create_symlink(manifest.filename(), manifest);
  EXPECT_THAT(what_it_lacks(base() / "10"), HasSubstr("a readable manifest.json"));
  EXPECT_THAT(message_of([&] { read_manifest(base() / "10"); }),
              HasSubstr("cannot look for " + manifest.string()));
}

TEST_F(Finder, StrayEntriesAreIgnoredAndStay) {  // C32, C41
  save("10");
  for (const char* name : {"lost+found", ".ipynb_checkpoints", ".nfs0001", "latest", "020", "-5",
                           "99999999999999999999999"})
    save(name);
  write_file(base() / "note.txt", "");
  write_file(base() / "0020x", "");
  write_file(base() / "500", "a file");
  EXPECT_EQ(find_latest(base())->iteration, 10);
  const auto before = names_in(base());
  apply({.when = {1, 0}, .keep = 1, .keep_every = {}}, base(), root() / ".saving");
  EXPECT_EQ(names_in(base()), before);
}

TEST(Retention, CountsAsTheReferenceDoes) {
  const Retention r{.when = {100, 0}, .keep = 2, .keep_every = 5};
  EXPECT_EQ(r.count(0), 1);
  EXPECT_EQ(r.count(100), 2);
  EXPECT_EQ(r.count(150), 0);
  const Retention shifted{.when = {100, 250}, .keep = {}, .keep_every = {}};
  EXPECT_TRUE(shifted.when.enabled(50));
  EXPECT_FALSE(shifted.when.enabled(100));
  EXPECT_EQ(shifted.count(250), 3);
  EXPECT_FALSE(Retention{}.when.enabled(100));
}

// The saves left after saving one by one and deleting after each.
std::vector<int64_t> left_after(const Retention& retention, int64_t step, int64_t last) {
  std::vector<int64_t> left;
  for (int64_t n = step; n <= last; n += step) {
    left.push_back(n);
    for (int64_t gone : to_delete(retention, left)) std::erase(left, gone);
  }
  return left;
}

TEST(Retention, LeavesWhatTheTablesSay) {
  EXPECT_THAT(left_after({.when = {100, 0}, .keep = 2, .keep_every = 5}, 100, 1600),
              ElementsAre(400, 900, 1400, 1500, 1600));
  EXPECT_THAT(left_after({.when = {10, 0}, .keep = 2, .keep_every = 3}, 10, 70),
              ElementsAre(20, 50, 60, 70));
  EXPECT_EQ(left_after({.when = {10, 0}, .keep = {}, .keep_every = 3}, 10, 70).size(), 7u);
  EXPECT_THAT(left_after({.when = {3, 0}, .keep = 1, .keep_every = {}}, 1, 7),
              ElementsAre(1, 2, 4, 5, 6, 7));  // off the interval: never
  EXPECT_THAT(left_after({.when = {std::nullopt, 0, 60.}, .keep = 2, .keep_every = {}}, 3, 21),
              ElementsAre(18, 21));  // by time, any of them may be one of the saves
  EXPECT_THAT(left_after({.when = {10, 0, 60.}, .keep = 2, .keep_every = 2}, 5, 40),
              ElementsAre(10, 30, 35, 40));
}

TEST(Retention, RefusesLimitsThatWouldDeleteEverything) {  // C33
  for (int64_t keep : {0, -1}) {
    const std::string text = message_of([&] {
      to_delete({.when = {1, 0}, .keep = keep, .keep_every = {}}, {1, 2});
    });
    EXPECT_THAT(text, HasSubstr("expected keep to be at least 1, or null to keep all, found " +
                                std::to_string(keep)));
  }
  EXPECT_THAT(message_of([&] {
                to_delete({.when = {1, 0}, .keep = 1, .keep_every = 0}, {1});
              }),
              HasSubstr("keep_every"));
}

TEST_F(Keeping, DeletesOldCompleteSavesAndOnlyThose) {
  for (const char* name : {"9000", "10000", "8000"}) save(name);
  save("7000", false);
  const std::string text = logged([&] {
    apply({.when = {1000, 0}, .keep = 1, .keep_every = {}}, base(), root() / ".saving");
  });
  EXPECT_THAT(names_in(base()), ElementsAre("10000", "7000"));
  EXPECT_TRUE(names_in(root() / ".saving").empty());
  EXPECT_THAT(text, HasSubstr("Deleting checkpoint at " + (base() / "8000").string()));
}

TEST_F(Keeping, FailuresOnlyWarn) {
  save("1");
  save("2");
  write_file(root() / ".saving", "in the way");
  const std::string text = logged([&] {
    apply({.when = {1, 0}, .keep = 1, .keep_every = {}}, base(), root() / ".saving");
  });
  EXPECT_THAT(text, HasSubstr("Could not delete"));
  EXPECT_THAT(names_in(base()), ElementsAre("1", "2"));
  EXPECT_THAT(logged([&] {
                apply({.when = {1, 0}, .keep = 0, .keep_every = {}}, base(), root());
              }),
              HasSubstr("expected keep to be at least 1"));
}

TEST_F(Locking, ALeftFileIsNoLockAndAnOpenOneNamesItsHolder) {  // C49
  write_file(root() / ".lock", "process 1 on host elsewhere\n");
  {
    ExperimentLock lock(root());
    const std::string text = message_of([&] { ExperimentLock second(root()); });
    char host[128] = {};
    ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
    EXPECT_THAT(text,
                AllOf(HasSubstr("expected no other run on " + root().string()),
                      HasSubstr("process " + std::to_string(::getpid()) + " on host " + host)));
  }
  ExperimentLock again(root());
}

TEST_F(Locking, WithoutLocksItWarnsAndGoesOn) {
  for (int code : {ENOLCK, EOPNOTSUPP}) {
    const std::string text = logged([&] {
      flock_error = code;
      EXPECT_EQ(message_of([&] { ExperimentLock lock(root()); }), "(no error)");
      flock_error = 0;
    });
    EXPECT_THAT(text, HasSubstr("Cannot lock " + (root() / ".lock").string() + " (" +
                                errno_text(code) + "): nothing stops a second run on this folder"));
  }
}

TEST_F(Locking, OtherFailuresAreTold) {
  flock_error = EIO;
  EXPECT_THAT(message_of([&] { ExperimentLock lock(root()); }),
              HasSubstr("cannot lock " + (root() / ".lock").string() + ": " + errno_text(EIO) +
                        "; give this run another run.experiment_dir"));
  flock_error = 0;
  fs::remove(root() / ".lock");
  fs::create_directories(root() / ".lock");
  EXPECT_THAT(message_of([&] { ExperimentLock lock(root()); }),
              HasSubstr("cannot write " + (root() / ".lock").string() + ": " + errno_text(EISDIR) +
                        "; give this run another run.experiment_dir"));
}

TEST_F(Locking, DiesWithItsHolder) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ExperimentLock lock(root());
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_THAT(message_of([&] { ExperimentLock lock(root()); }),
              HasSubstr("process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ExperimentLock lock(root());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(Provenance, ComesBackAsItWasAndTellsWhatChanged) {
  Node config =
      config::parse_yaml("{training: {train_iters: 10}, optimizer: {weight_decay: 0.01}}", "test");
  Provenance before{.host_version = "0.1.0",
                    .host_sha256 = "cd",
                    .libraries = {{"fastllm.gpt", "0.1.0", "/a/libfastllm_gpt.so", "aa"}},
                    .libtorch = "2.11.0",
                    .threads = 2,
                    .data = config::parse_yaml("{data/train: {size: 3}}", "test"),
                    .seed = 1234,
                    .config = config};
  TemporaryDirectory folder;
  write_provenance(folder.path(), before.to_node());
  EXPECT_EQ(read_provenance(folder.path()), before.to_node());
  EXPECT_TRUE(differences(read_provenance(folder.path()), before.to_node()).empty());

  Provenance now = before;
  now.libraries[0].path = "/b/libfastllm_gpt.so";  // where it lies does not count
  now.libraries[0].sha256 = "bb";
  now.libraries.push_back({"other.thing", "2", "/c", "cc"});
  now.host_sha256 = "ce";
  now.threads = 4;
  now.config.set("optimizer.weight_decay", Node::real(0.1));
  now.data = Node::map();
  EXPECT_THAT(differences(before.to_node(), now.to_node()),
              ElementsAre("host_sha256: cd before, ce now",
                          "plugins.fastllm\\.gpt.sha256: aa before, bb now",
                          HasSubstr("plugins.other\\.thing: absent before, "),
                          "threads: 2 before, 4 now", HasSubstr("data.data/train: "),
                          "config.optimizer.weight_decay: 0.01 before, 0.1 now"));
}

TEST(Provenance, AChangedFingerprintIsToldWhole) {
  // Alike far beyond the width of a terminal; what differs comes last.
  const std::string name = "/data/" + std::string(100, 'x') + "/train.bin 1000 bytes sha256 ";
  const auto record = [&](const std::vector<std::string>& hashes) {
    Node lines = Node::list(), data = Node::map(), root = Node::map();
    for (const std::string& hash : hashes) lines.append(Node::text(name + hash));
    data.set_child("training", lines);
    root.set_child("data", data);
    return root;
  };
  EXPECT_TRUE(differences(record({"aa", "bb"}), record({"aa", "bb"})).empty());
  EXPECT_THAT(differences(record({"aa", "bb", "cc"}), record({"aa", "bd", "cc"})),
              ElementsAre("data.training.1: " + name + "bb before, " + name + "bd now"));
  // One entry more or less is one line, wherever it is.
  EXPECT_THAT(differences(record({"aa", "cc"}), record({"aa", "bb", "cc"})),
              ElementsAre("data.training.1: absent before, " + name + "bb now"));
  EXPECT_THAT(differences(record({"aa", "aa"}), record({"aa"})),
              ElementsAre("data.training.1: " + name + "aa before, absent now"));
  EXPECT_THAT(differences(record({}), record({"aa"})),
              ElementsAre("data.training.0: absent before, " + name + "aa now"));
}

TEST(Provenance, ValuesOfAnotherKindNeverLookAlike) {
  EXPECT_THAT(differences(config::parse_yaml("{a: 1, b: null}", "test"),
                          config::parse_yaml("{a: '1', b: 'null'}", "test")),
              ElementsAre("a: 1 before, \"1\" now", "b: null before, \"null\" now"));
}

TEST_F(ProvenanceFile, OneThatCannotBeReadIsNoReasonToStop) {
  const fs::path file = root() / kProvenanceName;
  EXPECT_EQ(logged([&] { EXPECT_TRUE(read_provenance(root()).is_null()); }), "");
  const std::string warning =
      "Cannot read " + file.string() + ", so this run cannot say what changed: ";
  write_file(file, "{a: ");
  EXPECT_THAT(logged([&] { EXPECT_TRUE(read_provenance(root()).is_null()); }), HasSubstr(warning));
  fs::remove(file);
  fs::create_symlink(kProvenanceName, file);
  EXPECT_THAT(logged([&] { EXPECT_TRUE(read_provenance(root()).is_null()); }),
              HasSubstr(warning + "cannot look for"));
}

TEST(TrainingState, GoesThroughMetadataUnchanged) {
  TrainingState state;
  state.completed_steps = 40;
  state.optimizer_step = 38;
  EXPECT_EQ(config::to_yaml(state.to_node(), true),
            "completed_steps: 40\noptimizer:\n  current_step: 38\n  grad_scaler:\n    type: "
            "NoopGradScaler\n");
  state.scaler = {.type = "DynamicGradScaler", .scale = 65536, .growth = 7, .hysteresis = 2};
  state.metrics = config::parse_yaml("{Training: {grad_norm: 0.5}}", "test");
  const TrainingState back = TrainingState::from_node(state.to_node(), "here");
  EXPECT_EQ(back.completed_steps, 40);
  EXPECT_EQ(back.optimizer_step, 38);
  EXPECT_EQ(back.scaler.type, "DynamicGradScaler");
  EXPECT_EQ(back.scaler.scale, 65536);
  EXPECT_EQ(back.scaler.growth, 7);
  EXPECT_EQ(back.scaler.hysteresis, 2);
  EXPECT_EQ(back.metrics, state.metrics);
}

TEST(TrainingState, RemembersWhatIsUnfinished) {
  TrainingState state;
  state.due_evaluations = {"validation", "validation/held_out"};
  const double third = 1. / 3, nan = std::nan("");
  state.since_log = {.losses = {{{"loss", third}, {"loss.2", nan}}, 3},
                     .metrics = {{{"accuracy", 1e-300}}, 2},
                     .skipped_iters = 4,
                     .nan_iters = 5};
  const Node read = config::parse_yaml(config::to_yaml(state.to_node()), "test");
  const TrainingState back = TrainingState::from_node(read, "here");
  EXPECT_EQ(back.due_evaluations, state.due_evaluations);
  EXPECT_EQ(back.since_log.losses.steps, 3);
  EXPECT_EQ(back.since_log.losses.values.at("loss"), third);
  EXPECT_TRUE(std::isnan(back.since_log.losses.values.at("loss.2")));
  EXPECT_EQ(back.since_log.metrics.values.at("accuracy"), 1e-300);
  EXPECT_EQ(back.since_log.metrics.steps, 2);
  EXPECT_EQ(back.since_log.skipped_iters, 4);
  EXPECT_EQ(back.since_log.nan_iters, 5);
}

TEST(TrainingState, AnOlderCounterWinsWhereItIs) {
  const Node node = config::parse_yaml(
      "{completed_steps: 3, schedules: {Training: {completed_steps: 5}}, optimizer: {current_step: "
      "2}}",
      "test");
  EXPECT_EQ(TrainingState::from_node(node, "x").completed_steps, 5);
}

TEST(TrainingState, RefusesCountersThatCannotBe) {
  const auto refuse = [](const char* yaml) {
    return message_of([&] { TrainingState::from_node(config::parse_yaml(yaml, "test"), "exp/3"); });
  };
  const std::string away = "move it away to go on from an older checkpoint";
  EXPECT_EQ(refuse("{}"),
            "expected metadata.completed_steps in exp/3, found none; it holds no "
            "training state to go on from: " +
                away);
  EXPECT_EQ(refuse("{completed_steps: 3}"),
            "expected metadata.optimizer.current_step in exp/3, found none; it holds no training "
            "state to go on from: " +
                away);
  EXPECT_EQ(refuse("{completed_steps: -3, optimizer: {current_step: 0}}"),
            "expected metadata.completed_steps from 0 in exp/3, found -3; " + away);
  EXPECT_EQ(refuse("{completed_steps: 3, optimizer: {current_step: 3}, since_log: {losses: {steps: "
                   "-1}}}"),
            "expected metadata.since_log.losses.steps from 0 in exp/3, found -1; " + away);
  EXPECT_EQ(refuse("{completed_steps: 3, optimizer: {current_step: 4}}"),
            "expected at most as many optimizer updates as completed steps in exp/3, found 4 and "
            "3; " +
                away);
}

TEST(TrainingState, RefusesAScalerThatCannotBe) {
  const std::string away = "; move it away to go on from an older checkpoint";
  const auto refuse = [](const std::string& scaler) {
    return message_of([&] {
      TrainingState::from_node(
          config::parse_yaml(
              "{completed_steps: 3, optimizer: {current_step: 3, grad_scaler: {" + scaler + "}}}",
              "test"),
          "exp/3");
    });
  };
  const std::string scale =
      "expected metadata.optimizer.grad_scaler.scale, a number above 0, in exp/3, found ";
  EXPECT_EQ(refuse("type: ConstantGradScaler"), scale + "none" + away);
  EXPECT_EQ(refuse("type: DynamicGradScaler, scale: 0"), scale + "0" + away);
  EXPECT_EQ(refuse("type: DynamicGradScaler, scale: -2"), scale + "-2" + away);
  EXPECT_EQ(refuse("type: DynamicGradScaler, scale: .inf"), scale + "inf" + away);
  EXPECT_EQ(refuse("type: DynamicGradScaler, scale: 4, growth: -1"),
            "expected metadata.optimizer.grad_scaler.growth from 0 in exp/3, found -1" + away);
  EXPECT_EQ(refuse("type: DynamicGradScaler, scale: 4, hysteresis: -7"), "(no error)");
}

TEST(Convert, EveryHalfAndBrainFloatExactly) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto pattern = uint16_t(bits);
    float brain = 0, half = 0;
    convert_to_float32(&pattern, {kDLBfloat, 16, 1}, 1, &brain);
    EXPECT_EQ(std::bit_cast<uint32_t>(brain), bits << 16);
    convert_to_float32(&pattern, {kDLFloat, 16, 1}, 1, &half);
    const int exponent = int(bits >> 10 & 31), mantissa = int(bits & 1023);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(half), mantissa != 0);
      if (mantissa == 0) {
        EXPECT_EQ(half, sign * std::numeric_limits<float>::infinity());
      }
    } else {
      const double expected = exponent ? sign * std::ldexp(1024 + mantissa, exponent - 25)
                                       : sign * std::ldexp(mantissa, -24);
      ASSERT_EQ(half, float(expected)) << bits;
      ASSERT_EQ(std::signbit(half), (bits & 0x8000) != 0);
    }
  }
  const double wide = 0.1;
  float narrow = 0;
  convert_to_float32(&wide, {kDLFloat, 64, 1}, 1, &narrow);
  EXPECT_EQ(narrow, 0.1f);
  EXPECT_FALSE(can_convert_to_float32({kDLInt, 32, 1}));
}

TEST(Manifest, FindsTheFileThatChanged) {
  TemporaryDirectory folder;
  write_file(folder.path() / "a", "abc");
  fs::create_directories(folder.path() / "below");
  write_file(folder.path() / "below/b", "");
  const auto made = make_manifest(folder.path());
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[1].name, "below/b");
  write_file(folder.path() / kManifestName, manifest_text(made));
  verify_checksums(folder.path(), *read_manifest(folder.path()));
  write_file(folder.path() / "a", "abd");
  EXPECT_THAT(message_of([&] { verify_checksums(folder.path(), made); }),
              AllOf(HasSubstr("expected SHA-256 " + sha256_hex("abc")),
                    HasSubstr((folder.path() / "a").string())));
  EXPECT_EQ(read_manifest(folder.path() / "below"), std::nullopt);
}

}  // namespace
}  // namespace fastllm::test
