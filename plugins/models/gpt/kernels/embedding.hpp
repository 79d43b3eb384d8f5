// Rows of tables by index, added and dropped out, and the gradient of one table.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/random.hpp"

namespace fastllm::gpt {

template <class Element>
struct TableRowsOf {
  const Element* table;    // [any, width]; null: no such table
  const int64_t* indices;  // [count]
  // The rows that are here: index `first` is the first of them. Others are zeros.
  int64_t first = 0, rows = std::numeric_limits<int64_t>::max();
  constexpr const Element* row(int64_t at, int64_t width) const {
    const int64_t index = indices[at] - first;
    return index >= 0 && index < rows ? table + index * width : nullptr;
  }
};
using TableRows = TableRowsOf<float>;

// out [count, width] = (first[index] + second[index]) * dropout's factors. out may be first's rows,
// each at its own place.
void gather_rows(const TableRows& first, const TableRows& second, int64_t count, int64_t width,
                 const Dropout& dropout, float* out);
// table[index - first] += rows [count, width] * dropout's factors, in order of the rows, where the
// table of `held` rows has that index.
void scatter_rows(const float* rows, const int64_t* indices, int64_t count, int64_t width,
                  const Dropout& dropout, float* table, int64_t first = 0,
                  int64_t held = std::numeric_limits<int64_t>::max());

}  // namespace fastllm::gpt
