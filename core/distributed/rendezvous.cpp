#include "core/distributed/rendezvous.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A socket that listens on all interfaces, of both kinds of addresses where there are both.
int listen_on(int port) {
  Descriptor socket(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(uint16_t(port));
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(uint16_t(port));
  const int on = 1, off = 0;
  auto bind = [&](int number, const void* address, socklen_t size) {
    ::setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    return ::bind(number, static_cast<const sockaddr*>(address), size) == 0 &&
           ::listen(number, SOMAXCONN) == 0;
  };
  if (socket.get() >= 0) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(socket.get(), &six, sizeof six)) return socket.release();
    if (errno == EADDRINUSE || errno == EACCES) return -1;
  }
  Descriptor plain(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return plain.get() >= 0 && bind(plain.get(), &four, sizeof four) ? plain.release() : -1;
}

int take_port(int port) {
  const int socket = listen_on(port);
  if (socket >= 0) return socket;
  const int reason = errno;
  if (reason == EADDRINUSE) {
    const std::string holder = port_holder(port);
    throw Error(
        Status::kUnavailable,
        fmt::format("expected port {} to be free for the ranks to meet at, found it taken{}; "
                    "set MASTER_PORT to another one on all ranks, or start with --nproc, "
                    "which finds one",
                    port, holder.empty() ? "" : " by " + holder));
  }
  throw Error(
      Status::kUnavailable,
      fmt::format("cannot listen on port {}: {}; set MASTER_PORT to another one on all ranks", port,
                  errno_text(reason)));
}

// Whether something accepts a connection there; `why` not.
bool can_connect(const StoreAddress& address, milliseconds most, std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = fmt::format("{}", address.port);
  if (const int code = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
      code != 0) {
    why = ::gai_strerror(code);
    return false;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Descriptor socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) continue;
    if (::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) return true;
    int reason = errno;
    if (reason == EINPROGRESS) {
      pollfd waiting{socket.get(), POLLOUT, 0};
      socklen_t size = sizeof reason;
      reason = ETIMEDOUT;
      if (::poll(&waiting, 1, int(most.count())) == 1)
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &reason, &size);
      if (reason == 0) return true;
    }
    why = errno_text(reason);
  }
  return false;
}

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string hello_key(int rank) { return fmt::format("hello/{}", rank); }

}  // namespace

std::string port_holder(int port) {
  // Sockets are known by number in /proc/net, and processes have links to their sockets.
  std::string socket_number;
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string index, local, remote, state, skipped, number;
      words >> index >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) words >> skipped;
      words >> number;
      const size_t colon = local.rfind(':');
      constexpr const char* kListens = "0A";
      if (state == kListens && colon != std::string::npos &&
          std::strtol(local.c_str() + colon + 1, nullptr, 16) == port)
        socket_number = number;
    }
  }
  if (socket_number.empty()) return "";
  const std::string wanted = "socket:[" + socket_number + "]";
  std::error_code code;
  for (const auto& process : std::filesystem::directory_iterator("/proc", code)) {
    const std::string id = process.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code hidden;
    for (const auto& link : std::filesystem::directory_iterator(process.path() / "fd", hidden)) {
      std::error_code gone;
      if (std::filesystem::read_symlink(link.path(), gone) != wanted) continue;
      std::ifstream file(process.path() / "comm");
      std::string name;
      std::getline(file, name);
      return fmt::format("process {} ({})", id, name);
    }
  }
  return "a process of another user";
}

MeetingPlace find_meeting_place(const LaunchEnvironment& launch, int rank, milliseconds timeout) {
  if (launch.master_host.empty() || launch.master_port == 0) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected the variables MASTER_ADDR and MASTER_PORT to say where {} ranks "
                    "meet, found {}; start with --nproc, torchrun or srun, which set them",
                    launch.world_size.value_or(1),
                    launch.master_host.empty() && launch.master_port == 0 ? "neither"
                    : launch.master_host.empty()                          ? "no MASTER_ADDR"
                                                                          : "no MASTER_PORT"));
  }
  MeetingPlace place;
  StoreAddress& address = place.address;
  address.host = launch.master_host;
  address.port = launch.master_port;
  address.prefix = "fastllm/" + launch.prefix;
  address.timeout = timeout;
  place.second_address = address;
  if (rank == 0 && !launch.launcher_serves) {
    address.listening =
        launch.listening_socket ? *launch.listening_socket : take_port(address.port);
    if (!launch.listening_socket) address.host = place.second_address.host = "localhost";
  }
  return place;
}

void wait_for_listener(const StoreAddress& address, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::string why;
  for (milliseconds pause(10);; pause = std::min(pause * 2, milliseconds(500))) {
    if (can_connect(address, std::min(timeout, milliseconds(2000)), why)) return;
    if (Clock::now() + pause >= deadline) break;
    std::this_thread::sleep_for(pause);
  }
  throw Error(
      Status::kUnavailable,
      fmt::format("expected rank 0 at {}:{} within {:g} s, found nothing there ({}); see that "
                  "it is started, and that MASTER_ADDR and MASTER_PORT are right",
                  address.host, address.port, double(timeout.count()) / 1000, why));
}

std::vector<std::string> introduce(Store& store, int rank, int size, const std::string& version,
                                   milliseconds timeout) {
  // One line each: computer and process, number of ranks, version.
  const std::string who = fmt::format("{}, process {}", host_name(), ::getpid());
  const std::string own = fmt::format("{}\n{}\n{}", who, size, version);
  const std::string verdict_key = "hello/verdict";
  auto line = [](const std::string& text, int index) {
    std::istringstream lines(text);
    std::string result;
    for (int i = 0; i <= index; ++i) std::getline(lines, result);
    return result;
  };
  const std::string came_key = "hello/came", heard_key = "hello/heard";
  // Ends with what all say. Rank 0 holds the store: it goes last.
  auto end = [&](const std::string& sentence) {
    store.add(heard_key, 1);
    for (int i = 0; rank == 0 && i < 200; ++i) {
      if (store.add(heard_key, 0) >= store.add(came_key, 0)) break;
      std::this_thread::sleep_for(milliseconds(10));
    }
    throw Error(Status::kInvalid, sentence);
  };
  auto fail = [&](const std::string& sentence) {
    store.set(verdict_key, "!" + sentence);
    end(sentence);
  };

  store.add(came_key, 1);

  if (store.add(fmt::format("hello/{}/count", rank), 1) > 1) {
    std::optional<std::string> other;
    for (int i = 0; i < 100 && !(other = store.get(hello_key(rank))); ++i)
      std::this_thread::sleep_for(milliseconds(10));
    fail(
        fmt::format("two processes say that they are rank {}: {} and {}; give every process of the "
                    "run another number, or start with a launcher that does",
                    rank, other ? line(*other, 0) : "another", who));
  }
  store.set(hello_key(rank), own);

  std::vector<std::string> keys;
  for (int r = 0; r < size; ++r) keys.push_back(hello_key(r));
  const auto deadline = Clock::now() + timeout + milliseconds(rank == 0 ? 0 : 2000);
  for (milliseconds pause(1);; pause = std::min(pause * 2, milliseconds(50))) {
    if (const auto verdict = store.get(verdict_key)) {
      if (verdict->starts_with('!')) end(verdict->substr(1));
      break;
    }
    if (rank == 0 && store.has(keys)) break;
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(pause);
  }
  std::vector<std::string> names;
  if (rank == 0) {
    std::vector<int> missing;
    std::string came;
    int shown = 0;
    for (int r = 0; r < size; ++r) {
      const auto hello = store.get(hello_key(r));
      names.push_back(hello ? line(*hello, 0) : "");
      if (!hello) {
        missing.push_back(r);
        continue;
      }
      constexpr int kMost = 8;
      if (++shown <= kMost)
        came += fmt::format("{}rank {} ({})", shown > 1 ? ", " : "", r, names.back());
      if (shown == kMost + 1) came += " and others";
      if (line(*hello, 1) != fmt::format("{}", size)) {
        fail(fmt::format(
            "expected all ranks to be started for {} ranks, as rank 0 was, found rank {} "
            "({}) started for {}; start all with the same WORLD_SIZE",
            size, r, names.back(), line(*hello, 1)));
      }
      if (line(*hello, 2) != version) {
        fail(
            fmt::format("expected version {} on all ranks, as on rank 0, found {} on rank {} ({}); "
                        "install one version everywhere",
                        version, line(*hello, 2), r, names.back()));
      }
    }
    if (!missing.empty()) {
      fail(
          fmt::format("expected {} ranks within {:g} s, found that {} did not come; there are {}; "
                      "see that all are started, or raise model.distributed.timeout",
                      size, double(timeout.count()) / 1000, ranks_text(missing), came));
    }
    std::string verdict;
    for (const std::string& name : names) verdict += name + "\n";
    store.set(verdict_key, verdict);
    return names;
  }
  const auto verdict = store.get(verdict_key);
  if (!verdict) {
    throw Error(
        Status::kUnavailable,
        fmt::format("expected rank 0 to begin the run within {:g} s, found that it did not; "
                    "see what its log says",
                    double(timeout.count()) / 1000));
  }
  if (verdict->starts_with('!')) end(verdict->substr(1));
  std::istringstream lines(*verdict);
  for (std::string name; std::getline(lines, name);) names.push_back(name);
  if (int(names.size()) != size) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected all ranks to be started for {} ranks, as rank 0 was, found rank "
                    "{} ({}) started for {}; start all with the same WORLD_SIZE",
                    names.size(), rank, who, size));
  }
  return names;
}

}  // namespace fastllm::distributed
