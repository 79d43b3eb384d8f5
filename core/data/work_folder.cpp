// The folder aside has this process's number in its name; publishing is one rename or exchange.
#include "core/data/work_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

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
  for (const auto& entry : list_folder(parent_of(target_))) {
    if (entry.path().filename().string().starts_with(prefix)) leftovers_.push_back(entry.path());
  }
  work_ = parent_of(target_) / fmt::format("{}{}", prefix, ::getpid());
  std::error_code code;
  fs::remove_all(work_, code);  // of an earlier process with our number
  if (!code) fs::create_directory(work_, code);
  if (code) {
    throw Error(Status::kUnavailable,
                fmt::format("cannot make the folder {}: {}", work_.string(), code.message()));
  }
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  if (!published_) fs::remove_all(work_, ignored);
}

void WorkFolder::publish() {
  auto fail_errno = [&](int code) {
    throw Error(Status::kUnavailable,
                fmt::format("cannot put {} in its place {}: {}", work_.string(), target_.string(),
                            errno_text(code)));
  };
  sync_path(work_);
  if (path_exists(target_) && !is_empty_folder(target_)) {
    if (!overwrite_) fail_errno(EEXIST);  // came to be meanwhile
    // One step, so that there is an output under the name at any moment; the old one is removed
    // under the other name.
    if (::renameat2(AT_FDCWD, work_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0)
      fail_errno(errno);
    published_ = true;
    sync_path(parent_of(target_));
    std::error_code ignored;
    fs::remove_all(work_, ignored);
    return;
  }
  if (::rename(work_.c_str(), target_.c_str()) != 0) fail_errno(errno);
  published_ = true;
  sync_path(parent_of(target_));
}

}  // namespace fastllm::data
