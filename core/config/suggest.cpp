// The candidate at the smallest edit distance, if that is small enough.
#include "core/config/suggest.hpp"

#include <algorithm>
#include <numeric>

namespace fastllm::config {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);  // distances of a's prefix so far to every prefix of b
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j + 1] + 1, row[j] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr size_t kMostEdits = 2;
  if (name.size() > 200) return "";
  std::string best;
  size_t best_distance = kMostEdits + 1;
  for (const std::string& candidate : candidates) {
    size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance || distance >= std::max(name.size(), candidate.size())) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

}  // namespace fastllm::config
