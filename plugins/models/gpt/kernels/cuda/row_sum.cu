// Sums over rows in two launches of one kernel: first over pieces of rows, then over the pieces.
// A warp reads neighbouring columns of one row; the warps of a block take rows in turn, and their
// sums are added in order.
#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kRowsInParallel = 8;         // warps of a block
constexpr int64_t kDeviceRowsPiece = 256;  // rows that one block sums
int64_t device_pieces(int64_t rows) { return (rows + kDeviceRowsPiece - 1) / kDeviceRowsPiece; }

// Grid: columns, pieces. out [pieces, columns] (=|+=).
template <class Element, int kCount>
__global__ __launch_bounds__(kWarp* kRowsInParallel) void sum_pieces(const Element* values,
                                                                     int64_t rows, int64_t columns,
                                                                     int64_t rows_a_piece,
                                                                     bool overwrite, float* out) {
  __shared__ float of_warps[kRowsInParallel][kWarp * kCount];
  const int64_t column = (int64_t(blockIdx.x) * kWarp + threadIdx.x) * kCount;
  const int64_t begin = int64_t(blockIdx.y) * rows_a_piece;
  const int64_t end = min(begin + rows_a_piece, rows);
  float sums[kCount] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kRowsInParallel) {
      float some[kCount];
      load<kCount>(values + row * columns + column, some);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += some[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) of_warps[threadIdx.y][threadIdx.x * kCount + i] = sums[i];
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  float* const to = out + int64_t(blockIdx.y) * columns + column;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float sum = 0;
    for (int warp = 0; warp < kRowsInParallel; ++warp)
      sum += of_warps[warp][threadIdx.x * kCount + i];
    to[i] = overwrite ? sum : to[i] + sum;
  }
}

template <class Element>
void launch(const Element* values, int64_t rows, int64_t columns, int64_t rows_a_piece,
            int64_t pieces, bool overwrite, float* out, cudaStream_t stream) {
  with_packs<Element>(packable<Element>({values}, {columns}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value, kColumns = kWarp * kCount;
    const dim3 grid(unsigned((columns + kColumns - 1) / kColumns), unsigned(pieces));
    sum_pieces<Element, kCount><<<grid, dim3(kWarp, kRowsInParallel), 0, stream>>>(
        values, rows, columns, rows_a_piece, overwrite, out);
    check_launch("row_sum");
  });
}

}  // namespace

int64_t row_sum_scratch(int64_t rows, int64_t columns) {
  const int64_t pieces = device_pieces(rows);
  return pieces > 1 ? pieces * columns + row_sum_scratch(pieces, columns) : 0;
}

template <class Element>
void row_sum(const Element* values, int64_t rows, int64_t columns, bool overwrite, float* out,
             float* scratch, cudaStream_t stream) {
  if (columns == 0) return;
  const int64_t pieces = device_pieces(rows);
  if (pieces <= 1)
    return launch(values, rows, columns, kDeviceRowsPiece, 1, overwrite, out, stream);
  // A grid has at most 65,535 pieces in this direction: 16 million rows.
  launch(values, rows, columns, kDeviceRowsPiece, pieces, true, scratch, stream);
  row_sum<float>(scratch, pieces, columns, overwrite, out, scratch + pieces * columns, stream);
}

#define INSTANTIATE(Element)                                                             \
  template void row_sum<Element>(const Element*, int64_t, int64_t, bool, float*, float*, \
                                 cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
