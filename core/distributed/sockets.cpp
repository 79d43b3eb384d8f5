#include "core/distributed/sockets.hpp"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>

#include "core/base/file.hpp"

namespace fastllm::distributed {

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

std::optional<int> port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (socket < 0 || ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return std::nullopt;
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                   : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Descriptor connect_to(const std::string& host, int number, std::chrono::milliseconds most,
                      std::string& why) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = fmt::format("{}", number);
  if (const int code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found); code != 0) {
    why = ::gai_strerror(code);
    return Descriptor();
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Descriptor socket(::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (socket.get() < 0) continue;
    if (::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) return socket;
    int reason = errno;
    if (reason == EINPROGRESS) {
      pollfd waiting{socket.get(), POLLOUT, 0};
      socklen_t size = sizeof reason;
      reason = ETIMEDOUT;
      if (::poll(&waiting, 1, int(most.count())) == 1)
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &reason, &size);
      if (reason == 0) return socket;
    }
    why = errno_text(reason);
  }
  return Descriptor();
}

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

std::string interface_problem() {
  const char* const wanted = std::getenv("GLOO_SOCKET_IFNAME");
  if (!wanted || !*wanted) return "";
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return "";
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, ::freeifaddrs);
  std::set<std::string> usable;
  for (const ifaddrs* one = list; one; one = one->ifa_next) {
    const int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
    if ((family == AF_INET || family == AF_INET6) && (one->ifa_flags & IFF_UP))
      usable.insert(one->ifa_name);
  }
  if (usable.contains(wanted)) return "";
  return fmt::format(
      "environment: GLOO_SOCKET_IFNAME: expected an interface of this computer that is up and has "
      "an address ({}), found \"{}\"; name one of them, or unset it",
      fmt::join(usable, ", "), std::string_view(wanted).substr(0, 60));
}

}  // namespace fastllm::distributed
