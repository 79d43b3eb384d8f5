// From shards to dataset definitions: what part of which shard a split gets, and the YAML that says
// so (docs/compatibility.md). A boundary falls between the two documents nearest to it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace fastllm::data {

struct ShardSizes {
  std::string path;                // as written in the YAML, relative to it
  std::span<const int32_t> sizes;  // tokens of each document
};

struct SplitPiece {
  size_t shard = 0;
  int64_t first = 0, last = 0;  // documents [first, last) of the shard
  int64_t tokens = 0;
};

// Throws unless they are finite numbers from 0 up with a finite sum above 0.
void check_split_ratios(const std::vector<double>& ratios);

// The pieces of each share, when all tokens in order are divided by `ratios` (any scale). A share
// may get none.
std::vector<std::vector<SplitPiece>> split_shards(const std::vector<ShardSizes>& shards,
                                                  const std::vector<double>& ratios);

// The first document boundary at or after which `tokens` tokens are nearest: the number of
// documents before it.
int64_t nearest_boundary(std::span<const int32_t> sizes, double tokens);

// A dataset definition: the piece itself, or a blend of several by their tokens. At least one
// piece.
std::string dataset_yaml(const std::vector<ShardSizes>& shards,
                         const std::vector<SplitPiece>& pieces);

}  // namespace fastllm::data
