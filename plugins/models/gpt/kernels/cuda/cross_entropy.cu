// A block a row of logits. Maximum and sum of exponentials come from one read, each thread keeping
// both of what it has seen (Milakov & Gimelshein, "Online normalizer calculation for softmax", 2018);
// the gradient is a second one. Threads add a few hundred numbers each, and the block adds those in
// double, so long rows lose no digit. Losses are kept by row and added in a fixed order, in double.
#include <cmath>

#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kThreads = 1024, kAddThreads = 256;

template <class Element, int kCount, class Visit>
__device__ inline void each_pack(const Element* row, int64_t columns, Visit&& visit) {
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < columns;
       at += int64_t(blockDim.x) * kCount) {
    float values[kCount];
    load<kCount>(row + at, values);
    visit(at, values);
  }
}
template <int kCount>
__device__ inline float largest(const float (&values)[kCount], float maximum) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) maximum = Larger()(values[i], maximum);
  return maximum;
}
template <class Element, int kCount>
__device__ inline void fill_zero(Element* row, int64_t columns) {
  const float zeros[kCount] = {};
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < columns; at += int64_t(blockDim.x) * kCount)
    store<kCount>(row + at, zeros);
}
// The gradient of a row from its exponentials: exponential * share, less the label's part.
__device__ inline float share_of(const LossFactors& factors, double z, double sum) {
  return float((factors.cross_entropy + 2 * factors.z * z) / sum);
}

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void whole_rows(const Element* logits_all,
                                                       const int64_t* labels, int64_t vocabulary,
                                                       LossFactors factors, Element* gradient_all,
                                                       LossSums* losses) {
  const int64_t row = blockIdx.x, label = labels[row];
  const Element* const logits = logits_all + row * vocabulary;
  Element* const gradient = gradient_all ? gradient_all + row * vocabulary : nullptr;
  if (label == kNoLabel) {
    if (threadIdx.x == 0) losses[row] = {};
    if (gradient) fill_zero<Element, kCount>(gradient, vocabulary);
    return;
  }
  const float target = to_float(logits[label]);  // before a gradient takes its place
  float maximum = -INFINITY, sum = 0;
  each_pack<Element, kCount>(logits, vocabulary, [&](int64_t, const float(&values)[kCount]) {
    const float larger = largest<kCount>(values, maximum);
    if (larger > maximum) {
      sum *= expf(maximum - larger);
      maximum = larger;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += expf(values[i] - maximum);
  });
  const float of_row = over_block(maximum, Larger(), -INFINITY);
  // A thread without a column has a sum of 0, and no maximum to compare.
  const double all = block_sum(double(sum == 0 ? 0.0f : sum * expf(maximum - of_row)));
  const double z = log(all) + double(of_row);
  if (threadIdx.x == 0) losses[row] = {z - double(target), z * z};
  if (!gradient) return;
  const float share = share_of(factors, z, all), of_label = float(factors.cross_entropy);
  each_pack<Element, kCount>(logits, vocabulary, [&](int64_t at, const float(&values)[kCount]) {
    float result[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      result[i] = expf(values[i] - of_row) * share - (at + i == label ? of_label : 0.0f);
    store<kCount>(gradient + at, result);
  });
}

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void maxima(const Element* logits, OwnColumns own,
                                                   float* maximum_out) {
  float maximum = -INFINITY;
  each_pack<Element, kCount>(
      logits + int64_t(blockIdx.x) * own.columns, own.columns,
      [&](int64_t, const float(&values)[kCount]) { maximum = largest<kCount>(values, maximum); });
  maximum = over_block(maximum, Larger(), -INFINITY);
  if (threadIdx.x == 0) maximum_out[blockIdx.x] = maximum;
}

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void exponentials_of(const Element* logits_all,
                                                            const int64_t* labels, OwnColumns own,
                                                            const float* maximum_all,
                                                            Element* exponentials, float* sums) {
  const int64_t row = blockIdx.x, column = labels[row] - own.first;
  const Element* const logits = logits_all + row * own.columns;
  Element* const to = exponentials ? exponentials + row * own.columns : nullptr;
  if (threadIdx.x == 0) {
    const bool here = labels[row] != kNoLabel && column >= 0 && column < own.columns;
    sums[2 * row + 1] = here ? to_float(logits[column]) : 0.0f;
  }
  __syncthreads();  // before an exponential takes that logit's place
  const float maximum = maximum_all[row];
  float sum = 0;
  each_pack<Element, kCount>(logits, own.columns, [&](int64_t at, const float(&values)[kCount]) {
    float result[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += result[i] = expf(values[i] - maximum);
    if (to) store<kCount>(to + at, result);
  });
  const double all = block_sum(double(sum));
  if (threadIdx.x == 0) sums[2 * row] = float(all);
}

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void rows_of_sums(const int64_t* labels, OwnColumns own,
                                                         const float* maximum, const float* sums,
                                                         LossFactors factors, Element* gradient_all,
                                                         LossSums* losses) {
  const int64_t row = blockIdx.x, label = labels[row];
  Element* const gradient = gradient_all ? gradient_all + row * own.columns : nullptr;
  if (label == kNoLabel) {
    if (threadIdx.x == 0) losses[row] = {};
    if (gradient) fill_zero<Element, kCount>(gradient, own.columns);
    return;
  }
  const double sum = double(sums[2 * row]), z = log(sum) + double(maximum[row]);
  if (threadIdx.x == 0) losses[row] = {z - double(sums[2 * row + 1]), z * z};
  if (!gradient) return;
  const float share = share_of(factors, z, sum), of_label = float(factors.cross_entropy);
  const int64_t column = label - own.first;
  each_pack<Element, kCount>(gradient, own.columns, [&](int64_t at, const float(&values)[kCount]) {
    float result[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      result[i] = values[i] * share - (at + i == column ? of_label : 0.0f);
    store<kCount>(gradient + at, result);
  });
}

__global__ __launch_bounds__(kAddThreads) void add_losses(const LossSums* rows, int64_t count,
                                                          LossSums* out) {
  double cross_entropy = 0, z = 0;
  for (int64_t row = threadIdx.x; row < count; row += kAddThreads) {
    cross_entropy += rows[row].cross_entropy;
    z += rows[row].z;
  }
  cross_entropy = block_sum(cross_entropy);
  z = block_sum(z);
  if (threadIdx.x == 0) *out = {cross_entropy, z};
}
void launch_add_losses(const LossSums* rows, int64_t count, LossSums* out, cudaStream_t stream) {
  add_losses<<<1, kAddThreads, 0, stream>>>(rows, count, out);
  check_launch("cross_entropy");
}

}  // namespace

template <class Element>
void cross_entropy(const Element* logits, const int64_t* labels, int64_t rows, int64_t vocabulary,
                   const LossFactors& factors, Element* gradient, LossSums* losses,
                   LossSums* scratch, cudaStream_t stream) {
  if (rows > 0)
    with_packs<Element>(packable<Element>({logits, gradient}, {vocabulary}), [&](auto pack) {
      constexpr int kCount = decltype(pack)::value;
      whole_rows<Element, kCount>
          <<<unsigned(rows), threads_for(vocabulary, kCount, kThreads), 0, stream>>>(
              logits, labels, vocabulary, factors, gradient, scratch);
      check_launch("cross_entropy");
    });
  launch_add_losses(scratch, rows, losses, stream);
}

template <class Element>
void row_maxima(const Element* logits, const OwnColumns& own, float* maximum, cudaStream_t stream) {
  if (own.rows == 0) return;
  with_packs<Element>(packable<Element>({logits}, {own.columns}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    maxima<Element, kCount>
        <<<unsigned(own.rows), threads_for(own.columns, kCount, kThreads), 0, stream>>>(logits, own,
                                                                                        maximum);
    check_launch("row_maxima");
  });
}

template <class Element>
void row_sums(const Element* logits, const int64_t* labels, const OwnColumns& own,
              const float* maximum, Element* exponentials, float* sums, cudaStream_t stream) {
  if (own.rows == 0) return;
  with_packs<Element>(packable<Element>({logits, exponentials}, {own.columns}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    exponentials_of<Element, kCount>
        <<<unsigned(own.rows), threads_for(own.columns, kCount, kThreads), 0, stream>>>(
            logits, labels, own, maximum, exponentials, sums);
    check_launch("row_sums");
  });
}

template <class Element>
void cross_entropy_of_sums(const int64_t* labels, const OwnColumns& own, const float* maximum,
                           const float* sums, const LossFactors& factors, Element* gradient,
                           LossSums* losses, LossSums* scratch, cudaStream_t stream) {
  if (own.rows > 0)
    with_packs<Element>(packable<Element>({gradient}, {own.columns}), [&](auto pack) {
      constexpr int kCount = decltype(pack)::value;
      rows_of_sums<Element, kCount>
          <<<unsigned(own.rows), threads_for(own.columns, kCount, kThreads), 0, stream>>>(
              labels, own, maximum, sums, factors, gradient, scratch);
      check_launch("cross_entropy_of_sums");
    });
  launch_add_losses(scratch, own.rows, losses, stream);
}

#define INSTANTIATE(Element)                                                                       \
  template void cross_entropy<Element>(const Element*, const int64_t*, int64_t, int64_t,           \
                                       const LossFactors&, Element*, LossSums*, LossSums*,         \
                                       cudaStream_t);                                              \
  template void row_maxima<Element>(const Element*, const OwnColumns&, float*, cudaStream_t);      \
  template void row_sums<Element>(const Element*, const int64_t*, const OwnColumns&, const float*, \
                                  Element*, float*, cudaStream_t);                                 \
  template void cross_entropy_of_sums<Element>(const int64_t*, const OwnColumns&, const float*,    \
                                               const float*, const LossFactors&, Element*,         \
                                               LossSums*, LossSums*, cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
