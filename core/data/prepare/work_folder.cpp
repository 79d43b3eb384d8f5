// The folder aside has this process's number in its name, holds a marker until it is published, and
// is locked while the process lives; publishing is one rename or exchange.
#include "core/data/prepare/work_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMarker = ".fast_llm_partial";

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// "a/b/" and "a/b" name the same folder.
fs::path without_slash(const fs::path& path) {
  fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

// What is under the name itself: a link is a link. Not being allowed to look is an error.
fs::file_type type_of(const fs::path& path) {
  std::error_code code;
  fs::file_type type = fs::symlink_status(path, code).type();
  if (type == fs::file_type::none) {
    throw Error(Status::kUnavailable,
                fmt::format("cannot look at {}: {}", path.string(), code.message()));
  }
  return type;
}

bool is_empty_folder(const fs::path& path) {
  std::error_code code;
  return fs::is_directory(path, code) && list_folder(path).empty();
}

}  // namespace

bool is_work_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path / kMarker, ignored);
}

WorkFolder::WorkFolder(const fs::path& target, bool overwrite,
                       bool (*replaceable)(const std::string& name))
    : target_(without_slash(target)), overwrite_(overwrite) {
  if (target_.filename().empty() || target_.filename() == "." || target_.filename() == "..") {
    throw Error(Status::kInvalid,
                fmt::format("expected the name of a folder to make for the output, found '{}'",
                            target.string()));
  }
  fs::file_type found = type_of(target_);
  if (found != fs::file_type::not_found && !is_empty_folder(target_)) {
    if (!overwrite_) {
      throw Error(Status::kInvalid,
                  fmt::format("expected no output at {} yet, found something there; choose another "
                              "output_path, or allow overwriting it",
                              target_.string()));
    }
    if (found != fs::file_type::directory) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a folder of an earlier output at {}, found something else; "
                              "choose another output_path",
                              target_.string()));
    }
    for (const auto& entry : list_folder(target_)) {
      if (!replaceable(entry.path().filename().string())) {
        throw Error(
            Status::kInvalid,
            fmt::format("expected nothing but an earlier output in {}, found {}; overwriting "
                        "would remove it, so choose another output_path or move it",
                        target_.string(), entry.path().filename().string()));
      }
    }
  }
  make_directories(parent_of(target_));
  std::string prefix = target_.filename().string() + ".partial.";
  clear_leftovers(prefix);
  work_ = parent_of(target_) / fmt::format("{}{}", prefix, ::getpid());
  make();
}

void WorkFolder::clear_leftovers(const std::string& prefix) {
  for (const auto& entry : list_folder(parent_of(target_))) {
    std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !is_number(name.substr(prefix.size()))) continue;
    int fd = ::open(entry.path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool locked = fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    bool alive = fd >= 0 && !locked && errno == EWOULDBLOCK;
    bool ours = is_work_folder(entry.path());
    std::error_code code;
    if (locked && ours) fs::remove_all(entry.path(), code);
    if (fd >= 0) ::close(fd);
    if (alive) {
      throw Error(Status::kUnavailable,
                  fmt::format("expected no other preparation of {}, found one at work in {}; wait "
                              "for it, or choose another output_path",
                              target_.string(), entry.path().string()));
    }
    if (!ours) continue;
    if (locked && !code) {
      notes_.push_back(fmt::format("removed {}, left by a preparation that was interrupted",
                                   entry.path().string()));
    } else {
      // A file system without locks: whether its run lives is not ours to judge.
      notes_.push_back(
          fmt::format("{} was left by a preparation that was interrupted; remove it when none is "
                      "running",
                      entry.path().string()));
    }
  }
}

void WorkFolder::make() {
  // Another run that looks for leftovers may take the folder for one before it is locked.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    // One that is there already is somebody else's.
    if (::mkdir(work_.c_str(), 0777) != 0) fail_errno("make the folder", work_, errno);
    lock_ = ::open(work_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (lock_ < 0 && errno == ENOENT) continue;
    if (lock_ < 0) fail_errno("make the folder", work_, errno);
    struct stat ours {
    }, there{};
    bool locks = ::flock(lock_, LOCK_EX) == 0;  // some file systems have none
    if (!locks || (::fstat(lock_, &ours) == 0 && ::stat(work_.c_str(), &there) == 0 &&
                   ours.st_ino == there.st_ino && ours.st_dev == there.st_dev)) {
      if (!mark()) fail_errno("write to", work_, errno);
      return;
    }
    ::close(lock_);
    lock_ = -1;
  }
  throw Error(
      Status::kUnavailable,
      fmt::format("cannot make the folder {}: something removes it each time", work_.string()));
}

bool WorkFolder::mark() const {
  int fd = ::open((work_ / kMarker).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (fd >= 0) ::close(fd);
  return fd >= 0;
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!published_) fs::remove_all(work_, ignored);
  if (lock_ >= 0) ::close(lock_);
}

void WorkFolder::publish() {
  auto fail = [&](int code) {
    fail_errno(fmt::format("put {} in its place", work_.string()), target_, code);
  };
  if (::unlink((work_ / kMarker).c_str()) != 0) fail(errno);
  sync_path(work_);
  if (path_exists(target_) && !is_empty_folder(target_)) {
    if (!overwrite_) fail(EEXIST);  // came to be meanwhile
    // One step, so that there is an output under the name at any moment; the old one is removed
    // under the other name.
    if (::renameat2(AT_FDCWD, work_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0)
      fail(errno);
    published_ = true;
    sync_path(parent_of(target_));
    mark();  // the old output is the next run's to remove, should this one be killed now
    std::error_code ignored;
    fs::remove_all(work_, ignored);
    return;
  }
  if (::rename(work_.c_str(), target_.c_str()) != 0) fail(errno);
  published_ = true;
  sync_path(parent_of(target_));
}

}  // namespace fastllm::data
