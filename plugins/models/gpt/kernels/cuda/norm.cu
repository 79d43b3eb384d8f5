// A block a row. The row stays in registers, so statistics and result cost one read: mean, then the
// squares about it, in two passes over registers, which loses no digits. Layer norm: Ba, Kiros &
// Hinton 2016; RMS norm: Zhang & Sennrich 2019.
//
// In backward a block takes a piece of rows of fixed length and sums their part of the weights'
// gradients on the way; parts are then summed in order (row_sum.cu).
#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kForwardThreads = 1024, kForwardKept = 4;
constexpr int kBackwardThreads = 512, kBackwardKept = 2;
constexpr int64_t kRowsABlock = 32;  // in backward
int64_t blocks_of(int64_t rows) { return (rows + kRowsABlock - 1) / kRowsABlock; }

template <class Element, int kCount>
__global__ __launch_bounds__(kForwardThreads) void forward(NormShape shape, const Element* x,
                                                           const Element* weight,
                                                           const Element* bias, Element* y,
                                                           float* mean_out, float* inverse_out) {
  const int64_t row = blockIdx.x;
  const int columns = int(shape.columns);
  const Row<Element, kCount, kForwardKept> values(x + shape.x_at(row), columns);
  float mean = 0;
  if (shape.centered) {
    values.each([&](int, const float(&some)[kCount], int) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) mean += some[i];
    });
    mean = block_sum(mean) / float(columns);
  }
  float square = 0;
  values.each([&](int, const float(&some)[kCount], int) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) square += (some[i] - mean) * (some[i] - mean);
  });
  const float inverse = 1.0f / sqrtf(block_sum(square) / float(columns) + shape.epsilon);
  Element* const to = y + shape.y_at(row);
  values.each([&](int column, const float(&some)[kCount], int) {
    float w[kCount], b[kCount] = {}, result[kCount];
    load<kCount>(weight + column, w);
    if (bias) load<kCount>(bias + column, b);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      result[i] = (some[i] - mean) * inverse * (w[i] + shape.offset) + b[i];
    store<kCount>(to + column, result);
  });
  if (threadIdx.x == 0) {
    if (mean_out) mean_out[row] = mean;
    inverse_out[row] = inverse;
  }
}

// What a block adds to over its rows: registers for the packs that rows keep, and memory, where each
// place belongs to one thread, for those of longer rows.
template <int kCount>
class ColumnSums {
 public:
  __device__ ColumnSums(float* out, int columns) : out_(out) {
    if (!out_) return;
    for (int at = int(blockDim.x) * kCount * kBackwardKept + int(threadIdx.x) * kCount;
         at < columns; at += int(blockDim.x) * kCount)
      for (int i = 0; i < kCount; ++i) out_[at + i] = 0;
  }
  __device__ bool wanted() const { return out_ != nullptr; }
  __device__ void add(int column, int k, const float (&values)[kCount]) {
    if (k < kBackwardKept) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums_[k][i] += values[i];
    } else {
      for (int i = 0; i < kCount; ++i) out_[column + i] += values[i];
    }
  }
  __device__ void finish(int columns) {
    if (!out_) return;
#pragma unroll
    for (int k = 0; k < kBackwardKept; ++k) {
      const int at = (k * int(blockDim.x) + int(threadIdx.x)) * kCount;
      if (at < columns) store<kCount>(out_ + at, sums_[k]);
    }
  }

 private:
  float* out_;
  float sums_[kBackwardKept][kCount] = {};
};

// As on the processor: dx = inverse * (g - mean(g) - x_hat * mean(g x_hat)), g = dy * (weight +
// offset).
template <class Element, int kCount>
__global__ __launch_bounds__(kBackwardThreads) void backward(
    NormShape shape, const Element* x_all, const Element* weight, const float* mean_all,
    const float* inverse_all, const Element* dy_all, Element* dx_all, const Element* residual_all,
    float* d_weight, float* d_bias) {
  const int columns = int(shape.columns);
  const int64_t part = int64_t(blockIdx.x) * columns;
  ColumnSums<kCount> weight_sums(d_weight ? d_weight + part : nullptr, columns);
  ColumnSums<kCount> bias_sums(d_bias ? d_bias + part : nullptr, columns);
  const int64_t begin = int64_t(blockIdx.x) * kRowsABlock;
  const int64_t end = min(begin + kRowsABlock, shape.rows);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at_y = shape.y_at(row);
    const Row<Element, kCount, kBackwardKept> x(x_all + shape.x_at(row), columns),
        dy(dy_all + at_y, columns);
    const float mean = mean_all ? mean_all[row] : 0.0f, inverse = inverse_all[row];
    float sum = 0, dot = 0;
    x.each([&](int column, const float(&values)[kCount], int k) {
      float gradient[kCount], w[kCount], of_weight[kCount];
      dy.at(column, k, gradient);
      load<kCount>(weight + column, w);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float g = gradient[i] * (w[i] + shape.offset);
        sum += g;
        dot += g * (values[i] - mean);
        of_weight[i] = gradient[i] * ((values[i] - mean) * inverse);
      }
      if (weight_sums.wanted()) weight_sums.add(column, k, of_weight);
      if (bias_sums.wanted()) bias_sums.add(column, k, gradient);
    });
    if (!dx_all) continue;
    const float along = block_sum(dot) * inverse * inverse / float(columns);
    const float shift = shape.centered ? block_sum(sum) / float(columns) : 0.0f;
    x.each([&](int column, const float(&values)[kCount], int k) {
      float gradient[kCount], w[kCount], result[kCount] = {};
      dy.at(column, k, gradient);
      load<kCount>(weight + column, w);
      if (residual_all) load<kCount>(residual_all + at_y + column, result);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        result[i] +=
            inverse * (gradient[i] * (w[i] + shape.offset) - shift - (values[i] - mean) * along);
      store<kCount>(dx_all + at_y + column, result);
    });
  }
  weight_sums.finish(columns);
  bias_sums.finish(columns);
}

template <class Element>
bool rows_packable(const NormShape& shape, std::initializer_list<const void*> pointers) {
  return packable<Element>(pointers, {shape.columns, shape.x_stride, shape.y_stride});
}

}  // namespace

template <class Element>
void norm_forward(const NormShape& shape, const Element* x, const Element* weight,
                  const Element* bias, Element* y, float* mean, float* inverse,
                  cudaStream_t stream) {
  if (shape.rows == 0) return;
  with_packs<Element>(rows_packable<Element>(shape, {x, weight, bias, y}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    const int threads = threads_for(shape.columns, kCount * kForwardKept, kForwardThreads);
    forward<Element, kCount>
        <<<unsigned(shape.rows), threads, 0, stream>>>(shape, x, weight, bias, y, mean, inverse);
    check_launch("norm_forward");
  });
}

int64_t norm_backward_scratch(const NormShape& shape) {
  const int64_t blocks = blocks_of(shape.rows);
  return 2 * blocks * shape.columns + row_sum_scratch(blocks, shape.columns);
}

template <class Element>
void norm_backward(const NormShape& shape, const Element* x, const Element* weight,
                   const float* mean, const float* inverse, const Element* dy,
                   const NormGradientsOf<Element>& gradients, float* scratch, cudaStream_t stream) {
  const int64_t blocks = blocks_of(shape.rows), part = blocks * shape.columns;
  float* const d_weight = gradients.weight ? scratch : nullptr;
  float* const d_bias = gradients.bias ? scratch + part : nullptr;
  const bool packs =
      rows_packable<Element>(shape, {x, weight, dy, gradients.x, gradients.residual, d_weight}) &&
      packable<float>({d_bias}, {});
  if (blocks > 0)
    with_packs<Element>(packs, [&](auto pack) {
      constexpr int kCount = decltype(pack)::value;
      const int threads = threads_for(shape.columns, kCount * kBackwardKept, kBackwardThreads);
      backward<Element, kCount><<<unsigned(blocks), threads, 0, stream>>>(
          shape, x, weight, mean, inverse, dy, gradients.x, gradients.residual, d_weight, d_bias);
      check_launch("norm_backward");
    });
  float* const rest = scratch + 2 * part;
  if (d_weight)
    row_sum<float>(d_weight, blocks, shape.columns, gradients.overwrite_weight, gradients.weight,
                   rest, stream);
  if (d_bias)
    row_sum<float>(d_bias, blocks, shape.columns, gradients.overwrite_bias, gradients.bias, rest,
                   stream);
}

#define INSTANTIATE(Element)                                                                   \
  template void norm_forward<Element>(const NormShape&, const Element*, const Element*,        \
                                      const Element*, Element*, float*, float*, cudaStream_t); \
  template void norm_backward<Element>(const NormShape&, const Element*, const Element*,       \
                                       const float*, const float*, const Element*,             \
                                       const NormGradientsOf<Element>&, float*, cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
