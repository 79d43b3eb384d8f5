#include "core/distributed/launcher.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/distributed/environment.hpp"
#include "core/distributed/groups.hpp"

namespace fastllm::distributed {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) {
  throw Error(Status::kUnavailable,
              fmt::format("cannot start ranks: {}: {}", what, errno_text(errno)));
}

// One stream of a rank: lines come out whole, so that those of several ranks do not mix.
class Lines {
 public:
  Lines(int rank, int from, int to)
      : from_(from), to_(to), prefix_(fmt::format("[Rank {}] ", rank)) {}
  int from() const { return from_; }  // -1: ended
  int lost() const { return lost_; }  // errno of the first line that could not be written; 0: none

  // Reads what there is.
  void read() {
    char bytes[8192];
    const ssize_t n = ::read(from_, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) return;
    if (n <= 0) return close();
    text_.append(bytes, size_t(n));
    size_t begin = 0;
    for (size_t end; (end = text_.find('\n', begin)) != std::string::npos; begin = end + 1)
      write(text_.substr(begin, end + 1 - begin));
    text_.erase(0, begin);
    constexpr size_t kLongest = 1 << 20;
    if (text_.size() > kLongest) write(std::exchange(text_, ""));
  }
  void close() {
    if (from_ < 0) return;
    if (!text_.empty()) write(text_ + "\n");
    text_.clear();
    ::close(from_);
    from_ = -1;
  }

 private:
  // A log line says its rank behind the time.
  void write(const std::string& line) {
    const bool named = line.substr(0, 60).find(prefix_) != std::string::npos;
    const std::string whole = named ? line : prefix_ + line;
    for (size_t done = 0; done < whole.size();) {
      const ssize_t n = ::write(to_, whole.data() + done, whole.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) {
        if (lost_ == 0) lost_ = errno;
        return;
      }
      done += size_t(n);
    }
  }

  int from_, to_;
  int lost_ = 0;
  std::string prefix_, text_;
};

struct Child {
  pid_t id = 0;
  bool running = true;
};

// A socket that listens on a free port of this computer; rank 0 gets it, so nobody can take the port.
int free_socket(int& port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);  // survives exec
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (socket < 0 || ::bind(socket, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(socket, SOMAXCONN) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    fail("no free port");
  port = ntohs(address.sin_port);
  return socket;
}

int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

// By SIGSTOP, or under a debugger.
bool is_stopped(pid_t id) {
  std::ifstream file(fmt::format("/proc/{}/stat", id));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(") ");  // the name before it may hold anything
  return name_end != std::string::npos && std::tolower(line[name_end + 2]) == 't';
}

std::string end_text(int rank, int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return fmt::format("rank {} was ended by signal {} ({})", rank, number, ::strsignal(number));
  }
  return fmt::format("rank {} ended with code {}", rank, WEXITSTATUS(status));
}

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options) : options_(options) {}
  ~Launcher() {
    signal_all(SIGKILL);
    for (auto& child : children_) {
      if (child.running) ::waitpid(child.id, nullptr, 0);
    }
    for (auto& stream : lines_) stream.close();
    if (signals_ >= 0) ::close(signals_);
    ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }

  int run() {
    sigset_t mask;
    sigemptyset(&mask);
    for (int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&mask, number);
    ::sigprocmask(SIG_BLOCK, &mask, &old_mask_);
    signals_ = ::signalfd(-1, &mask, SFD_CLOEXEC);
    if (signals_ < 0) fail("no descriptor for signals");
    start_all();
    while (running() > 0) wait_once();
    drain();
    for (const Lines& stream : lines_) {
      if (stream.lost() != 0)
        throw Error(Status::kUnavailable,
                    fmt::format("cannot write what the ranks print: {}; free space, or send it "
                                "somewhere else",
                                errno_text(stream.lost())));
    }
    return code_;
  }

 private:
  void start_all() {
    int port = 0;
    const int socket = free_socket(port);
    const int threads = std::max(1, cores() / options_.ranks);
    for (int rank = 0; rank < options_.ranks; ++rank) start(rank, socket, port, threads);
    ::close(socket);
  }

  void start(int rank, int socket, int port, int threads) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) fail("no pipe");
    std::vector<std::pair<std::string, std::string>> variables = {
        {"RANK", fmt::format("{}", rank)},
        {"LOCAL_RANK", fmt::format("{}", rank)},
        {"WORLD_SIZE", fmt::format("{}", options_.ranks)},
        {"LOCAL_WORLD_SIZE", fmt::format("{}", options_.ranks)},
        {"MASTER_ADDR", "127.0.0.1"},
        {"MASTER_PORT", fmt::format("{}", port)}};
    if (!std::getenv("OMP_NUM_THREADS"))
      variables.emplace_back("OMP_NUM_THREADS", fmt::format("{}", threads));
    if (rank == 0) variables.emplace_back(kListeningVariable, fmt::format("{}", socket));
    std::vector<char*> arguments;
    for (const auto& word : options_.command) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);

    const pid_t parent = ::getpid();
    const pid_t id = ::fork();
    if (id < 0) fail("no process");
    if (id == 0) {
      // Dies with the launcher, whatever ends it. A group of its own: Ctrl-C comes through the launcher.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      ::setpgid(0, 0);
      ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
      const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      ::dup2(nothing, STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(err[1], STDERR_FILENO);
      if (rank != 0) ::close(socket);
      for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
      ::execv(arguments.front(), arguments.data());
      ::_exit(127);
    }
    ::setpgid(id, id);  // here too: a signal must find the group before the child has run
    ::close(out[1]);
    ::close(err[1]);
    children_.push_back({id, true});
    lines_.emplace_back(rank, out[0], STDOUT_FILENO);
    lines_.emplace_back(rank, err[0], STDERR_FILENO);
  }

  long running() const {
    return std::count_if(children_.begin(), children_.end(),
                         [](const Child& c) { return c.running; });
  }

  void signal_all(int number) {
    for (const Child& child : children_) {
      if (child.running) ::kill(-child.id, number);
    }
  }

  // Output, signals and ends of ranks, until one of them or until it is time to end the others.
  void wait_once() {
    std::vector<pollfd> watched{{signals_, POLLIN, 0}};
    for (const auto& stream : lines_) watched.push_back({stream.from(), POLLIN, 0});
    int most = -1;
    if (deadline_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
      most = int(std::max<int64_t>(0, left.count()));
    }
    const int ready = ::poll(watched.data(), watched.size(), most);
    if (ready < 0 && errno != EINTR) fail("cannot wait for them");
    if (ready <= 0) return press();
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (watched[i + 1].revents != 0) lines_[i].read();
    }
    if (watched[0].revents & POLLIN) take_signal();
    press();
  }

  void take_signal() {
    signalfd_siginfo info{};
    if (::read(signals_, &info, sizeof info) != ssize_t(sizeof info)) return;
    if (int(info.ssi_signo) != SIGCHLD) {
      // A second one ends ranks in the middle of what they are at.
      passed_on_ = std::exchange(asked_, true) ? 0 : int(info.ssi_signo);
      return signal_all(int(info.ssi_signo));
    }
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      int status = 0;
      if (!child.running || ::waitpid(child.id, &status, WNOHANG) != child.id) continue;
      child.running = false;
      ended(int(rank), status);
    }
  }

  void ended(int rank, int status) {
    const bool signalled = WIFSIGNALED(status),
               as_asked = signalled && WTERMSIG(status) == passed_on_;
    const int code = as_asked    ? options_.interrupted_code
                     : signalled ? 128 + WTERMSIG(status)
                                 : WEXITSTATUS(status);
    const auto& orderly = options_.orderly_codes;
    const bool well = code == 0 || std::find(orderly.begin(), orderly.end(), code) != orderly.end();
    // The first failure decides; what was ended here is none of its own.
    if (failed_ || (pressed_ && code_ != 0)) return;
    if (well) {
      if (code_ == 0) code_ = code;
      if (!deadline_) expect_others(rank, status, options_.after_end);
      return;
    }
    failed_ = true;
    code_ = code;
    if (signalled) log::plain_error(end_text(rank, status) + "; ending the others");
    expect_others(rank, status, options_.after_failure);
  }

  void expect_others(int rank, int status, std::chrono::milliseconds within) {
    first_ = end_text(rank, status);
    deadline_ = Clock::now() + within;
  }

  bool no_way_back() const { return failed_ || asked_; }
  bool only_stopped_left() const {
    return std::all_of(children_.begin(), children_.end(),
                       [](const Child& c) { return !c.running || is_stopped(c.id); });
  }

  // The others had time to end: SIGTERM, then SIGKILL.
  void press() {
    if (!deadline_ || running() == 0) return;
    if (Clock::now() < *deadline_ && !(no_way_back() && only_stopped_left())) return;
    std::vector<int> left;
    for (size_t rank = 0; rank < children_.size(); ++rank) {
      const Child& child = children_[rank];
      if (!child.running) continue;
      left.push_back(int(rank));
      ::kill(-child.id, pressed_ || is_stopped(child.id) ? SIGKILL : SIGTERM);
    }
    if (!pressed_)
      log::plain_error(
          fmt::format("{}, {} did not end after it; ending it", first_, ranks_text(left)));
    pressed_ = true;
    deadline_ = Clock::now() + options_.grace;
  }

  // What ranks wrote last. A process of theirs may still hold the pipe, so this does not wait for its end.
  void drain() {
    for (auto& stream : lines_) {
      pollfd watched{stream.from(), POLLIN, 0};
      while (stream.from() >= 0 && ::poll(&watched, 1, 0) > 0) stream.read();
      stream.close();
    }
  }

  const LaunchOptions& options_;
  std::vector<Child> children_;
  std::vector<Lines> lines_;
  sigset_t old_mask_{};
  int signals_ = -1;
  int code_ = 0;
  std::string first_;
  bool failed_ = false;
  bool asked_ = false;                         // by a signal, to end
  int passed_on_ = 0;                          // that signal; 0: none, or another after it
  std::optional<Clock::time_point> deadline_;  // for the next, harder, signal
  bool pressed_ = false;
};

}  // namespace

int launch_ranks(const LaunchOptions& options) {
  FASTLLM_ASSERT(options.ranks >= 1 && !options.command.empty());
  return Launcher(options).run();
}

}  // namespace fastllm::distributed
