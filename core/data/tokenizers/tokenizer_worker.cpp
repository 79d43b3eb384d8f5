// The process gets one end of a socket pair as its standard input (a socket, since writing to one
// whose reader is gone is an error here and no signal), and its prints go to a file in memory.
#include "core/data/tokenizers/tokenizer_worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/utf8.hpp"

extern char** environ;

namespace fastllm::data {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are sent as they lie in memory");

constexpr char kMagic[4] = {'F', 'L', 'T', 'K'};
constexpr uint64_t kLongestSentence = 1 << 16;
// A byte of text may become several tokens (compatibility forms unfold, then fall back to bytes),
// and a text may get some of its own; more than this nothing makes.
constexpr uint64_t kTokensPerByte = 32, kTokensPerText = 64;
constexpr auto kPatienceAtTheEnd = std::chrono::milliseconds(500);
// Once a signal asks to stop: what is nearly done may still be answered.
constexpr auto kPatienceAfterASignal = std::chrono::seconds(1);
constexpr auto kGlance = std::chrono::milliseconds(100);  // how often a signal is looked for

using Clock = std::chrono::steady_clock;

// Above the three standard ones, so that giving those to the process overwrites none of ours.
int moved_up(int fd) {
  int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  int code = errno;
  ::close(fd);
  if (moved < 0) {
    throw Error(Status::kUnavailable,
                fmt::format("cannot open one more file: {}; raise the limit of open files",
                            errno_text(code)));
  }
  return moved;
}

std::vector<std::string> process_environment() {
  std::vector<std::string> values;
  for (char** entry = environ; *entry; ++entry) {
    std::string_view text = *entry;
    if (!text.starts_with("TOKENIZERS_PARALLELISM=") && !text.starts_with("RAYON_NUM_THREADS="))
      values.emplace_back(text);
  }
  // Processes are what runs side by side here.
  values.emplace_back("TOKENIZERS_PARALLELISM=false");
  values.emplace_back("RAYON_NUM_THREADS=1");
  return values;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// What posix_spawn is told; freed in any case.
class SpawnPlan {
 public:
  SpawnPlan(int standard_input, int output) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_adddup2(&actions_, standard_input, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, output, 1);
    ::posix_spawn_file_actions_adddup2(&actions_, output, 2);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    ::posix_spawnattr_init(&attributes_);
    // A group of its own: Ctrl-C is for the host alone. No signal ignored or held back.
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    sigset_t signals;
    sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  int run(pid_t& process, std::vector<std::string> words) {
    std::vector<std::string> environment = process_environment();
    return ::posix_spawnp(&process, words[0].c_str(), &actions_, &attributes_,
                          pointers(words).data(), pointers(environment).data());
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

// One line, printable: it goes into a message.
std::string one_line(std::string_view text) {
  constexpr size_t kMost = 300;
  std::string line = repair_utf8(text.substr(0, kMost));
  for (char& c : line) {
    if (uint8_t(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return line;
}

}  // namespace

struct TokenizerWorker::Header {
  char magic[4];
  char kind;
  char zero[3];
  uint64_t length;
};

std::filesystem::path installed_worker_script() {
  std::error_code code;
  std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", code);
  std::filesystem::path script =
      (program.parent_path() / "../lib/fastllm/tokenizer_worker.py").lexically_normal();
  if (code || !path_exists(script)) {
    throw Error(Status::kNotFound,
                fmt::format("expected the script that runs tokenizers at {}, found none; install "
                            "fastllm-host with the folder lib beside its folder",
                            script.string()));
  }
  return script;
}

TokenizerWorker::TokenizerWorker(const WorkerCommand& command) : command_(command) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(Status::kUnavailable,
                fmt::format("cannot connect to a tokenizer's process: {}", errno_text(errno)));
  }
  int theirs = -1, code = 0;
  try {
    theirs = moved_up(std::exchange(pair[1], -1));
    socket_ = moved_up(std::exchange(pair[0], -1));
    int output = ::memfd_create("tokenizer_worker", MFD_CLOEXEC);
    if (output < 0) {
      throw Error(Status::kUnavailable,
                  fmt::format("cannot make a file in memory: {}", errno_text(errno)));
    }
    output_ = moved_up(output);
    code = SpawnPlan(theirs, output_)
               .run(process_, {command.python, command.script.string(), command.folder.string()});
    ::close(std::exchange(theirs, -1));
    if (code != 0) {
      process_ = -1;
      throw Error(code == ENOENT ? Status::kNotFound : Status::kUnavailable,
                  fmt::format("cannot start the Python {}: {}; install python3, or name one in "
                              "FASTLLM_PYTHON",
                              command.python, errno_text(code)));
    }
    greet();
  } catch (...) {
    for (int fd : {theirs, pair[0], pair[1]}) {
      if (fd >= 0) ::close(fd);
    }
    end_process();
    if (output_ >= 0) ::close(output_);
    throw;
  }
}

TokenizerWorker::~TokenizerWorker() {
  end_process();
  ::close(output_);
}

void TokenizerWorker::greet() {
  uint64_t length = receive_header('h', kLongestSentence, command_.start_limit);
  std::string text(length, '\0');
  receive(text.data(), length, command_.start_limit);
  auto greeting = nlohmann::json::parse(text, nullptr, false);
  constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max();
  if (!greeting.is_object() || !greeting.contains("vocabulary") ||
      !greeting["vocabulary"].is_number_integer() || greeting["vocabulary"].get<int64_t>() < 1 ||
      greeting["vocabulary"].get<int64_t>() > kMostTokens) {
    fail(fmt::format("greeted with '{}' instead of its vocabulary's size", one_line(text)));
  }
  vocabulary_ = greeting["vocabulary"].get<int64_t>();
}

void TokenizerWorker::wait_until(short ready, std::chrono::milliseconds limit) {
  using Milliseconds = std::chrono::milliseconds;
  const Clock::time_point end = Clock::now() + limit;
  std::optional<Clock::time_point> end_by_signal;
  while (true) {
    Clock::time_point now = Clock::now();
    if (!end_by_signal && stop_requested()) end_by_signal = now + kPatienceAfterASignal;
    auto left = std::chrono::ceil<Milliseconds>(std::min(end, end_by_signal.value_or(end)) - now);
    pollfd waiting{socket_, ready, 0};
    int count = ::poll(&waiting, 1, int(std::clamp<Milliseconds>(left, {}, kGlance).count()));
    if (count > 0) return;
    if (count < 0 && errno != EINTR)
      fail(fmt::format("cannot be waited for: {}", errno_text(errno)));
    now = Clock::now();
    if (end_by_signal && now >= *end_by_signal) {
      end_process();
      throw Error(Status::kCancelled, "stopped while a tokenizer's process gave no answer");
    }
    if (now >= end)
      fail(fmt::format("was silent for {} s", std::chrono::duration<double>(limit).count()));
  }
}

void TokenizerWorker::send(std::string_view bytes) {
  while (!bytes.empty()) {
    wait_until(POLLOUT, command_.answer_limit);
    ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (sent < 0) fail("takes no more requests");
    bytes.remove_prefix(size_t(sent));
  }
}

void TokenizerWorker::send_header(char kind, uint64_t length) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.kind = kind;
  header.length = length;
  send({reinterpret_cast<const char*>(&header), sizeof(header)});
}

void TokenizerWorker::receive(void* bytes, size_t size, std::chrono::milliseconds limit) {
  auto* at = static_cast<char*>(bytes);
  while (size > 0) {
    wait_until(POLLIN, limit);
    ssize_t count = ::recv(socket_, at, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("ended without an answer");
    at += count;
    size -= size_t(count);
  }
}

uint64_t TokenizerWorker::receive_header(char kind, uint64_t most,
                                         std::chrono::milliseconds limit) {
  Header header{};
  receive(&header, sizeof(header), limit);
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    fail(fmt::format("answered '{}', which is no frame",
                     one_line({reinterpret_cast<const char*>(&header), sizeof(header)})));
  }
  if (header.kind == 'x' && header.length <= kLongestSentence) {
    WorkerRefusal refusal{std::string(header.length, '\0')};
    receive(refusal.sentence.data(), header.length, limit);
    refusal.sentence = one_line(refusal.sentence);
    throw refusal;
  }
  if (header.kind != kind) {
    fail(fmt::format("answered with a frame of kind {}, expected {}", int(header.kind), int(kind)));
  }
  if (header.length > most)
    fail(fmt::format("announced {} bytes, expected at most {}", header.length, most));
  return header.length;
}

void TokenizerWorker::encode_batch(std::span<const std::string_view> texts, TokenBatch& batch) {
  std::string lengths;
  uint64_t count = texts.size(), bytes = 0;
  lengths.reserve(8 + 4 * texts.size());
  lengths.append(reinterpret_cast<const char*>(&count), sizeof(count));
  for (std::string_view text : texts) {
    bytes += text.size();
    FASTLLM_ASSERT(bytes <= uint64_t(command_.most_bytes));
    auto length = uint32_t(text.size());
    lengths.append(reinterpret_cast<const char*>(&length), sizeof(length));
  }
  send_header('E', lengths.size() + bytes);
  send(lengths);
  // Small texts in one go: a call to the system for each would cost more than the copy.
  std::string together;
  for (std::string_view text : texts) {
    if (together.size() + text.size() > (size_t(1) << 18)) {
      send(together);
      together.clear();
    }
    if (text.size() > (size_t(1) << 17)) {
      send(together);
      together.clear();
      send(text);
    } else {
      together += text;
    }
  }
  send(together);

  const uint64_t most_tokens = bytes * kTokensPerByte + count * kTokensPerText;
  uint64_t length = receive_header('e', 8 + 4 * count + 4 * most_tokens, command_.answer_limit);
  uint64_t answered = 0;
  if (length < 8 + 4 * count) {
    fail(fmt::format("announced {} bytes, expected at least {} for {} texts", length, 8 + 4 * count,
                     count));
  }
  receive(&answered, sizeof(answered), command_.answer_limit);
  if (answered != count) fail(fmt::format("answered {} texts, expected {}", answered, count));
  std::vector<uint32_t> sizes(count);
  receive(sizes.data(), 4 * count, command_.answer_limit);
  uint64_t tokens = 0;
  for (uint32_t size : sizes) tokens += size;
  if (length != 8 + 4 * count + 4 * tokens) {
    fail(fmt::format("announced {} bytes, expected {} for {} tokens", length,
                     8 + 4 * count + 4 * tokens, tokens));
  }
  size_t begin = batch.tokens.size();
  batch.tokens.resize(begin + tokens);
  receive(batch.tokens.data() + begin, 4 * tokens, command_.answer_limit);
  for (size_t i = begin; i < batch.tokens.size(); ++i) {
    if (batch.tokens[i] < 0 || batch.tokens[i] >= vocabulary_) {
      fail(fmt::format("gave the token id {}, expected one below its vocabulary's size {}",
                       batch.tokens[i], vocabulary_));
    }
  }
  batch.sizes.insert(batch.sizes.end(), sizes.begin(), sizes.end());
}

std::string TokenizerWorker::decode(std::span<const int32_t> ids) {
  send_header('D', ids.size_bytes());
  send({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
  // Longer than any token's text, and no reason to take all memory.
  const uint64_t most = 4096 + 4096 * uint64_t(ids.size());
  std::string text(receive_header('d', most, command_.answer_limit), '\0');
  receive(text.data(), text.size(), command_.answer_limit);
  return repair_utf8(text);
}

int64_t TokenizerWorker::token_id(std::string_view token) {
  send_header('T', token.size());
  send(token);
  int32_t id = -1;
  if (receive_header('t', sizeof(id), command_.answer_limit) != sizeof(id))
    fail("answered an id of another size");
  receive(&id, sizeof(id), command_.answer_limit);
  if (id < -1 || id >= vocabulary_)
    fail(fmt::format("gave the token id {}, expected one below {}", id, vocabulary_));
  return id;
}

void TokenizerWorker::fail(const std::string& what) {
  std::string end = end_process(), words = last_words();
  throw Error(Status::kUnavailable,
              fmt::format("the tokenizer's process ({} {}) {}; it {}{}", command_.python,
                          command_.script.string(), what, end,
                          words.empty() ? "" : fmt::format("; its last words: {}", words)));
}

std::string TokenizerWorker::last_words() const {
  char text[4096];
  off_t size = ::lseek(output_, 0, SEEK_END);
  off_t begin = std::max<off_t>(0, size - off_t(sizeof(text)));
  ssize_t count = size > 0 ? ::pread(output_, text, sizeof(text), begin) : 0;
  std::string_view all(text, size_t(std::max<ssize_t>(count, 0)));
  while (!all.empty() && (all.back() == '\n' || all.back() == '\r')) all.remove_suffix(1);
  size_t line = all.rfind('\n');
  return one_line(line == std::string_view::npos ? all : all.substr(line + 1));
}

std::string TokenizerWorker::end_process() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  if (process_ <= 0) return "is gone";
  int state = 0;
  pid_t ended = 0;
  auto patience = Clock::now() + kPatienceAtTheEnd;
  auto wait = [&](int options) {
    do {
      ended = ::waitpid(process_, &state, options);
    } while (ended < 0 && errno == EINTR);
  };
  // It ends by itself when its socket closes; only what hangs is killed.
  for (wait(WNOHANG); ended == 0 && Clock::now() < patience; wait(WNOHANG))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  bool killed = ended == 0;
  if (killed) {
    ::kill(process_, SIGKILL);
    wait(0);
  }
  process_ = -1;
  if (killed) return "did not end and was killed";
  if (ended > 0 && WIFSIGNALED(state)) {
    return fmt::format("was ended by signal {} ({}){}", WTERMSIG(state),
                       ::sigdescr_np(WTERMSIG(state)),
                       WTERMSIG(state) == SIGKILL ? ", perhaps for lack of memory" : "");
  }
  return fmt::format("ended with exit code {}", ended > 0 ? WEXITSTATUS(state) : 0);
}

}  // namespace fastllm::data
