// One Python process that tokenizes (tokenizer_worker.py), and the frames that go to it and back.
// The answers are hostile until checked. Whatever the process does - ends, hangs, writes other
// things - becomes an Error(kUnavailable) that says so, and no wait outlasts a signal to stop for
// long. It ends with this object, and by itself when this program is killed.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/tokenizers/tokenizer.hpp"

namespace fastllm::data {

struct WorkerCommand {
  std::string python;  // a program found along PATH, or a path
  std::filesystem::path script;
  std::filesystem::path folder;  // that holds tokenizer.json
  // Silence longer than this is a failure. Starting reads the package and the tokenizer.
  std::chrono::milliseconds start_limit = std::chrono::minutes(2);
  std::chrono::milliseconds answer_limit = std::chrono::minutes(15);
  // Bytes of texts in a request.
  int64_t most_bytes = int64_t(1) << 30;
};

// The script that is installed with the program: ../lib/fastllm beside its folder.
std::filesystem::path installed_worker_script();

// What a worker said instead of an answer: its own sentence.
struct WorkerRefusal {
  std::string sentence;
};

// One thread at a time.
class TokenizerWorker {
 public:
  // Starts the process and waits for its greeting. Throws Error(kUnavailable), or WorkerRefusal.
  explicit TokenizerWorker(const WorkerCommand& command);
  ~TokenizerWorker();
  TokenizerWorker(const TokenizerWorker&) = delete;
  TokenizerWorker& operator=(const TokenizerWorker&) = delete;

  int64_t vocabulary() const { return vocabulary_; }
  pid_t process() const { return process_; }

  // As in Tokenizer. After a throw the worker is of no more use.
  void encode_batch(std::span<const std::string_view> texts, TokenBatch& batch);
  std::string decode(std::span<const int32_t> ids);
  int64_t token_id(std::string_view token);  // -1: none

 private:
  struct Header;
  void greet();
  // For poll's POLLIN or POLLOUT. The limit is for silence: each piece that goes or comes starts it
  // again. Throws Error(kCancelled) when a signal asked to stop and the process stays silent.
  void wait_until(short ready, std::chrono::milliseconds limit);
  void send(std::string_view bytes);
  void send_header(char kind, uint64_t length);
  void receive(void* bytes, size_t size, std::chrono::milliseconds limit);
  // The length of the body that follows; refuses another kind and a body above `most`.
  uint64_t receive_header(char kind, uint64_t most, std::chrono::milliseconds limit);
  [[noreturn]] void fail(const std::string& what);
  std::string last_words() const;
  // How the process ended, in words; ends it when it does not by itself.
  std::string end_process();

  WorkerCommand command_;
  int socket_ = -1, output_ = -1;  // what it prints goes to a file in memory
  pid_t process_ = -1;
  int64_t vocabulary_ = 0;
};

}  // namespace fastllm::data
