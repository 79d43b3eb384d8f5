#include "core/distributed/environment.hpp"

#include <gmock/gmock.h>

#include <map>

#include "core/base/error.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::distributed {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return LaunchEnvironment::read([&](const char* name) -> const char* {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string refusal(const Variables& variables) {
  return test::message_of([&] { read(variables); }, Status::kInvalid);
}

TEST(LaunchEnvironment, NobodySaysAnything) {
  const auto e = read({});
  EXPECT_FALSE(e.world_size || e.rank || e.local_world_size || e.local_rank);
  EXPECT_EQ(e.master_host, "");
  EXPECT_EQ(e.master_port, 0);
  EXPECT_FALSE(e.launcher_serves);
}

TEST(LaunchEnvironment, OfTorchrun) {
  const auto e = read({{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"LOCAL_WORLD_SIZE", "4"},
                       {"MASTER_ADDR", "node3"},
                       {"MASTER_PORT", "29400"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                       {"TORCHELASTIC_RUN_ID", "job7"},
                       {"TORCHELASTIC_RESTART_COUNT", "2"},
                       {"SLURM_PROCID", "3"},
                       {"SLURM_STEP_ID", "0"}});
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.master_host, "node3");
  EXPECT_EQ(e.master_port, 29400);
  EXPECT_TRUE(e.launcher_serves);
  EXPECT_EQ(e.prefix, "job7/2");
}

const Variables kSlurm = {{"SLURM_PROCID", "5"},           {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_NTASKS", "16"},          {"SLURM_LOCALID", "1"},
                          {"SLURM_NTASKS_PER_NODE", "4"},  {"SLURM_STEP_NODELIST", "gpu[07-08]"},
                          {"SLURM_JOB_NODELIST", "other"}, {"SLURM_JOB_ID", "1234"},
                          {"SLURM_STEP_ID", "2"}};

TEST(LaunchEnvironment, OfASlurmStep) {
  const auto e = read(kSlurm);
  EXPECT_EQ(e.rank, 5);
  EXPECT_EQ(e.world_size, 8);
  EXPECT_EQ(e.local_rank, 1);
  EXPECT_EQ(e.local_world_size, 4);
  EXPECT_EQ(e.master_host, "gpu07");
  EXPECT_EQ(e.world_size_name, "SLURM_STEP_NUM_TASKS");
  EXPECT_GE(e.master_port, 20000);
  EXPECT_LT(e.master_port, 30000);
  Variables next = kSlurm;
  next["SLURM_STEP_ID"] = "3";
  EXPECT_NE(read(next).master_port, e.master_port) << "two steps may share a computer";
  next["MASTER_PORT"] = "4000";
  next["MASTER_ADDR"] = "here";
  EXPECT_EQ(read(next).master_port, 4000);
  EXPECT_EQ(read(next).master_host, "here");
}

TEST(LaunchEnvironment, ABatchScriptOfSlurmIsOneProcess) {
  Variables batch = kSlurm;
  batch.erase("SLURM_STEP_ID");
  const auto e = read(batch);
  EXPECT_FALSE(e.world_size || e.rank);
}

TEST(LaunchEnvironment, TheFirstOfSlurmsNodes) {
  const auto first = [](const std::string& list) {
    Variables v = kSlurm;
    v["SLURM_STEP_NODELIST"] = list;
    return read(v).master_host;
  };
  EXPECT_EQ(first("node7"), "node7");
  EXPECT_EQ(first("node7,node9"), "node7");
  EXPECT_EQ(first("node[003,007-009]"), "node003");
  EXPECT_EQ(first("a,b[1-2]"), "a");
  EXPECT_EQ(first("rack[1-2]-ib,z"), "rack1-ib");
}

TEST(LaunchEnvironment, ProblemsAreToldTogetherWithTheirVariables) {
  EXPECT_EQ(refusal({{"WORLD_SIZE", "0"}, {"RANK", "one"}}),
            "environment: WORLD_SIZE: expected an integer of at least 1, found \"0\"; unset it, or "
            "start with a launcher that sets it\n"
            "environment: RANK: expected an integer of at least 0, found \"one\"; unset it, or "
            "start with a launcher that sets it");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "2"}}),
            "environment: RANK: expected the number of this process, since WORLD_SIZE is 2, found "
            "nothing; start with a launcher that sets both, or unset WORLD_SIZE");
  EXPECT_EQ(refusal({{"WORLD_SIZE", "2"}, {"RANK", "2"}}),
            "environment: RANK: expected less than WORLD_SIZE (2), found 2; start with a launcher "
            "that sets both");
  EXPECT_EQ(
      refusal({{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "2"}}),
      "environment: LOCAL_RANK: expected less than LOCAL_WORLD_SIZE (2), found 3; start with a "
      "launcher that sets both");
  EXPECT_EQ(refusal({{"MASTER_PORT", "70000"}}),
            "environment: MASTER_PORT: expected at most 65535, found more; give a free port");
  Variables slurm = kSlurm;
  slurm["SLURM_PROCID"] = "8";
  EXPECT_EQ(
      refusal(slurm),
      "environment: SLURM_PROCID: expected less than SLURM_STEP_NUM_TASKS (8), found 8; start "
      "with a launcher that sets both");
}

}  // namespace
}  // namespace fastllm::distributed
