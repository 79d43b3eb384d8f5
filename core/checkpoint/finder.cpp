// Scans a folder of checkpoints and judges each by its mark and its manifest's sizes.
#include "core/checkpoint/finder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/checkpoint/manifest.hpp"

namespace fastllm::checkpoint {
namespace {

namespace fs = std::filesystem;

// "20" -> 20; "0020", "20x", "-1", "lost+found": not the name of a save.
std::optional<int64_t> iteration_of(const std::string& name) {
  int64_t value = 0;
  auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), value);
  const bool canonical = code == std::errc() && end == name.data() + name.size() &&
                         std::to_string(value) == name && value >= 0;
  return canonical ? std::optional(value) : std::nullopt;
}

// Links are followed. Not being allowed to look is an error, not "no".
bool is(fs::file_type type, const fs::path& path) {
  std::error_code vanished;
  return path_exists(path) && fs::status(path, vanished).type() == type;
}

std::string content_of(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : list_folder(directory))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  if (names.empty()) return "it is empty";
  const size_t shown = std::min<size_t>(names.size(), 8);
  std::string text =
      fmt::format("it holds {}", fmt::join(names.begin(), names.begin() + ptrdiff_t(shown), ", "));
  return names.size() > shown ? fmt::format("{} and {} more", text, names.size() - shown) : text;
}

}  // namespace

std::string what_it_lacks(const fs::path& checkpoint) {
  std::vector<std::string> lacks;
  if (!is(fs::file_type::regular, checkpoint / kOkName))
    lacks.push_back("ok (the mark of a finished save)");
  try {
    const auto manifest = read_manifest(checkpoint);
    // The reference writes none: such a folder counts when it holds what every checkpoint begins with.
    if (!manifest && !is(fs::file_type::regular, checkpoint / "metadata.yaml"))
      lacks.push_back(fmt::format("{} and metadata.yaml", kManifestName));
    for (const ManifestEntry& entry : manifest.value_or(std::vector<ManifestEntry>())) {
      std::error_code code;
      const uint64_t bytes = fs::file_size(checkpoint / entry.name, code);
      if (code) {
        lacks.push_back(entry.name);
      } else if (bytes != entry.bytes) {
        lacks.push_back(fmt::format("a whole {} ({} of {} bytes)", entry.name, bytes, entry.bytes));
      }
    }
  } catch (const Error& e) {
    lacks.push_back(fmt::format("a readable {}", kManifestName));
  }
  return lacks.empty() ? "" : fmt::format("{}; {}", fmt::join(lacks, ", "), content_of(checkpoint));
}

Scan scan(const fs::path& base) try {
  Scan result;
  if (!path_exists(base)) return result;
  for (const auto& entry : list_folder(base)) {
    const fs::path& path = entry.path();
    const auto iteration = iteration_of(path.filename().string());
    if (!iteration || !is(fs::file_type::directory, path)) continue;
    std::string lacks = what_it_lacks(path);
    if (lacks.empty()) {
      result.complete.push_back({*iteration, path});
    } else {
      result.incomplete.push_back({{*iteration, path}, std::move(lacks)});
    }
  }
  auto ascending = [](const Found& a, const Found& b) { return a.iteration < b.iteration; };
  std::sort(result.complete.begin(), result.complete.end(), ascending);
  std::sort(result.incomplete.begin(), result.incomplete.end(), ascending);
  return result;
} catch (const Error& e) {
  throw Error(e.status(), fmt::format("{}; make it readable, move it away, or choose another "
                                      "run.experiment_dir",
                                      e.what()));
}

std::optional<Found> find_latest(const fs::path& base) {
  const Scan found = scan(base);
  if (found.complete.empty() && found.incomplete.empty()) return std::nullopt;
  if (found.complete.empty()) {
    const Incomplete& last = found.incomplete.back();
    throw Error(Status::kDataLoss, fmt::format("expected a complete checkpoint in {}, found only "
                                               "incomplete ones: {} lacks {}; remove them to "
                                               "start from scratch, or complete them",
                                               base.string(), last.iteration, last.lacks));
  }
  for (const Incomplete& broken : found.incomplete) {
    if (broken.iteration <= found.complete.back().iteration) continue;
    log::warning(fmt::format("Checkpoint {} is incomplete and is not used: it lacks {}",
                             broken.path.string(), broken.lacks));
  }
  return found.complete.back();
}

}  // namespace fastllm::checkpoint
