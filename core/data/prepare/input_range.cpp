// pread in a loop; size, time and identity are compared before the first byte is taken.
#include "core/data/prepare/input_range.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::data {
void fail_changed(const std::filesystem::path& path) {
  throw Error(Status::kUnavailable,
              fmt::format("expected {} to stay as it was, found that it changed meanwhile; prepare "
                          "again when nothing writes to it",
                          path.string()));
}

InputReader::InputReader(const std::filesystem::path& path, const FileState& listed)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (fd_.get() < 0) fail_errno("read", path, errno);
  struct stat info {};
  int code = ::fstat(fd_.get(), &info) == 0 ? 0 : errno;
  char byte = 0;
  bool grows = info.st_size == 0 && ::pread(fd_.get(), &byte, 1, 0) > 0;
  if (code == 0 && state_of(info) == listed && !grows) return;
  if (code == 0 && state_of(info) == listed) {
    throw Error(Status::kInvalid,
                fmt::format("expected a file of the size its folder tells, found {} with content "
                            "but size 0, as files of the system have; copy it and name the copy",
                            path.string()));
  }
  if (code != 0) fail_errno("read", path, code);
  fail_changed(path);
}

void InputReader::read(int64_t begin, int64_t end, std::string& bytes) const {
  FASTLLM_ASSERT(begin >= 0 && begin <= end);
  size_t at = bytes.size();
  bytes.resize(at + size_t(end - begin));
  while (begin < end) {
    ssize_t count = ::pread(fd_.get(), bytes.data() + at, size_t(end - begin), begin);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_errno("read", path_, errno);
    if (count == 0) fail_changed(path_);
    begin += count;
    at += size_t(count);
  }
}

}  // namespace fastllm::data
