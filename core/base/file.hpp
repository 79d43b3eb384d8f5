// Files, with errors that name the path and the reason. Thread-safe: no state.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct stat;

namespace fastllm {

// Whole file as bytes; refuses more than `limit` bytes (hostile until checked).
std::string read_file(const std::filesystem::path& path, uint64_t limit = uint64_t(1) << 30);

// Complete or absent: writes beside, syncs, renames over `path`, syncs the folder.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

// Flushes a file's or a folder's content to the disk.
void sync_path(const std::filesystem::path& path);

// Whether something is at `path`, links followed. Not being allowed to look is an error, not "no".
bool path_exists(const std::filesystem::path& path);

// What is in a folder, in the file system's order.
std::vector<std::filesystem::directory_entry> list_folder(const std::filesystem::path& path);

// Makes the folder and its parents; an existing folder is fine.
void make_directories(const std::filesystem::path& path);

// A read-only view of a whole file. An empty file gives an empty view.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  size_t size() const { return size_; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int number_ = -1;  // mapped_files.hpp
};

// A folder below the system's temporary one that goes away with the object; for tests and set-aside
// work.
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(std::string_view prefix = "fastllm");
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// SHA-256 as 64 hexadecimal digits.
std::string sha256_hex(std::string_view bytes);
std::string sha256_file_hex(const std::filesystem::path& path);

// What tells one state of a file from another.
struct FileState {
  int64_t bytes = 0;
  uint64_t device = 0, inode = 0;
  int64_t modified_ns = 0;
  bool operator==(const FileState&) const = default;
};
FileState state_of(const struct stat& info);
// Throws when it cannot be examined.
FileState state_of(const std::filesystem::path& path);

// Text of errno for messages: "No space left on device".
std::string errno_text(int code);
// Throws "cannot WHAT PATH: text of errno": Error(kNotFound) where nothing is there, else
// Error(kUnavailable).
[[noreturn]] void fail_errno(std::string_view what, const std::filesystem::path& path, int code);

}  // namespace fastllm
