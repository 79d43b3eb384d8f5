// manifest.json: made from a folder, read as something anyone may have edited, compared with disk.
#include "core/checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Inside the checkpoint: no absolute name, no "..".
bool stays_inside(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && path.is_relative() &&
         std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
}

}  // namespace

std::vector<ManifestEntry> make_manifest(const fs::path& directory) {
  std::vector<ManifestEntry> entries;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    entries.push_back({entry.path().lexically_relative(directory).generic_string(),
                       entry.file_size(), sha256_file_hex(entry.path())});
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

std::string manifest_text(const std::vector<ManifestEntry>& entries) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const ManifestEntry& entry : entries)
    files.push_back({{"name", entry.name}, {"bytes", entry.bytes}, {"sha256", entry.sha256}});
  return nlohmann::ordered_json({{"version", 1}, {"files", files}}).dump(1) + "\n";
}

std::optional<std::vector<ManifestEntry>> read_manifest(const fs::path& directory) {
  const fs::path path = directory / kManifestName;
  if (!path_exists(path)) return std::nullopt;
  const json manifest =
      json::parse(read_file(path, uint64_t(64) << 20), nullptr, /*allow_exceptions=*/false);
  auto damaged = [&](const std::string& what) -> Error {
    return Error(Status::kDataLoss,
                 fmt::format("expected {} in {}, found something else; the file is damaged", what,
                             path.string()));
  };
  if (!manifest.is_object() || !manifest.contains("files") || !manifest["files"].is_array())
    throw damaged("a list of files");
  std::vector<ManifestEntry> entries;
  for (const json& file : manifest["files"]) {
    if (!file.is_object() || !file.contains("name") || !file["name"].is_string() ||
        !file.contains("bytes") || !file["bytes"].is_number_unsigned() ||
        !file.contains("sha256") || !file["sha256"].is_string()) {
      throw damaged("name, bytes and sha256 of each file");
    }
    entries.push_back({file["name"], file["bytes"], file["sha256"]});
    if (!stays_inside(entries.back().name)) throw damaged("names inside the checkpoint");
  }
  return entries;
}

void verify_checksums(const fs::path& directory, const std::vector<ManifestEntry>& entries,
                      int part, int parts) {
  for (size_t i = size_t(part); i < entries.size(); i += size_t(parts)) {
    const ManifestEntry& entry = entries[i];
    const std::string found = sha256_file_hex(directory / entry.name);
    if (found == entry.sha256) continue;
    throw Error(Status::kDataLoss,
                fmt::format("expected SHA-256 {} of {}, found {}; the file changed after it was "
                            "saved: copy it again, or "
                            "move the checkpoint away to go on from an older one",
                            entry.sha256, (directory / entry.name).string(), found));
  }
}

}  // namespace fastllm::checkpoint
