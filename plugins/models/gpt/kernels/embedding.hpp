// Rows of a table by index, and their gradient.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

// out [count, width] (=|+=) table[index].
void gather_rows(const float* table, const int64_t* indices, int64_t count, int64_t width, bool add,
                 float* out);
// table[index] += rows [count, width], in order of the rows.
void scatter_rows(const float* rows, const int64_t* indices, int64_t count, int64_t width,
                  float* table);

}  // namespace fastllm::gpt
