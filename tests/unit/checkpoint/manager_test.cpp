// A run's checkpoints from start to resume: what the trainer is told, and what it is refused.
#include "core/checkpoint/manager.hpp"

#include <cerrno>
#include <cstdlib>

#include "core/base/cancel.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/plugin/stage_tables.hpp"
#include "tests/unit/checkpoint/formats.hpp"

namespace fastllm::test {
namespace {

using namespace checkpoint;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class Manager : public ::testing::Test {
 protected:
  Manager() : job(small_metadata()) { job.fill(); }
  ManagerOptions options() {
    ManagerOptions o;
    o.experiment_dir = root();
    o.format = &distributed();
    o.stages = plugin::stages_table();
    o.model = job.identity;
    o.config = *job.metadata.find("config");
    o.retention = {.when = {1, 0}, .keep = 2, .keep_every = {}};
    o.provenance = Provenance{.host_version = "1",
                              .host_sha256 = "aa",
                              .libraries = {},
                              .libtorch = "2.11.0",
                              .threads = 2,
                              .data = Node::map(),
                              .seed = 1,
                              .config = Node::map()}
                       .to_node();
    return o;
  }
  TrainingState at(int64_t step) {
    TrainingState state;
    state.completed_steps = state.optimizer_step = step;
    state.metrics = config::parse_yaml("{Training: {language_model_loss: 6.25}}", "test");
    return state;
  }
  fs::path root() const { return folder_.path() / "run-3.1"; }  // a dot in the name is a dot (C15)

  TemporaryDirectory folder_;
  Job job;
};

TEST_F(Manager, SavesKeepsFindsAndLoads) {
  CheckpointManager manager(options());
  EXPECT_EQ(manager.find_latest(), std::nullopt);
  for (int64_t step : {8, 9, 10}) {
    job.fill(float(step));
    EXPECT_EQ(manager.save(at(step), *job.store), root() / "checkpoint" / std::to_string(step));
  }
  EXPECT_THAT(names_in(root() / "checkpoint"), ElementsAre("10", "9"));
  EXPECT_EQ(read_file(root() / "latest"), "10\n");
  EXPECT_TRUE(names_in(root() / ".saving").empty());
  const auto weights = job.flat("weights");
  job.fill(0);
  CheckpointManager again(options());
  const auto found = again.find_latest();
  ASSERT_TRUE(found);
  TrainingState state;
  const std::string text = logged([&] { state = again.load(*found, *job.store); });
  EXPECT_EQ(text, "");  // nothing changed, nothing to say
  EXPECT_EQ(state.completed_steps, 10);
  EXPECT_EQ(state.optimizer_step, 10);
  EXPECT_EQ(state.metrics, at(10).metrics);
  EXPECT_EQ(job.flat("weights"), weights);
}

// A collective after it would wait less long than a meeting does.
TEST_F(Manager, RanksMeetWhenAllIsReadAndWhenOldSavesAreDeleted) {
  std::vector<std::string> places;
  ManagerOptions o = options();
  o.retention.keep = 1;
  const auto weights = job.flat("weights");
  bool read = false, deleted = false;
  o.meet = [&](const std::string& place) {
    places.push_back(place);
    read = job.flat("weights") == weights;
    deleted = !fs::exists(root() / "checkpoint" / "3");
  };
  CheckpointManager manager(o);
  manager.save(at(3), *job.store);
  manager.save(at(4), *job.store);
  EXPECT_EQ(places.back(), "deleting old saves in " + (root() / "checkpoint").string());
  EXPECT_TRUE(deleted);
  job.fill(1);
  manager.load(manager.named(4), *job.store);
  EXPECT_EQ(places.back(), "loading " + (root() / "checkpoint" / "4").string() + ": all is read");
  EXPECT_TRUE(read);
}

TEST_F(Manager, SavesAlsoWhileAStopIsAskedFor) {
  CheckpointManager manager(options());
  stop_signal() = 15;
  EXPECT_EQ(message_of([&] { manager.save(at(3), *job.store); }), "(no error)");
  stop_signal() = 0;
  EXPECT_EQ(manager.find_latest()->iteration, 3);
}

TEST_F(Manager, AResumeSaysWhatChanged) {
  CheckpointManager(options()).save(at(3), *job.store);
  ManagerOptions now = options();
  now.provenance.set("seed", Node::integer(2));
  CheckpointManager manager(now);
  EXPECT_THAT(logged([&] { manager.load(*manager.find_latest(), *job.store); }),
              HasSubstr("Changed since the checkpoint: seed: 1 before, 2 now"));
}

TEST_F(Manager, TheFoldersNumberMustBeTheCountersNumber) {
  CheckpointManager manager(options());
  manager.save(at(3), *job.store);
  fs::rename(root() / "checkpoint/3", root() / "checkpoint/4");
  EXPECT_THAT(
      message_of([&] { manager.load(*manager.find_latest(), *job.store); }),
      AllOf(HasSubstr("expected 4 completed steps in " + (root() / "checkpoint/4").string() +
                      ", as its folder is called, found 3"),
            HasSubstr("rename it back")));
}

TEST_F(Manager, TheScalersTypeMustMatch) {
  CheckpointManager manager(options());
  manager.save(at(3), *job.store);
  EXPECT_THAT(
      message_of([&] { manager.load(*manager.find_latest(), *job.store, "DynamicGradScaler"); }),
      AllOf(HasSubstr("expected gradient scaler DynamicGradScaler"),
            HasSubstr("found NoopGradScaler")));
}

TEST_F(Manager, TheTrackerIsAHintOnly) {  // C41
  CheckpointManager manager(options());
  manager.save(at(3), *job.store);
  for (const char* text : {"", "9999", "20\n30"}) {
    write_file(root() / "latest", text);
    EXPECT_EQ(CheckpointManager(options()).find_latest()->iteration, 3);
  }
  fs::remove(root() / "latest");
  fs::create_directories(root() / "latest" / "x");
  EXPECT_EQ(CheckpointManager(options()).find_latest()->iteration, 3);
  EXPECT_THAT(logged([&] { manager.save(at(4), *job.store); }), HasSubstr("latest"));  // warns
  EXPECT_EQ(manager.find_latest()->iteration, 4);
}

TEST_F(Manager, TheOlderFolderNameIsUsedWhereItIsTheOnlyOne) {
  fs::create_directories(root() / "checkpoints");
  EXPECT_EQ(CheckpointManager(options()).base(), root() / "checkpoints");
  fs::create_directories(root() / "checkpoint");
  EXPECT_EQ(CheckpointManager(options()).base(), root() / "checkpoint");
}

TEST_F(Manager, AFolderThatCannotBeLookedAtIsTold) {
  fs::create_directories(root());
  fs::create_symlink("checkpoint", root() / "checkpoint");  // a loop
  EXPECT_THAT(
      message_of([&] { CheckpointManager manager(options()); }),
      HasSubstr("cannot look for " + (root() / "checkpoint").string() + ": " + errno_text(ELOOP)));
}

TEST_F(Manager, AFormatThatLacksAnAbilityIsRefusedAtOnce) {  // C48
  MemoryFormat format;
  ManagerOptions o = options();
  o.format = &format;
  format.abilities = FASTLLM_CAN_LOAD | FASTLLM_CAN_SAVE;
  EXPECT_THAT(message_of([&] { CheckpointManager manager(o); }),
              AllOf(HasSubstr("that can hold optimizer state"), HasSubstr("found memory")));
  format.abilities = FASTLLM_CAN_LOAD | FASTLLM_CAN_OPTIMIZER;
  EXPECT_THAT(message_of([&] { CheckpointManager manager(o); }), HasSubstr("that can save"));
}

TEST_F(Manager, RemovesWhatAKilledRunLeftWhenItStarts) {
  fs::create_directories(root() / ".saving" / "checkpoint-20");
  EXPECT_THAT(logged([&] { CheckpointManager manager(options()); }),
              HasSubstr("left by a save that did not finish"));
  EXPECT_TRUE(names_in(root() / ".saving").empty());
}

TEST_F(Manager, TheReferenceLibrariesReadOurCheckpoint) {
  const char* python = std::getenv("FASTLLM_JUDGES_PYTHON");
  if (!python) GTEST_SKIP() << "FASTLLM_JUDGES_PYTHON is not set";
  const fs::path path = CheckpointManager(options()).save(at(3), *job.store);
  const std::string script =
      "import sys, yaml; from safetensors.numpy import load_file; from safetensors import "
      "safe_open\n"
      "path = sys.argv[1]; metadata = yaml.safe_load(open(path + '/metadata.yaml'))\n"
      "assert metadata['metadata']['completed_steps'] == 3 and metadata['shards'] == ['weights', "
      "'exp_avgs', 'exp_avgs_sq'], metadata\n"
      "assert isinstance(metadata['config']['base_model']['transformer']['init_method_std'], "
      "float)\n"
      "file = load_file(path + '/rank_0.safetensors')\n"
      "assert sorted(file) == ['exp_avgs_shard', 'exp_avgs_sq_shard', 'weights_shard'], "
      "sorted(file)\n"
      "assert all(t.dtype.name == 'float32' and t.shape == (3936,) for t in file.values())\n"
      "assert file['weights_shard'][0] == 1.0 and file['exp_avgs_shard'][0] == -0.5\n"
      "inside = safe_open(path + '/rank_0.safetensors', 'numpy').metadata()\n"
      "assert {k: yaml.safe_load(v) for k, v in inside.items()} == metadata, inside\n";
  write_file(folder_.path() / "judge.py", script);
  EXPECT_EQ(std::system((std::string(python) + " " + (folder_.path() / "judge.py").string() + " " +
                         path.string())
                            .c_str()),
            0);
}

}  // namespace
}  // namespace fastllm::test
