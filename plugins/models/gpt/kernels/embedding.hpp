// Rows of tables by index, added and dropped out, and the gradient of one table.
#pragma once

#include <cstdint>

#include "kernels/random.hpp"

namespace fastllm::gpt {

struct TableRows {
  const float* table;      // [any, width]; null: no such table
  const int64_t* indices;  // [count]
};

// out [count, width] = (first[index] + second[index]) * dropout's factors.
void gather_rows(const TableRows& first, const TableRows& second, int64_t count, int64_t width,
                 const Dropout& dropout, float* out);
// table[index] += rows [count, width] * dropout's factors, in order of the rows.
void scatter_rows(const float* rows, const int64_t* indices, int64_t count, int64_t width,
                  const Dropout& dropout, float* table);

}  // namespace fastllm::gpt
