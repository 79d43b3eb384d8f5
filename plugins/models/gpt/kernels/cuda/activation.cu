// One read and one write of each element; a block a row. Gelu in its tanh form: Hendrycks & Gimpel
// 2016; gating: Shazeer, "GLU variants improve transformer", 2020; squared relu: So et al. 2021.
#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kThreads = 256;

struct Value {
  float f, derivative;
};

// kind is the same for the whole grid: the branch costs no divergence, and no kernel of its own.
__device__ inline Value activate(Activation kind, float x) {
  const auto sigmoid = [](float v) { return 1.0f / (1.0f + expf(-v)); };
  switch (kind) {
    case Activation::kGelu: {
      constexpr float kTwoRootTwoOverPi = 1.59576912160573071f, kCubic = 0.044715f;
      const float s = sigmoid(kTwoRootTwoOverPi * (x + kCubic * x * x * x));
      return {x * s, s + x * s * (1.0f - s) * kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * x * x)};
    }
    case Activation::kSilu: {
      const float s = sigmoid(x);
      return {x * s, s + x * s * (1.0f - s)};
    }
    case Activation::kRelu:
      return {x > 0 ? x : 0.0f, x > 0 ? 1.0f : 0.0f};
    default: {
      const float positive = x > 0 ? x : 0.0f;
      return {positive * positive, 2.0f * positive};
    }
  }
}

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void forward(Activation kind, bool gated, int64_t width,
                                                    const Element* pre_all, Element* out_all) {
  const Element* const pre = pre_all + int64_t(blockIdx.x) * (gated ? 2 * width : width);
  Element* const out = out_all + int64_t(blockIdx.x) * width;
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < width; at += int64_t(blockDim.x) * kCount) {
    float x[kCount], up[kCount];
    load<kCount>(pre + at, x);
    if (gated) load<kCount>(pre + width + at, up);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const float f = activate(kind, x[i]).f;
      x[i] = gated ? f * up[i] : f;
    }
    store<kCount>(out + at, x);
  }
}

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void backward(Activation kind, bool gated, int64_t width,
                                                     Element* pre_all, Element* d_out_all) {
  Element* const pre = pre_all + int64_t(blockIdx.x) * (gated ? 2 * width : width);
  Element* const d_out = d_out_all + int64_t(blockIdx.x) * width;
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < width; at += int64_t(blockDim.x) * kCount) {
    float x[kCount], up[kCount], d[kCount];
    load<kCount>(pre + at, x);
    load<kCount>(d_out + at, d);
    if (gated) load<kCount>(pre + width + at, up);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Value value = activate(kind, x[i]);
      const float gradient = d[i], factor = gated ? up[i] : 1.0f;
      d[i] = value.f * factor;
      x[i] = gradient * factor * value.derivative;
      up[i] = gradient * value.f;
    }
    store<kCount>(d_out + at, d);
    store<kCount>(pre + at, x);
    if (gated) store<kCount>(pre + width + at, up);
  }
}

// The same with a score a row, whose gradient is a sum over the row.
template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void scored_backward(Activation kind, bool gated,
                                                            int64_t width, const float* scores,
                                                            Element* pre_all, Element* d_out_all,
                                                            float* d_scores) {
  Element* const pre = pre_all + int64_t(blockIdx.x) * (gated ? 2 * width : width);
  Element* const d_out = d_out_all + int64_t(blockIdx.x) * width;
  const float score = scores[blockIdx.x];
  float d_score = 0;
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < width; at += int64_t(blockDim.x) * kCount) {
    float x[kCount], up[kCount], d[kCount];
    load<kCount>(pre + at, x);
    load<kCount>(d_out + at, d);
    if (gated) load<kCount>(pre + width + at, up);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const Value value = activate(kind, x[i]);
      const float factor = gated ? up[i] : 1.0f, gradient = score * d[i];
      d_score += d[i] * (value.f * factor);
      d[i] = score * (value.f * factor);
      x[i] = gradient * factor * value.derivative;
      up[i] = gradient * value.f;
    }
    store<kCount>(d_out + at, d);
    store<kCount>(pre + at, x);
    if (gated) store<kCount>(pre + width + at, up);
  }
  d_score = block_sum(d_score);
  if (threadIdx.x == 0) d_scores[blockIdx.x] = d_score;
}

}  // namespace

template <class Element>
void activation_forward(Activation kind, bool gated, int64_t rows, int64_t width,
                        const Element* pre, Element* out, cudaStream_t stream) {
  if (rows == 0 || width == 0) return;
  with_packs<Element>(packable<Element>({pre, out}, {width}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    forward<Element, kCount><<<unsigned(rows), threads_for(width, kCount, kThreads), 0, stream>>>(
        kind, gated, width, pre, out);
    check_launch("activation_forward");
  });
}

template <class Element>
void activation_backward(Activation kind, bool gated, int64_t rows, int64_t width, Element* pre,
                         Element* d_out, cudaStream_t stream) {
  if (rows == 0 || width == 0) return;
  with_packs<Element>(packable<Element>({pre, d_out}, {width}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    backward<Element, kCount><<<unsigned(rows), threads_for(width, kCount, kThreads), 0, stream>>>(
        kind, gated, width, pre, d_out);
    check_launch("activation_backward");
  });
}

template <class Element>
void scored_activation_backward(Activation kind, bool gated, int64_t rows, int64_t width,
                                const float* scores, Element* pre, Element* d_out, float* d_scores,
                                cudaStream_t stream) {
  if (rows == 0) return;
  with_packs<Element>(packable<Element>({pre, d_out}, {width}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    scored_backward<Element, kCount>
        <<<unsigned(rows), threads_for(width, kCount, kThreads), 0, stream>>>(
            kind, gated, width, scores, pre, d_out, d_scores);
    check_launch("scored_activation_backward");
  });
}

#define INSTANTIATE(Element)                                                                       \
  template void scored_activation_backward<Element>(                                               \
      Activation, bool, int64_t, int64_t, const float*, Element*, Element*, float*, cudaStream_t); \
  template void activation_forward<Element>(Activation, bool, int64_t, int64_t, const Element*,    \
                                            Element*, cudaStream_t);                               \
  template void activation_backward<Element>(Activation, bool, int64_t, int64_t, Element*,         \
                                             Element*, cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
