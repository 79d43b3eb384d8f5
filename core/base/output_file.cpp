// Whole writes or an Error; a write that was cut short goes on.
#include "core/base/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "core/base/file.hpp"

namespace fastllm {
int create_output(const std::filesystem::path& path) {
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail_errno("write", path, errno);
  return fd;
}

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_errno("write", path, errno);
    bytes = bytes.subspan(size_t(written));
  }
}

void seek_output(int fd, size_t offset, const std::filesystem::path& path) {
  if (::lseek(fd, off_t(offset), SEEK_SET) < 0) fail_errno("write", path, errno);
}

void close_output(int& fd, const std::filesystem::path& path) {
  int code = ::fsync(fd) == 0 ? 0 : errno;
  if (::close(std::exchange(fd, -1)) != 0 && code == 0) code = errno;
  if (code != 0) fail_errno("write", path, code);
}

void rename_output(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_errno("rename to", to, errno);
}

}  // namespace fastllm
