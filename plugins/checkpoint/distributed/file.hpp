// Plain file access by offset. Errors are sentences with the path and the system's reason; reads
// are by pread, so a file that shrinks under us is an error and not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace fastllm::distributed {

// Whole transfers move in pieces of this many bytes; between two the host may ask to stop.
constexpr size_t kChunkBytes = size_t(16) << 20;

// A regular file open for reading. One thread.
class InputFile {
 public:
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  // Fills `to`; a file that ends earlier is an error.
  void read(uint64_t offset, void* to, size_t bytes) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// A new file of a known size; what is never written reads as zeros. One thread.
class OutputFile {
 public:
  OutputFile(const std::string& path, uint64_t bytes);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(uint64_t offset, const void* from, size_t bytes);
  void sync_and_close();  // all bytes are on the disk after this

 private:
  std::string path_;
  int fd_ = -1;
};

bool file_exists(const std::string& path);
// Refuses more than `limit` bytes.
std::string read_text(const std::string& path, uint64_t limit);
// Written, synced, closed.
void write_text(const std::string& path, const std::string& content);

}  // namespace fastllm::distributed
