// Parts of input files, read (not mapped: a file that shrinks under a mapping ends the process).
// What was listed must still be what is there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace fastllm::data {

// What tells one state of a file from another.
struct FileState {
  int64_t bytes = 0;
  uint64_t device = 0, inode = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileState&) const = default;
};

// Throws Error(kUnavailable) when it cannot be examined.
FileState state_of(const std::filesystem::path& path);

// An open input. One thread.
class InputReader {
 public:
  // Throws Error(kUnavailable) when the file is in another state than `listed`.
  InputReader(const std::filesystem::path& path, const FileState& listed);
  ~InputReader();
  InputReader(const InputReader&) = delete;
  InputReader& operator=(const InputReader&) = delete;

  // Appends bytes [begin, end) of the file; both lie in it.
  void read(int64_t begin, int64_t end, std::string& bytes) const;

 private:
  const std::filesystem::path& path_;
  int fd_ = -1;
};

[[noreturn]] void fail_changed(const std::filesystem::path& path);

}  // namespace fastllm::data
