// Ratios become boundaries between documents; then the definition of each split is written as YAML.
#include "core/data/prepare/splits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.hpp"

namespace fastllm::data {
namespace {

int64_t sum(std::span<const int32_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(0));
}

// Shortest text that reads back as the same number, and as a float to every YAML reader:
// 0.75, 1.0, 1.0e-07.
std::string yaml_float(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find('.') != std::string::npos) return text;
  size_t exponent = text.find('e');
  return exponent == std::string::npos ? text + ".0" : text.insert(exponent, ".0");
}

std::string indented(const std::string& text, const std::string& first, const std::string& others) {
  std::string result = first;
  for (size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) result += others;
  }
  return result;
}

std::string piece_yaml(const ShardSizes& shard, const SplitPiece& piece) {
  auto count = int64_t(shard.sizes.size());
  std::string memmap = fmt::format("type: memmap\npath: {}\nnum_documents: {}\nnum_tokens: {}\n",
                                   shard.path, count, sum(shard.sizes));
  if (piece.first == 0 && piece.last == count) return memmap;
  return fmt::format("type: slice\ndataset:\n{}begin: {}\nend: {}\n", indented(memmap, "  ", "  "),
                     yaml_float(double(piece.first) / double(count)),
                     yaml_float(double(piece.last) / double(count)));
}

}  // namespace

int64_t nearest_boundary(std::span<const int32_t> sizes, double tokens) {
  int64_t before = 0;
  for (size_t document = 0; document < sizes.size(); ++document) {
    int64_t after = before + sizes[document];
    if (double(after) > tokens) {
      bool later = (tokens - double(before)) / double(after - before) > 0.5;
      return int64_t(document) + (later ? 1 : 0);
    }
    before = after;
  }
  return int64_t(sizes.size());
}

void check_split_ratios(const std::vector<double>& ratios) {
  const double total = std::accumulate(ratios.begin(), ratios.end(), 0.0);
  const bool legal = total > 0 && std::isfinite(total) &&
                     std::all_of(ratios.begin(), ratios.end(), [](double r) { return r >= 0; });
  if (!legal) {
    throw Error(Status::kInvalid,
                fmt::format("expected split ratios from 0 up, one of them above 0, found [{}]",
                            fmt::join(ratios, ", ")));
  }
}

std::vector<std::vector<SplitPiece>> split_shards(const std::vector<ShardSizes>& shards,
                                                  const std::vector<double>& ratios) {
  check_split_ratios(ratios);
  const double total_ratio = std::accumulate(ratios.begin(), ratios.end(), 0.0);
  int64_t total = 0;
  for (const ShardSizes& shard : shards) total += sum(shard.sizes);

  std::vector<std::vector<SplitPiece>> splits(ratios.size());
  // Boundaries between shares, each decided once, so that shares neither overlap nor leave a
  // document out.
  int64_t shard_begin = 0;
  for (size_t s = 0; s < shards.size(); ++s) {
    auto count = int64_t(shards[s].sizes.size());
    int64_t shard_tokens = sum(shards[s].sizes);
    double reached = 0;
    int64_t first = 0;
    for (size_t r = 0; r < ratios.size(); ++r) {
      reached += ratios[r];
      double inside = reached / total_ratio * double(total) - double(shard_begin);
      int64_t last = 0;
      if (r + 1 == ratios.size() || inside >= double(shard_tokens)) {
        last = count;
      } else if (inside > 0) {
        last = nearest_boundary(shards[s].sizes, inside);
      }
      if (last > first) {
        int64_t tokens = sum(shards[s].sizes.subspan(size_t(first), size_t(last - first)));
        splits[r].push_back({s, first, last, tokens});
        first = last;
      }
    }
    shard_begin += shard_tokens;
  }
  return splits;
}

std::string dataset_yaml(const std::vector<ShardSizes>& shards,
                         const std::vector<SplitPiece>& pieces) {
  FASTLLM_ASSERT(!pieces.empty());
  if (pieces.size() == 1) return piece_yaml(shards[pieces[0].shard], pieces[0]);
  int64_t total = 0;
  for (const SplitPiece& piece : pieces) total += piece.tokens;
  std::string text = "type: blended\ndatasets:\n";
  for (const SplitPiece& piece : pieces)
    text += indented(piece_yaml(shards[piece.shard], piece), "- ", "  ");
  text += "weights:\n";
  for (const SplitPiece& piece : pieces) {
    text += fmt::format("- {}\n",
                        yaml_float(double(piece.tokens) / double(std::max<int64_t>(total, 1))));
  }
  return text;
}

}  // namespace fastllm::data
