// The MLP's activation, forward and backward, plain or gated, each one pass.
#pragma once

#include <cstdint>

#include "config.hpp"

namespace fastllm::gpt {

// pre [rows, width] or, gated, [rows, 2 width] (gate, then up); out [rows, width] = f(pre), or
// f(gate) * up.
void activation_forward(Activation kind, bool gated, int64_t rows, int64_t width, const float* pre,
                        float* out);

// In place: pre becomes its own gradient and d_out [rows, width] becomes the activation's output,
// which the gradient of the next weight needs; so the output need not be kept from forward.
void activation_backward(Activation kind, bool gated, int64_t rows, int64_t width, float* pre,
                         float* d_out);

// The same for rows that count with a score each: out = score * f(pre) is what the next weight's
// gradient needs, and pre becomes the gradient of the sum of score * f(pre) * d_out. d_scores [rows]:
// that of the scores, written.
void scored_activation_backward(Activation kind, bool gated, int64_t rows, int64_t width,
                                const float* scores, float* pre, float* d_out, float* d_scores);

}  // namespace fastllm::gpt
