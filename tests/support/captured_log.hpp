// What the log says while something lives or runs.
#pragma once

#include <filesystem>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/file.hpp"
#include "core/base/log.hpp"

namespace fastllm::test {

// The log has one file: of two that live, the later one has it, and leaves none behind.
class CapturedLog {
 public:
  CapturedLog() { log::set_file(file_); }
  ~CapturedLog() { log::set_file({}); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  std::string text() const {
    log::flush();
    return read_file(file_);
  }
  // Those that hold the word.
  std::vector<std::string> lines(std::string_view word) const {
    std::istringstream stream(text());
    std::vector<std::string> found;
    for (std::string line; std::getline(stream, line);)
      if (line.find(word) != std::string::npos) found.push_back(line);
    return found;
  }

 private:
  TemporaryDirectory folder_;
  std::filesystem::path file_ = folder_.path() / "log.txt";
};

template <class Body>
std::string logged(Body&& body) {
  const CapturedLog log;
  body();
  return log.text();
}

}  // namespace fastllm::test
