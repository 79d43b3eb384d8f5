// Which saves stay (docs/compatibility.md). Only complete, integer-named saves are
// ever considered; what a rule does not name is never deleted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "core/base/interval.hpp"

namespace fastllm::checkpoint {

struct Retention {
  // That saves are due at. With saves by time, one off the iterations may be one of them, so it
  // counts for `keep` like the others.
  Interval when;
  std::optional<int64_t> keep;  // the newest that many stay; null: all
  std::optional<int64_t>
      keep_every;  // each save with count % keep_every == 0 stays for good, on top of `keep`

  // Interval::count for saves on the interval, else 0.
  int64_t count(int64_t iteration) const;
};

// Of these saves (any order), those to delete, ascending. keep or keep_every below 1: Error.
std::vector<int64_t> to_delete(const Retention& retention, std::vector<int64_t> saved);

// Deletes them below `base`, by way of `aside` (a folder of the same file system) so that a
// half-deleted save never bears a number. Failures only warn.
void apply(const Retention& retention, const std::filesystem::path& base,
           const std::filesystem::path& aside) noexcept;

}  // namespace fastllm::checkpoint
