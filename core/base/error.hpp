// Errors of the host and of everything below it.
// Inside: exceptions. At the C edge: the status code, the text goes to host->fail().
// A message is one sentence: what was expected, what was found, where, what to do:
//   throw Error(Status::kInvalid, fmt::format("expected ..., found ...", ...));
#pragma once

#include <fastllm/plugin.h>

#include <exception>
#include <string>
#include <utility>

namespace fastllm {

enum class Status : int32_t {
  kOk = FASTLLM_OK,
  kCancelled = FASTLLM_CANCELLED,
  kInvalid = FASTLLM_INVALID,  // what the user gave is wrong: configuration, arguments, files
  kNotFound = FASTLLM_NOT_FOUND,
  kOutOfMemory = FASTLLM_OUT_OF_MEMORY,
  kUnsupported = FASTLLM_UNSUPPORTED,
  kInternal = FASTLLM_INTERNAL,  // ours or a plugin's fault
  kUnavailable = FASTLLM_UNAVAILABLE,
  kDataLoss = FASTLLM_DATA_LOSS,  // a file is cut, damaged, or lies about itself
};

const char* status_name(Status status);  // "invalid", "not found", ...

class Error : public std::exception {
 public:
  Error(Status status, std::string text) : status_(status), text_(std::move(text)) {}
  Status status() const noexcept { return status_; }
  const char* what() const noexcept override { return text_.c_str(); }
  // Puts where it happened in front, on the way up: "plugin gpt, layer 7 forward: ...".
  Error& add_context(const std::string& where) {
    text_ = where + ": " + text_;
    return *this;
  }

 private:
  Status status_;
  std::string text_;
};

// A broken promise inside our own code; names the place. Always on: it costs a compare.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);
#define FASTLLM_ASSERT(condition) \
  ((condition) ? void(0) : ::fastllm::assertion_failed(#condition, __FILE__, __LINE__))

}  // namespace fastllm
