#include "core/distributed/lifelines.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <random>

#include "core/distributed/sockets.hpp"

namespace fastllm::distributed {
namespace {

using std::chrono::milliseconds;

const std::string kKey = "lifelines";  // "port word"

// What a rank says first.
struct Hello {
  uint64_t word;
  int64_t rank;
};

uint64_t random_word() {
  std::random_device source;
  return uint64_t(source()) << 32 | source();
}

// Idle for days it must not be forgotten by what is between the computers.
void keep_alive(int socket) {
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

}  // namespace

std::unique_ptr<Lifelines> Lifelines::of_first(Store& store, int size) {
  std::unique_ptr<Lifelines> lines(new Lifelines);
  lines->size_ = size;
  lines->word_ = random_word();
  lines->listening_ = Descriptor(listen_on(0));
  const std::optional<int> port = port_of(lines->listening_.get());
  if (port) store.set(kKey, fmt::format("{} {}", *port, lines->word_));
  return lines;
}

std::unique_ptr<Lifelines> Lifelines::of_other(Store& store, int rank, const std::string& host) {
  std::unique_ptr<Lifelines> lines(new Lifelines);
  const auto place = store.get(kKey);
  if (!place) return lines;
  char* rest = nullptr;
  const int port = int(std::strtol(place->c_str(), &rest, 10));
  std::string why;
  Descriptor socket = connect_to(host, port, milliseconds(2000), why);
  if (socket.get() < 0) return lines;
  const Hello hello{std::strtoull(rest, nullptr, 10), rank};
  if (::send(socket.get(), &hello, sizeof hello, MSG_NOSIGNAL) != ssize_t(sizeof hello))
    return lines;
  keep_alive(socket.get());
  lines->lines_.push_back({std::move(socket), 0});
  return lines;
}

Lifelines::~Lifelines() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void Lifelines::watch(Ended ended) {
  ended_ = std::move(ended);
  wake_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (wake_.get() < 0 || (listening_.get() < 0 && lines_.empty())) return;
  thread_ = std::thread([this] { run(); });
}

void Lifelines::run() {
  for (;;) {
    std::vector<pollfd> watched{{wake_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
    for (const Line& line : lines_) watched.push_back({line.socket.get(), POLLIN, 0});
    if (::poll(watched.data(), watched.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (watched[0].revents != 0) return;
    for (size_t i = lines_.size(); i-- > 0;) {
      if (watched[i + 2].revents != 0 && !still_there(lines_[i]))
        lines_.erase(lines_.begin() + std::ptrdiff_t(i));
    }
    if (watched[1].revents & POLLIN) accept_one();
  }
}

void Lifelines::accept_one() {
  Descriptor socket(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.get() < 0) return;
  keep_alive(socket.get());
  lines_.push_back({std::move(socket)});
}

bool Lifelines::still_there(Line& line) {
  Hello hello{};
  const ssize_t n = ::recv(line.socket.get(), &hello, sizeof hello, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return true;
  if (n > 0) {
    // So short a text comes whole.
    if (line.rank >= 0) return true;
    if (n != ssize_t(sizeof hello) || hello.word != word_ || hello.rank < 1 || hello.rank >= size_)
      return false;
    line.rank = int(hello.rank);
    return true;
  }
  // A network that is gone for long (ETIMEDOUT and the like) says nothing of the process.
  if (line.rank >= 0 && (n == 0 || errno == ECONNRESET)) ended_(line.rank);
  return false;
}

}  // namespace fastllm::distributed
