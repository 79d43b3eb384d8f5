// Loops around short and interrupted transfers; the reasons are errno's.
#include "file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fastllm/plugin.hpp>
#include <system_error>
#include <utility>

#include "text.hpp"

namespace fastllm::distributed {
namespace {

[[noreturn]] void fail_errno(const char* what, const std::string& path, int code) {
  fastllm_status status = code == ENOENT ? FASTLLM_NOT_FOUND : FASTLLM_UNAVAILABLE;
  sdk::fail(status, cat("cannot ", what, " ", path, ": ", std::system_category().message(code)));
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: a pipe of that name must not make us wait.
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd_ < 0) fail_errno("read", path, errno);
  struct stat info {};
  if (::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd_);
    sdk::fail(FASTLLM_INVALID, cat("expected a regular file at ", path, ", found something else"));
  }
  size_ = uint64_t(info.st_size);
}

InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(uint64_t offset, void* to, size_t bytes) const {
  auto* target = static_cast<char*>(to);
  while (bytes > 0) {
    ssize_t n = ::pread(fd_, target, std::min(bytes, kChunkBytes), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("read", path_, errno);
    if (n == 0) {
      sdk::fail(FASTLLM_DATA_LOSS, cat("expected ", bytes, " more bytes at offset ", offset, " of ",
                                       path_, ", found its end: the file became shorter"));
    }
    target += n;
    offset += uint64_t(n);
    bytes -= size_t(n);
  }
}

OutputFile::OutputFile(const std::string& path, uint64_t bytes) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) fail_errno("write", path, errno);
  if (::ftruncate(fd_, off_t(bytes)) != 0) {
    int code = errno;
    ::close(fd_);
    fail_errno("write", path, code);
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

void OutputFile::write(uint64_t offset, const void* from, size_t bytes) {
  const auto* source = static_cast<const char*>(from);
  while (bytes > 0) {
    ssize_t n = ::pwrite(fd_, source, std::min(bytes, kChunkBytes), off_t(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("write", path_, errno);
    source += n;
    offset += uint64_t(n);
    bytes -= size_t(n);
  }
}

void OutputFile::sync_and_close() {
  if (::fsync(fd_) != 0) fail_errno("sync", path_, errno);
  // close() reports what a network file system found out late.
  if (::close(std::exchange(fd_, -1)) != 0) fail_errno("close", path_, errno);
}

bool file_exists(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string read_text(const std::string& path, uint64_t limit) {
  InputFile file(path);
  if (file.size() > limit) {
    sdk::fail(FASTLLM_INVALID, cat("expected at most ", grouped(limit), " bytes in ", path,
                                   ", found ", grouped(file.size())));
  }
  std::string text(size_t(file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

void write_text(const std::string& path, const std::string& content) {
  OutputFile file(path, content.size());
  file.write(0, content.data(), content.size());
  file.sync_and_close();
}

}  // namespace fastllm::distributed
