// Search order, ownership and permission checks, shadowing. Paths are judged as the files they
// lead to; a place that is wrong is kept, with the reason, for the report.
#include "core/plugin/discovery.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"

namespace fastllm::plugin {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kPrefix = "libfastllm_", kSuffix = ".so";

std::optional<std::string> plugin_name(const std::string& file) {
  if (file.size() <= kPrefix.size() + kSuffix.size() || !file.starts_with(kPrefix) ||
      !file.ends_with(kSuffix))
    return std::nullopt;
  return file.substr(kPrefix.size(), file.size() - kPrefix.size() - kSuffix.size());
}

// Many systems give each user a group of their own and a umask of 002: such a group adds nobody.
bool is_private_group(gid_t group) {
  if (group != ::getegid()) return false;
  const passwd* user = ::getpwuid(::geteuid());
  if (!user || user->pw_gid != group) return false;
  std::string name = user->pw_name;
  const struct group* entry = ::getgrgid(group);
  if (!entry || name != entry->gr_name) return false;
  for (char** member = entry->gr_mem; *member; ++member) {
    if (name != *member) return false;
  }
  return true;
}

bool is_below(const fs::path& path, const fs::path& root) {
  return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

// The file and the folders that hold it, up to the root (of a file elsewhere, behind a link: its
// own folder): whoever may write one of them may run code here.
std::string unsafe_part(const fs::path& real_file, const fs::path& real_root) {
  std::vector<fs::path> parts = {real_file};
  do {
    parts.push_back(parts.back().parent_path());
  } while (parts.back() != real_root && is_below(parts.back(), real_root));
  if (parts.back() != real_root) parts.push_back(real_root);
  for (const auto& part : parts) {
    struct stat info {};
    if (::stat(part.c_str(), &info) != 0)
      return fmt::format("{} cannot be examined: {}", part.string(), errno_text(errno));
    std::string reason = insecure_reason(info.st_uid, info.st_gid, info.st_mode);
    if (!reason.empty()) {
      return fmt::format(
          "{} {}; make it yours and writable by you alone (chmod go-w), or pass "
          "--allow-insecure-plugins",
          part.string(), reason);
    }
  }
  return "";
}

}  // namespace

std::string insecure_reason(uid_t owner, gid_t group, mode_t mode) {
  if (owner != 0 && owner != ::geteuid())
    return fmt::format("belongs to user {}, expected root or user {}", owner, ::geteuid());
  if (mode & S_IWOTH) return fmt::format("may be written by everyone (mode {:o})", mode & 07777);
  if ((mode & S_IWGRP) && !is_private_group(group))
    return fmt::format("may be written by group {} (mode {:o})", group, mode & 07777);
  return "";
}

std::vector<SearchPlace> search_places(const SearchOptions& options) {
  std::vector<SearchPlace> places;
  auto add = [&](const fs::path& path, const std::string& origin) {
    std::error_code code;
    SearchPlace place{path, origin, ""};
    if (!fs::is_directory(path, code)) place.problem = code ? code.message() : "not a folder";
    places.push_back(std::move(place));
  };
  for (const auto& path : options.paths) {
    std::error_code code;
    add(fs::absolute(path, code).lexically_normal(), "--plugin-path");
  }
  // A program with more rights than its user must not take code from the user's environment.
  if (const char* list = ::secure_getenv("FASTLLM_PLUGIN_PATH")) {
    std::string_view rest = list;
    while (!rest.empty()) {
      size_t colon = rest.find(':');
      std::string_view entry = rest.substr(0, colon);
      rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
      if (entry.empty()) continue;
      if (entry.front() == '/') {
        add(fs::path(entry).lexically_normal(), "FASTLLM_PLUGIN_PATH");
      } else {
        places.push_back({fs::path(entry), "FASTLLM_PLUGIN_PATH", "expected an absolute path"});
      }
    }
  }
  std::error_code code;
  fs::path program = fs::read_symlink("/proc/self/exe", code);
  if (!code)
    add((program.parent_path() / "../lib/fastllm/plugins").lexically_normal(),
        "next to the program");
  return places;
}

Candidate examine(const fs::path& path, const fs::path& root, const std::string& origin,
                  bool allow_insecure) {
  Candidate candidate;
  candidate.path = path;
  candidate.origin = origin;
  std::string file = path.filename().string();
  candidate.name = plugin_name(file).value_or(file);
  try {
    std::error_code code;
    fs::path real = fs::canonical(path, code);
    if (code) throw Error(Status::kNotFound, code.message());
    struct stat info {};
    if (::stat(real.c_str(), &info) != 0)
      throw Error(Status::kUnavailable, "cannot be examined: " + errno_text(errno));
    if (!S_ISREG(info.st_mode))
      throw Error(Status::kInvalid, "expected a regular file, found something else");
    candidate.device = info.st_dev;
    candidate.inode = info.st_ino;
    std::string unsafe = unsafe_part(real, fs::canonical(root));
    if (!unsafe.empty()) {
      if (!allow_insecure) throw Error(Status::kInvalid, unsafe);
      log::warning(fmt::format("--allow-insecure-plugins: {} is not refused although {}",
                               path.string(), unsafe));
    }
    candidate.manifest = read_manifest(real);
  } catch (const std::exception& e) {  // ours, and the filesystem's
    candidate.refused = e.what();
  }
  return candidate;
}

std::vector<Candidate> discover(const std::vector<SearchPlace>& places, bool allow_insecure) {
  std::vector<Candidate> found;
  for (const auto& place : places) {
    if (!place.problem.empty()) continue;
    std::vector<fs::path> files;
    std::error_code code;
    for (fs::directory_iterator it(place.directory, code), end; !code && it != end;
         it.increment(code)) {
      if (plugin_name(it->path().filename().string())) files.push_back(it->path());
    }
    std::sort(files.begin(), files.end());
    std::string origin = place.origin == "next to the program"
                             ? place.origin
                             : fmt::format("{} {}", place.origin, place.directory.string());
    for (const auto& file : files) {
      Candidate candidate = examine(file, place.directory, origin, allow_insecure);
      auto same = std::find_if(found.begin(), found.end(), [&](const Candidate& other) {
        return !other.shadowed && (other.name == candidate.name ||
                                   (candidate.inode != 0 && other.inode == candidate.inode &&
                                    other.device == candidate.device));
      });
      if (same != found.end()) {
        candidate.shadowed = true;
        candidate.shadowed_by = same->path.string();
      }
      found.push_back(std::move(candidate));
    }
  }
  return found;
}

}  // namespace fastllm::plugin
