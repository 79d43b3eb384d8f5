// Which checkpoints a folder holds. The entries on disk decide, numbers compare as numbers, and
// what is no checkpoint (lost+found, notes, hidden folders) is left alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fastllm::checkpoint {

struct Found {
  int64_t iteration = 0;
  std::filesystem::path path;
};
struct Incomplete : Found {
  std::string lacks;  // "ok (the mark of a finished save); it holds rank_0.safetensors"
};
struct Scan {
  std::vector<Found> complete;         // ascending
  std::vector<Incomplete> incomplete;  // ascending
};

// A folder that is not there holds nothing.
Scan scan(const std::filesystem::path& base);

// "": a finished save whose files are all there with the sizes its manifest says (a checkpoint of
// the reference has no manifest; then its mark is believed). Reads no data.
std::string what_it_lacks(const std::filesystem::path& checkpoint);

// The newest complete one. Warns once about each newer one that is incomplete. Nothing there:
// nullopt. Only incomplete ones there: Error, since going on would quietly start from scratch.
std::optional<Found> find_latest(const std::filesystem::path& base);

}  // namespace fastllm::checkpoint
