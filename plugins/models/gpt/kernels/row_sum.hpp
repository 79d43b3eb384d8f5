// Sums over rows whose bits do not depend on the number of threads: rows are cut into pieces of
// fixed length, each summed in order, and the pieces are added in order. Used for bias gradients
// here and norm weights in norm.cpp.
#pragma once

#include <cstdint>

namespace fastllm::gpt {

constexpr int64_t kRowsPerPiece = 64;
inline int64_t pieces_of(int64_t rows) { return (rows + kRowsPerPiece - 1) / kRowsPerPiece; }

// out[column] (=|+=) sum of values[row, column]; values row-major [rows, columns].
void row_sum(const float* values, int64_t rows, int64_t columns, bool overwrite, float* out);

}  // namespace fastllm::gpt
