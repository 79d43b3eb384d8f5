// Each activation is a function of one value and its derivative; gating is the same loop with a
// second factor. The tanh form of gelu is written with the logistic function, since (1 + tanh u) /
// 2 = sigmoid(2 u).
#include "kernels/activation.hpp"

#include <ATen/Parallel.h>

#include "kernels/common.hpp"

namespace fastllm::gpt {
namespace {

struct Value {
  float f, derivative;
};

template <Activation kind>
FASTLLM_INLINE Value activate(float x) {
  if constexpr (kind == Activation::kGelu) {
    constexpr float kTwoRootTwoOverPi = 1.59576912160573071f, kCubic = 0.044715f;
    const float s = sigmoid(kTwoRootTwoOverPi * (x + kCubic * x * x * x));
    return {x * s, s + x * s * (1.0f - s) * kTwoRootTwoOverPi * (1.0f + 3.0f * kCubic * x * x)};
  } else if constexpr (kind == Activation::kSilu) {
    const float s = sigmoid(x);
    return {x * s, s + x * s * (1.0f - s)};
  } else {
    const float positive = x > 0.0f ? x : 0.0f;
    if constexpr (kind == Activation::kRelu)
      return {positive, x > 0.0f ? 1.0f : 0.0f};
    else
      return {positive * positive, 2.0f * positive};
  }
}

template <Activation kind>
FASTLLM_INLINE void forward_row(bool gated, int64_t width, const float* pre,
                                float* __restrict out) {
  if (gated) {
    for (int64_t i = 0; i < width; ++i) out[i] = activate<kind>(pre[i]).f * pre[width + i];
  } else {
    for (int64_t i = 0; i < width; ++i) out[i] = activate<kind>(pre[i]).f;
  }
}

template <Activation kind>
FASTLLM_INLINE void backward_row(bool gated, int64_t width, float* __restrict pre,
                                 float* __restrict d_out) {
  if (gated) {
    float* __restrict up = pre + width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const Value gate = activate<kind>(pre[i]);
      const float d = d_out[i], u = up[i];
      d_out[i] = gate.f * u;
      pre[i] = d * u * gate.derivative;
      up[i] = d * gate.f;
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      const Value value = activate<kind>(pre[i]);
      const float d = d_out[i];
      d_out[i] = value.f;
      pre[i] = d * value.derivative;
    }
  }
}

template <Activation kind>
FASTLLM_INLINE float scored_backward_row(bool gated, int64_t width, float score,
                                         float* __restrict pre, float* __restrict d_out) {
  float d_score = 0;
  if (gated) {
    float* __restrict up = pre + width;
#pragma omp simd reduction(+ : d_score)
    for (int64_t i = 0; i < width; ++i) {
      const Value gate = activate<kind>(pre[i]);
      const float d = d_out[i], u = up[i];
      d_score += d * (gate.f * u);
      d_out[i] = score * (gate.f * u);
      pre[i] = score * d * u * gate.derivative;
      up[i] = score * d * gate.f;
    }
  } else {
#pragma omp simd reduction(+ : d_score)
    for (int64_t i = 0; i < width; ++i) {
      const Value value = activate<kind>(pre[i]);
      const float d = d_out[i];
      d_score += d * value.f;
      d_out[i] = score * value.f;
      pre[i] = score * d * value.derivative;
    }
  }
  return d_score;
}

FASTLLM_KERNEL void forward_rows(Activation kind, bool gated, int64_t rows, int64_t width,
                                 const float* pre, float* out) {
  const int64_t stride = gated ? 2 * width : width;
  for (int64_t row = 0; row < rows; ++row, pre += stride, out += width) {
    switch (kind) {
      case Activation::kGelu:
        forward_row<Activation::kGelu>(gated, width, pre, out);
        break;
      case Activation::kSilu:
        forward_row<Activation::kSilu>(gated, width, pre, out);
        break;
      case Activation::kRelu:
        forward_row<Activation::kRelu>(gated, width, pre, out);
        break;
      case Activation::kSquaredRelu:
        forward_row<Activation::kSquaredRelu>(gated, width, pre, out);
        break;
    }
  }
}

FASTLLM_KERNEL void backward_rows(Activation kind, bool gated, int64_t rows, int64_t width,
                                  float* pre, float* d_out) {
  const int64_t stride = gated ? 2 * width : width;
  for (int64_t row = 0; row < rows; ++row, pre += stride, d_out += width) {
    switch (kind) {
      case Activation::kGelu:
        backward_row<Activation::kGelu>(gated, width, pre, d_out);
        break;
      case Activation::kSilu:
        backward_row<Activation::kSilu>(gated, width, pre, d_out);
        break;
      case Activation::kRelu:
        backward_row<Activation::kRelu>(gated, width, pre, d_out);
        break;
      case Activation::kSquaredRelu:
        backward_row<Activation::kSquaredRelu>(gated, width, pre, d_out);
        break;
    }
  }
}

FASTLLM_KERNEL void scored_backward_rows(Activation kind, bool gated, int64_t rows, int64_t width,
                                         const float* scores, float* pre, float* d_out,
                                         float* d_scores) {
  const int64_t stride = gated ? 2 * width : width;
  for (int64_t row = 0; row < rows; ++row, pre += stride, d_out += width) {
    switch (kind) {
      case Activation::kGelu:
        d_scores[row] =
            scored_backward_row<Activation::kGelu>(gated, width, scores[row], pre, d_out);
        break;
      case Activation::kSilu:
        d_scores[row] =
            scored_backward_row<Activation::kSilu>(gated, width, scores[row], pre, d_out);
        break;
      case Activation::kRelu:
        d_scores[row] =
            scored_backward_row<Activation::kRelu>(gated, width, scores[row], pre, d_out);
        break;
      case Activation::kSquaredRelu:
        d_scores[row] =
            scored_backward_row<Activation::kSquaredRelu>(gated, width, scores[row], pre, d_out);
        break;
    }
  }
}

}  // namespace

void activation_forward(Activation kind, bool gated, int64_t rows, int64_t width, const float* pre,
                        float* out) {
  const int64_t stride = gated ? 2 * width : width;
  at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
    forward_rows(kind, gated, end - begin, width, pre + begin * stride, out + begin * width);
  });
}

void activation_backward(Activation kind, bool gated, int64_t rows, int64_t width, float* pre,
                         float* d_out) {
  const int64_t stride = gated ? 2 * width : width;
  at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
    backward_rows(kind, gated, end - begin, width, pre + begin * stride, d_out + begin * width);
  });
}

void scored_activation_backward(Activation kind, bool gated, int64_t rows, int64_t width,
                                const float* scores, float* pre, float* d_out, float* d_scores) {
  const int64_t stride = gated ? 2 * width : width;
  at::parallel_for(0, rows, kRowGrain, [&](int64_t begin, int64_t end) {
    scored_backward_rows(kind, gated, end - begin, width, scores + begin, pre + begin * stride,
                         d_out + begin * width, d_scores + begin);
  });
}

}  // namespace fastllm::gpt
