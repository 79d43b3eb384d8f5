// Parts of input files, read (not mapped: a file that shrinks under a mapping ends the process).
// What was listed must still be what is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/base/descriptor.hpp"
#include "core/base/file.hpp"

namespace fastllm::data {

// An open input. One thread.
class InputReader {
 public:
  // Throws Error(kUnavailable) when the file is in another state than `listed`.
  InputReader(const std::filesystem::path& path, const FileState& listed);

  // Appends bytes [begin, end) of the file; both lie in it.
  void read(int64_t begin, int64_t end, std::string& bytes) const;

 private:
  const std::filesystem::path& path_;
  Descriptor fd_;
};

[[noreturn]] void fail_changed(const std::filesystem::path& path);

}  // namespace fastllm::data
