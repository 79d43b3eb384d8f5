#include "core/train/metrics/run_directory.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(RunDirectory, CountsRunsAndNeverReusesOne) {
  TemporaryDirectory folder;
  EXPECT_EQ(RunDirectory(folder.path() / "e").number(), 0);
  EXPECT_EQ(RunDirectory(folder.path() / "e").number(), 1);
  fs::remove_all(folder.path() / "e/runs/0");  // one entry is left, whose number is 1
  EXPECT_EQ(RunDirectory(folder.path() / "e").number(), 2);
}

TEST(RunDirectory, NamesLogsByRank) {
  TemporaryDirectory folder;
  EXPECT_EQ(RunDirectory(folder.path() / "a").log_file().filename(), "logs_rank_0.txt");
  const RunDirectory made(folder.path() / "b", 16);
  EXPECT_EQ(made.log_file().filename(), "logs_rank_00.txt");
  const RunDirectory other(folder.path() / "b", 16, 3, made.number());
  EXPECT_EQ(other.log_file(), made.run() / "logs/logs_rank_03.txt");
  EXPECT_THAT([&] { RunDirectory(folder.path() / "b", 16, 3, 7); },
              ThrowsMessage<Error>(
                  HasSubstr("expected the run folder " + (folder.path() / "b/runs/7").string())));
}

TEST(RunDirectory, WritesOneObjectALine) {
  TemporaryDirectory folder;
  RunDirectory run(folder.path() / "e");
  config::Node node = config::Node::map();
  node.set_child("iteration", config::Node::integer(3));
  run.write_metrics(node);
  run.write_metrics(node);
  std::ifstream file(run.metrics_file());
  std::string line;
  int lines = 0;
  for (; std::getline(file, line); ++lines) EXPECT_THAT(line, HasSubstr("\"iteration\""));
  EXPECT_EQ(lines, 2);
}

TEST(RunDirectory, SaysWhereItCannotWrite) {
  TemporaryDirectory folder;
  write_file_atomic(folder.path() / "file", "x");
  EXPECT_THAT(test::message_of([&] { RunDirectory run(folder.path() / "file/e"); }),
              HasSubstr("file/e/runs"));
}

TEST(RunDirectory, NamesWhatIsInItsPlace) {
  TemporaryDirectory folder;
  fs::create_directories(folder.path() / "e/runs");
  write_file_atomic(folder.path() / "e/runs/1", "the next number, but no folder");
  EXPECT_EQ(
      test::message_of([&] { RunDirectory run(folder.path() / "e"); }, Status::kUnavailable),
      "cannot make the run folder " + (folder.path() / "e/runs/1").string() + ": File exists");
}

}  // namespace
}  // namespace fastllm::train
