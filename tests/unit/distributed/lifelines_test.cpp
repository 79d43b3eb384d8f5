// Connections that end with a process, here with the object that holds them.
#include "core/distributed/lifelines.hpp"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>

#include "core/distributed/sockets.hpp"
#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::distributed {
namespace {

using testing::MemoryStore;

constexpr std::chrono::seconds kLong(20);

class LifelinesOfTwo : public ::testing::Test {
 protected:
  static Lifelines::Ended tell(std::promise<int>& promise) {
    return [&promise](int rank) { promise.set_value(rank); };
  }
  // -1: nothing came.
  static int told(std::promise<int>& promise) {
    auto result = promise.get_future();
    return result.wait_for(kLong) == std::future_status::ready ? result.get() : -1;
  }
  MemoryStore store{std::make_shared<MemoryStore::Contents>()};
  std::promise<int> of_first, of_other;
};

TEST_F(LifelinesOfTwo, EachHearsTheOtherEnd) {
  auto first = Lifelines::of_first(store, 3);
  auto other = Lifelines::of_other(store, 2, "localhost");
  first->watch(tell(of_first));
  other->watch(tell(of_other));
  other.reset();
  EXPECT_EQ(told(of_first), 2);
  std::promise<int> again;
  other = Lifelines::of_other(store, 1, "localhost");
  other->watch(tell(again));
  first.reset();
  EXPECT_EQ(told(again), 0);
}

TEST_F(LifelinesOfTwo, AKilledProcessIsHeard) {
  auto first = Lifelines::of_first(store, 2);
  int connected[2];
  ASSERT_EQ(::pipe(connected), 0);
  const pid_t child = ::fork();
  char byte = 0;
  if (child == 0) {
    const auto line = Lifelines::of_other(store, 1, "localhost");
    if (::write(connected[1], &byte, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  first->watch(tell(of_first));
  ASSERT_EQ(::read(connected[0], &byte, 1), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(told(of_first), 1);
}

TEST_F(LifelinesOfTwo, StrangersAreNoRanks) {
  auto first = Lifelines::of_first(store, 2);
  first->watch(tell(of_first));
  const int port = std::stoi(*store.get("lifelines"));
  std::string why;
  { const Descriptor silent = connect_to("localhost", port, kLong, why); }
  const Descriptor loud = connect_to("localhost", port, kLong, why);
  ASSERT_EQ(::write(loud.get(), "GET / HTTP/1.1\r\n", 16), 16);
  auto other = Lifelines::of_other(store, 1, "localhost");
  other->watch(tell(of_other));
  other.reset();
  EXPECT_EQ(told(of_first), 1);  // and no strangers before it
}

TEST_F(LifelinesOfTwo, WithoutAWayThereIsNoLine) {
  auto other = Lifelines::of_other(store, 1, "localhost");  // nobody said where
  store.set("lifelines", "1 2");                            // nobody listens
  other = Lifelines::of_other(store, 1, "localhost");
  other->watch(tell(of_other));
}

}  // namespace
}  // namespace fastllm::distributed
