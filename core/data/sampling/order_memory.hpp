// What the order of a dataset takes in memory, so that a long one is told of before it is made, one that
// cannot fit is refused, and one that did not fit is named as the cause.
#pragma once

#include <cstdint>
#include <new>
#include <string>

#include "core/base/memory_limit.hpp"

namespace fastllm::data {

// What to do about an order that is too long.
constexpr const char* kShorterOrder =
    "shuffle by epoch (data.sampling.shuffle: epoch, with the data under data.datasets), which "
    "orders a few epochs at a time, or train for fewer iterations";

struct OrderMemory {
  std::string dataset, shuffle;  // names
  int64_t documents = 0;         // of the dataset
  int64_t epochs = 1;            // in one order
  int64_t samples = 0;           // that have an order of their own: legacy alone
  int64_t runs = 1;              // orders that are there at once

  // Saturated: a product that overflows fits no memory.
  uint64_t bytes() const;
  // Warns when it is large; Error(kOutOfMemory) when it takes more than `limit` bytes.
  void announce(uint64_t limit = memory_limit()) const;
  // build(), which makes the order; out of memory: Error(kOutOfMemory) that says what for.
  template <class Build>
  auto guard(const Build& build) const {
    try {
      return build();
    } catch (const std::bad_alloc&) {
      fail_for_memory();
    }
  }

 private:
  [[noreturn]] void fail_for_memory() const;
  std::string text() const;
};

}  // namespace fastllm::data
