// What of several ranks goes where.
#include "core/base/log.hpp"

#include <gmock/gmock.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/captured_log.hpp"

namespace fastllm {
namespace {

using testing::HasSubstr;
using testing::Not;

class RankLog : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    log::configure({.timestamps = false, .rank = GetParam(), .world_size = 2});
  }
  void TearDown() override { log::configure({}); }
};

TEST_P(RankLog, ItsFileHasAllAndOutputOnlyWarningsOfOthers) {
  testing::internal::CaptureStdout();
  const std::string file = test::logged([] {
    log::debug("a detail");
    log::info("a line");
    log::warning("a warning");
  });
  const std::string output = testing::internal::GetCapturedStdout();
  const std::string begin = GetParam() == 0 ? "[Rank 0] " : "[Rank 1] ";
  EXPECT_EQ(file, begin + "a line\n" + begin + "a warning\n");
  EXPECT_EQ(output, GetParam() == 0 ? file : begin + "a warning\n");
}

INSTANTIATE_TEST_SUITE_P(Ranks, RankLog, testing::Values(0, 1));

// In a process of its own, whose standard error is a terminal: what it is is asked once.
TEST(Progress, OnlyRank0Draws) {
  for (int rank : {0, 1}) {
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    ASSERT_GE(child, 0);
    if (child == 0) {
      log::configure({.rank = rank, .world_size = 2});
      log::progress("step 12");
      ::_exit(0);
    }
    std::string drawn;
    char piece[256];
    for (ssize_t n; (n = ::read(terminal, piece, sizeof piece)) > 0;)
      drawn.append(piece, size_t(n));
    ::close(terminal);
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    EXPECT_THAT(drawn, rank == 0 ? testing::Matcher<std::string>(HasSubstr("step 12"))
                                 : testing::Matcher<std::string>(Not(HasSubstr("step 12"))));
  }
}

}  // namespace
}  // namespace fastllm
