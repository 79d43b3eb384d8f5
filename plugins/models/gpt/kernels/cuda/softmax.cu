// A block a row of scores, which stays in registers: maximum, exponentials and sum cost one read and
// one write. Columns that the row does not see are read with their packs, and chosen away, since they
// may hold anything.
#include <cmath>

#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kThreads = 512, kKept = 4, kBackwardThreads = 512, kBackwardKept = 2;

// Of one row: the columns it sees, and its dropout's first number.
struct Seen {
  int begin, end;
  uint64_t number;
  __device__ Seen(const ScoreBlock& block, const Blocks& blocks, int64_t row, int64_t in_blocks)
      : begin(int(max(int64_t(0), block.diagonal + row + 1 - block.window))),
        end(int(block.diagonal + row + 1)),
        number(block.first_number + uint64_t(in_blocks) * blocks.numbers +
               uint64_t(row) * block.numbers_a_row) {}
  __device__ bool has(int column) const { return column >= begin && column < end; }
};

// Grid: rows, blocks.
template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void forward(ScoreBlock block, Blocks blocks,
                                                    Element* scores, float* maximum_out,
                                                    float* inverse_sum_out) {
  const int64_t row = blockIdx.x, in_blocks = blockIdx.y;
  Element* const to = scores + in_blocks * blocks.scores + row * block.stride;
  const Row<Element, kCount, kKept> values(to, int(block.keys));
  const Seen seen(block, blocks, row, in_blocks);
  float maximum = -INFINITY;
  values.each([&](int column, const float(&some)[kCount], int) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (seen.has(column + i)) maximum = Larger()(some[i], maximum);
  });
  maximum = over_block(maximum, Larger(), -INFINITY);
  float sum = 0;
  values.each([&](int column, const float(&some)[kCount], int) {
    float result[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool here = seen.has(column + i);
      const float e = here ? expf((some[i] - maximum) * block.scale) : 0.0f;
      sum += e;
      result[i] = here && block.dropout.active()
                      ? e * block.dropout.factor(seen.number + uint64_t(column + i))
                      : e;
    }
    store<kCount>(to + column, result);
  });
  sum = block_sum(sum);
  if (threadIdx.x == 0) {
    maximum_out[in_blocks * block.rows + row] = maximum;
    inverse_sum_out[in_blocks * block.rows + row] = 1.0f / sum;
  }
}

// As on the processor: scale * weight * (d - sum of weight * d), d the gradient of the weight before
// dropout.
template <class Element, int kCount>
__global__ __launch_bounds__(kBackwardThreads) void backward(ScoreBlock block, Blocks blocks,
                                                             const float* maxima,
                                                             const float* inverse_sums,
                                                             Element* scores, Element* d_weights) {
  const int64_t row = blockIdx.x, in_blocks = blockIdx.y;
  const int64_t at = in_blocks * blocks.scores + row * block.stride;
  const Row<Element, kCount, kBackwardKept> values(scores + at, int(block.keys)),
      gradients(d_weights + at, int(block.keys));
  const Seen seen(block, blocks, row, in_blocks);
  const float maximum = maxima[in_blocks * block.rows + row],
              inverse_sum = inverse_sums[in_blocks * block.rows + row];
  // Made again in each pass rather than kept: a few instructions against registers.
  const auto weight_of = [&](float score) {
    return expf((score - maximum) * block.scale) * inverse_sum;
  };
  const auto factor_of = [&](int column) {
    return block.dropout.active() ? block.dropout.factor(seen.number + uint64_t(column)) : 1.0f;
  };
  float sum = 0;
  values.each([&](int column, const float(&some)[kCount], int k) {
    float d[kCount];
    gradients.at(column, k, d);
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (seen.has(column + i)) sum += weight_of(some[i]) * (d[i] * factor_of(column + i));
  });
  sum = block_sum(sum);
  values.each([&](int column, const float(&some)[kCount], int k) {
    float d[kCount], weights[kCount];
    gradients.at(column, k, d);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const bool here = seen.has(column + i);
      const float weight = here ? weight_of(some[i]) : 0.0f;
      const float factor = here ? factor_of(column + i) : 0.0f;
      d[i] = here ? block.scale * weight * (d[i] * factor - sum) : 0.0f;
      weights[i] = weight * factor;
    }
    store<kCount>(scores + at + column, weights);
    store<kCount>(d_weights + at + column, d);
  });
}

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void scale_rows(int64_t width, const Element* from_all,
                                                       int64_t from_stride, const float* factors,
                                                       Element* to_all, int64_t to_stride) {
  const int64_t row = blockIdx.x;
  const float factor = factors ? factors[row] : 1.0f;
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < width; at += int64_t(blockDim.x) * kCount) {
    float values[kCount];
    load<kCount>(from_all + row * from_stride + at, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] *= factor;
    store<kCount>(to_all + row * to_stride + at, values);
  }
}

dim3 grid_of(const ScoreBlock& block, const Blocks& blocks) {
  return dim3(unsigned(block.rows), unsigned(blocks.count));
}
bool nothing(const ScoreBlock& block, const Blocks& blocks) {
  return block.rows == 0 || block.keys == 0 || blocks.count == 0;
}

}  // namespace

template <class Element>
void attention_softmax(const ScoreBlock& block, const Blocks& blocks, Element* scores,
                       const SoftmaxRows& rows, cudaStream_t stream) {
  if (nothing(block, blocks)) return;
  const bool packs = packable<Element>({scores}, {block.keys, block.stride, blocks.scores});
  with_packs<Element>(packs, [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    const int threads = threads_for(block.keys, kCount * kKept, kThreads);
    forward<Element, kCount><<<grid_of(block, blocks), threads, 0, stream>>>(
        block, blocks, scores, rows.maximum, rows.inverse_sum);
    check_launch("attention_softmax");
  });
}

template <class Element>
void attention_softmax_backward(const ScoreBlock& block, const Blocks& blocks,
                                const SoftmaxRows& rows, Element* scores, Element* d_weights,
                                cudaStream_t stream) {
  if (nothing(block, blocks)) return;
  const bool packs =
      packable<Element>({scores, d_weights}, {block.keys, block.stride, blocks.scores});
  with_packs<Element>(packs, [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    const int threads = threads_for(block.keys, kCount * kBackwardKept, kBackwardThreads);
    backward<Element, kCount><<<grid_of(block, blocks), threads, 0, stream>>>(
        block, blocks, rows.maximum, rows.inverse_sum, scores, d_weights);
    check_launch("attention_softmax_backward");
  });
}

template <class Element>
void store_rows(int64_t rows, int64_t width, const Element* from, int64_t from_stride,
                const float* factors, Element* to, int64_t to_stride, cudaStream_t stream) {
  if (rows == 0 || width == 0) return;
  with_packs<Element>(packable<Element>({from, to}, {width, from_stride, to_stride}),
                      [&](auto pack) {
                        constexpr int kCount = decltype(pack)::value;
                        scale_rows<Element, kCount>
                            <<<unsigned(rows), threads_for(width, kCount, kThreads), 0, stream>>>(
                                width, from, from_stride, factors, to, to_stride);
                        check_launch("store_rows");
                      });
}

#define INSTANTIATE(Element)                                                                   \
  template void attention_softmax<Element>(const ScoreBlock&, const Blocks&, Element*,         \
                                           const SoftmaxRows&, cudaStream_t);                  \
  template void attention_softmax_backward<Element>(                                           \
      const ScoreBlock&, const Blocks&, const SoftmaxRows&, Element*, Element*, cudaStream_t); \
  template void store_rows<Element>(int64_t, int64_t, const Element*, int64_t, const float*,   \
                                    Element*, int64_t, cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
