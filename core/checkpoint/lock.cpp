// flock() without waiting. File systems that have no locks are let through with a warning: a run on
// them beats no run.
#include "core/checkpoint/lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"

namespace fastllm::checkpoint {

ExperimentLock::ExperimentLock(const std::filesystem::path& experiment_dir) {
  make_directories(experiment_dir);
  const std::filesystem::path path = experiment_dir / ".lock";
  // Close-on-exec: a callback script that outlives us must not hold the lock.
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd_ < 0)
    throw Error(Status::kUnavailable,
                fmt::format("cannot write {}: {}; give this run another run.experiment_dir",
                            path.string(), errno_text(errno)));
  char text[256] = {};
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    const ssize_t n = ::pread(fd_, text, sizeof text - 1, 0);
    std::string holder(text, size_t(n > 0 ? n : 0));
    while (!holder.empty() && (holder.back() == '\n' || holder.back() == '\0')) holder.pop_back();
    ::close(fd_);
    if (code == EWOULDBLOCK) {
      throw Error(
          Status::kUnavailable,
          fmt::format(
              "expected no other run on {}, found one alive ({}); wait for it, or give this run "
              "another run.experiment_dir",
              experiment_dir.string(), holder.empty() ? "process unknown" : holder));
    }
    if (code != ENOLCK && code != EOPNOTSUPP) {
      throw Error(Status::kUnavailable,
                  fmt::format("cannot lock {}: {}; give this run another run.experiment_dir",
                              path.string(), errno_text(code)));
    }
    fd_ = -1;
    log::warning(fmt::format("Cannot lock {} ({}): nothing stops a second run on this folder",
                             path.string(), errno_text(code)));
    return;
  }
  char host[128] = "unknown";
  ::gethostname(host, sizeof host - 1);
  const std::string holder = fmt::format("process {} on host {}\n", ::getpid(), host);
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, holder.data(), holder.size(), 0) < 0) {
    // The name is a courtesy to whoever is refused; the lock itself is held.
    log::warning(fmt::format("Cannot write {}: {}", path.string(), errno_text(errno)));
  }
}

ExperimentLock::~ExperimentLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace fastllm::checkpoint
