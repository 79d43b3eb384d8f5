// manifest.json beside a checkpoint's files: name, size and SHA-256 of each, written before the
// checkpoint gets its name. Readers of the reference open files by name and do not mind it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fastllm::checkpoint {

constexpr const char* kManifestName = "manifest.json";
constexpr const char* kOkName = "ok";

struct ManifestEntry {
  std::string name;  // relative to the checkpoint, never above it
  uint64_t bytes = 0;
  std::string sha256;
};

// Of all regular files in the folder, names ascending.
std::vector<ManifestEntry> make_manifest(const std::filesystem::path& directory);
std::string manifest_text(const std::vector<ManifestEntry>& entries);
// nullopt: there is none. Damaged: Error.
std::optional<std::vector<ManifestEntry>> read_manifest(const std::filesystem::path& directory);
// Compares the checksum of every file that is this part's of so many; Error names the first that
// differs.
void verify_checksums(const std::filesystem::path& directory,
                      const std::vector<ManifestEntry>& entries, int part = 0, int parts = 1);

}  // namespace fastllm::checkpoint
