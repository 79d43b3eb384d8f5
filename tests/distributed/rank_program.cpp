// One rank of a run that does what its command line says, through the real library: what the tests of
// many processes start. Prints what it sees; a failure is one line on standard error and exit code 1.
//   rank_program [--nproc N] SCENARIO [name=value ...]
#include <fmt/format.h>
#include <omp.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <thread>

#include "core/base/cancel.hpp"
#include "core/base/half.hpp"
#include "core/base/log.hpp"
#include "core/distributed/launcher.hpp"
#include "core/distributed/session.hpp"

using namespace fastllm;
using namespace fastllm::distributed;
using std::chrono::milliseconds;

namespace {

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      const size_t equal = word.find('=');
      if (equal == std::string::npos) {
        scenario = word;
      } else {
        values_[word.substr(0, equal)] = word.substr(equal + 1);
      }
    }
  }
  std::string text(const std::string& name, const std::string& otherwise = "") const {
    auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  int number(const std::string& name, int otherwise) const {
    const std::string written = text(name);
    return written.empty() ? otherwise : std::stoi(written);
  }
  std::string scenario;

 private:
  std::map<std::string, std::string> values_;
};

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

void expect(bool condition, const std::string& what) {
  if (!condition) throw Error(Status::kInternal, "wrong: " + what);
}

template <class T, class Read, class Write>
void check_type(Communicator& c, DLDataType type, Read read, Write write) {
  for (int64_t n : {int64_t(3), int64_t(50021)}) {
    const int size = c.size();
    std::vector<T> all(static_cast<size_t>(n)), parts(size_t(n * size)), gathered(size_t(n * size));
    auto value = [](int rank, int64_t i) { return double((rank + i) % 5); };
    auto sum = [&](int64_t i) {
      double total = 0;
      for (int r = 0; r < size; ++r) total += value(r, i);
      return total;
    };
    for (int64_t i = 0; i < n; ++i) all[size_t(i)] = write(value(c.rank(), i));
    for (int64_t i = 0; i < n * size; ++i) parts[size_t(i)] = write(value(c.rank(), i));
    const std::vector<T> own = all;
    Pending reduce = c.all_reduce({all.data(), n, type}, Reduce::kSum);
    Pending gather = c.all_gather({own.data(), n, type}, {gathered.data(), n * size, type});
    reduce.wait();
    gather.wait();
    for (int64_t i = 0; i < n; ++i) expect(read(all[size_t(i)]) == sum(i), "all_reduce");
    c.reduce_scatter({parts.data(), n * size, type}, {all.data(), n, type}, Reduce::kSum).wait();
    for (int64_t i = 0; i < n; ++i)
      expect(read(all[size_t(i)]) == sum(c.rank() * n + i), "reduce_scatter");
    for (int64_t i = 0; i < n * size; ++i)
      expect(read(gathered[size_t(i)]) == value(int(i / n), i % n), "all_gather");
  }
}

void check_group(Communicator& c) {
  check_type<float>(
      c, kFloat32, [](float x) { return double(x); }, [](double x) { return float(x); });
  check_type<uint16_t>(
      c, kBfloat16, [](uint16_t x) { return double(from_bfloat16(x)); },
      [](double x) { return to_bfloat16(float(x)); });
  check_type<uint16_t>(
      c, kFloat16, [](uint16_t x) { return double(from_float16(x)); },
      [](double x) { return to_float16(float(x)); });
  check_type<int64_t>(
      c, kInt64, [](int64_t x) { return double(x); }, [](double x) { return int64_t(x); });
  check_type<uint8_t>(
      c, kUint8, [](uint8_t x) { return double(x); }, [](double x) { return uint8_t(x); });
  int64_t x = c.rank();
  c.broadcast({&x, 1, kInt64}, c.size() - 1).wait();
  expect(x == c.size() - 1, "broadcast");
  std::vector<int64_t> out(size_t(c.size()), c.rank()), in(size_t(c.size()));
  c.all_to_all({out.data(), c.size(), kInt64}, {}, {in.data(), c.size(), kInt64}, {}).wait();
  for (int r = 0; r < c.size(); ++r) expect(in[size_t(r)] == r, "all_to_all");
  int64_t from = -1;
  const int next = (c.rank() + 1) % c.size(), before = (c.rank() + c.size() - 1) % c.size();
  Pending sent = c.send({out.data(), 1, kInt64}, next);
  c.receive({&from, 1, kInt64}, before).wait();
  sent.wait();
  expect(from == before, "send and receive");
  c.barrier();
}

// Milliseconds of the quickest of several.
double timed(Communicator& c, const std::function<void()>& body) {
  double best = 1e9;
  for (int i = 0; i < 7; ++i) {
    c.barrier();
    const auto begin = std::chrono::steady_clock::now();
    body();
    best = std::min(
        best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
                  .count());
  }
  return best;
}

void measure(Communicator& c, int64_t bytes) {
  const int64_t n = bytes / 4 / c.size() * c.size(), part = n / c.size();
  std::vector<float> whole(static_cast<size_t>(n), 1), own(static_cast<size_t>(part), 1);
  float one = 1;
  const std::pair<const char*, std::function<void()>> lines[] = {
      {"all_reduce",
       [&] {
         c.all_reduce({whole.data(), n}, Reduce::kMean).wait();
       }},
      {"all_gather",
       [&] {
         c.all_gather({own.data(), part, kFloat32}, {whole.data(), n}).wait();
       }},
      {"reduce_scatter",
       [&] {
         c.reduce_scatter({whole.data(), n, kFloat32}, {own.data(), part}, Reduce::kMean).wait();
       }},
      {"all_reduce of one",
       [&] {
         c.all_reduce({&one, 1}, Reduce::kSum).wait();
       }},
      {"barrier", [&] { c.barrier(); }}};
  for (const auto& [name, body] : lines) {
    const double time = timed(c, body);
    if (c.rank() == 0) say(fmt::format("{}: {:.2f} ms", name, time));
  }
}

// Steps of a run: a little work, a collective; on the chosen rank something happens at one of them.
void run_steps(Session& session, const Arguments& arguments) {
  Communicator& world = session.group(GroupKind::kWorld);
  const int steps = arguments.number("steps", 1000000), at = arguments.number("at", 5);
  const std::string event = arguments.text("event");
  const bool here = session.rank() == arguments.number("rank", -1);
  for (int step = 0; step < steps; ++step) {
    if (here && step == at) {
      if (event == "throw") throw Error(Status::kInvalid, "the numbers ran out");
      if (event == "kill") ::raise(SIGKILL);
      if (event == "freeze") ::raise(SIGSTOP);
      if (event == "exit") std::_Exit(0);
      if (event == "sleep")
        for (;;) std::this_thread::sleep_for(milliseconds(1000));
      if (event == "signal") ::raise(SIGTERM);
    }
    int64_t most[2] = {step, stop_signal().load()};
    world.all_reduce({most, 2, kInt64}, Reduce::kMax).wait();
    expect(most[0] == step, "the step of all");
    if (most[1] > 0) {
      say(fmt::format("stopped at step {} by signal {}", step, most[1]));
      return;
    }
    if (step == 0) say(fmt::format("running, process {}", ::getpid()));
    if (const int pause = arguments.number("pause", 1))
      std::this_thread::sleep_for(milliseconds(pause));
    // One that computes for long, and looks at nothing.
    if (!here && step == at && event == "throw" && arguments.text("others") == "busy")
      for (;;) std::this_thread::sleep_for(milliseconds(1000));
  }
}

void run(Session& session, const Arguments& arguments) {
  const std::string& scenario = arguments.scenario;
  const std::string rank_text = fmt::format("{}", session.rank());
  if (scenario == "collectives") {
    for (GroupKind kind : kAllGroups) {
      if (session.group(kind).size() > 1) check_group(session.group(kind));
    }
    if (auto tied =
            tied_group(session.world(), "w", {0, session.world().pipeline - 1}, session.rank());
        tied && session.world().pipeline > 1) {
      check_group(session.add_group(*tied));
    }
    say("all right");
  } else if (scenario == "measure") {
    measure(session.group(GroupKind::kWorld), int64_t(arguments.number("megabytes", 50)) * 1000000);
  } else if (scenario == "agree") {
    const bool odd = session.rank() == arguments.number("rank", -1);
    session.agree("configuration", "seed: 1\nbatch:\n  size: 4\n");
    session.agree("configuration", fmt::format("seed: 1\nbatch:\n  size: {}\nlast: {}\n",
                                               odd ? 8 : 4, rank_text.size()));
    say("agreed");
  } else if (scenario == "meet") {
    const bool odd = session.rank() == arguments.number("rank", -1);
    if (odd && arguments.text("event") == "late")
      std::this_thread::sleep_for(milliseconds(arguments.number("pause", 1000)));
    session.meet(odd && arguments.text("event") == "elsewhere" ? "save 10" : "evaluation 10",
                 milliseconds(arguments.number("meeting", 20000)));
    say("met");
  } else if (scenario == "stay") {  // rank 0 ends
    say("here");
    if (session.rank() != 0) ::pause();
    std::_Exit(0);
  } else if (scenario == "threads") {
    say(fmt::format("{} threads", omp_get_max_threads()));
  } else if (scenario == "steps") {
    run_steps(session, arguments);
  } else {
    throw Error(Status::kInvalid, "no such scenario: " + scenario);
  }
}

int as_rank(const Arguments& arguments) {
  const auto launch = LaunchEnvironment::from_process();
  const int rank = int(launch.rank.value_or(0)), size = int(launch.world_size.value_or(1));
  log::configure({false, rank, size, log::Level::kInfo});
  World world;
  world.tensor = arguments.number("tensor", 1);
  world.pipeline = arguments.number("pipeline", 1);
  world.data = size / world.tensor / world.pipeline;
  world.sequence_data = arguments.number("sequence_data", 1);
  SessionOptions options;
  options.timeout = milliseconds(arguments.number("timeout", 30000));
  options.watch.beat = milliseconds(arguments.number("beat", 100));
  options.watch.silence = milliseconds(arguments.number("silence", 3000));
  options.watch.suspicion = milliseconds(arguments.number("suspicion", 1500));
  options.watch.grace = milliseconds(1000);
  install_stop_handlers();
  auto session = Session::join(launch, world, rank, options);
  try {
    run(*session, arguments);
    session->finish();
  } catch (const Error& e) {
    session->fail(e.what());
    throw;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc > 2 && std::string(argv[1]) == "--nproc") {
      LaunchOptions options;
      options.ranks = std::stoi(argv[2]);
      options.after_end = milliseconds(Arguments(argc, argv).number("after_end", 60000));
      options.command = {"/proc/self/exe"};
      options.command.insert(options.command.end(), argv + 3, argv + argc);
      return launch_ranks(options);
    }
    return as_rank(Arguments(argc, argv));
  } catch (const std::exception& e) {
    log::plain_error(e.what());
    return 1;
  }
}
