// The kernels of this folder's parent on a CUDA device: the same names, shapes and numbers, and what
// a device needs besides.
//
// Element is float, __nv_bfloat16 or __half, for values and weights alike; arithmetic, statistics,
// tables of angles, losses and gradients of weights are float32. All pointers are to memory of the
// stream's device, structs of shapes go by value. A call puts work into the stream and returns: it
// neither waits nor allocates; scratch is the caller's until the stream has passed. Bits depend on
// shapes, types and the alignment of pointers alone: no sum is made by atomic operations.
//
// Any alignment of the element is right; 16 bytes and rows of whole 16 bytes are fast.
// Throws sdk::Error when a kernel cannot be launched; what fails later is told by a later call.
#pragma once

#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/activation.hpp"
#include "kernels/cross_entropy.hpp"
#include "kernels/dropout.hpp"
#include "kernels/embedding.hpp"
#include "kernels/expert_rows.hpp"
#include "kernels/matrix_product.hpp"
#include "kernels/norm.hpp"
#include "kernels/rotary.hpp"
#include "kernels/routing.hpp"
#include "kernels/row_sum.hpp"
#include "kernels/softmax.hpp"

namespace fastllm::gpt::cuda {

// kernels/norm.hpp. mean and inverse: [rows].
template <class Element>
void norm_forward(const NormShape& shape, const Element* x, const Element* weight,
                  const Element* bias, Element* y, float* mean, float* inverse,
                  cudaStream_t stream);
// scratch: norm_backward_scratch(shape) floats; unused where neither weight nor bias has a gradient.
template <class Element>
void norm_backward(const NormShape& shape, const Element* x, const Element* weight,
                   const float* mean, const float* inverse, const Element* dy,
                   const NormGradientsOf<Element>& gradients, float* scratch, cudaStream_t stream);
int64_t norm_backward_scratch(const NormShape& shape);

// kernels/rotary.hpp.
template <class Element>
void rotate(const RotaryShape& shape, const float* table, const int64_t* positions, bool backward,
            Element* values, cudaStream_t stream);

// kernels/activation.hpp.
template <class Element>
void activation_forward(Activation kind, bool gated, int64_t rows, int64_t width,
                        const Element* pre, Element* out, cudaStream_t stream);
template <class Element>
void activation_backward(Activation kind, bool gated, int64_t rows, int64_t width, Element* pre,
                         Element* d_out, cudaStream_t stream);
template <class Element>
void scored_activation_backward(Activation kind, bool gated, int64_t rows, int64_t width,
                                const float* scores, Element* pre, Element* d_out, float* d_scores,
                                cudaStream_t stream);

// kernels/cross_entropy.hpp. losses: where the sums go, on the device; scratch: [rows].
template <class Element>
void cross_entropy(const Element* logits, const int64_t* labels, int64_t rows, int64_t vocabulary,
                   const LossFactors& factors, Element* gradient, LossSums* losses,
                   LossSums* scratch, cudaStream_t stream);
template <class Element>
void row_maxima(const Element* logits, const OwnColumns& own, float* maximum, cudaStream_t stream);
template <class Element>
void row_sums(const Element* logits, const int64_t* labels, const OwnColumns& own,
              const float* maximum, Element* exponentials, float* sums, cudaStream_t stream);
template <class Element>
void cross_entropy_of_sums(const int64_t* labels, const OwnColumns& own, const float* maximum,
                           const float* sums, const LossFactors& factors, Element* gradient,
                           LossSums* losses, LossSums* scratch, cudaStream_t stream);

// kernels/dropout.hpp.
template <class Element>
void apply_dropout(const Dropout& dropout, int64_t count, const Element* values,
                   const Element* base, Element* out, cudaStream_t stream);

// kernels/embedding.hpp. scratch: scatter_rows_scratch(count) bytes, aligned to 256; at most 2^31 - 1
// rows, and as many in the table.
template <class Element>
void gather_rows(const TableRowsOf<Element>& first, const TableRowsOf<Element>& second,
                 int64_t count, int64_t width, const Dropout& dropout, Element* out,
                 cudaStream_t stream);
template <class Element>
void scatter_rows(const Element* rows, const int64_t* indices, int64_t count, int64_t width,
                  const Dropout& dropout, float* table, int64_t first, int64_t held, void* scratch,
                  cudaStream_t stream);
int64_t scatter_rows_scratch(int64_t count);

// kernels/row_sum.hpp. scratch: row_sum_scratch(rows, columns) floats.
template <class Element>
void row_sum(const Element* values, int64_t rows, int64_t columns, bool overwrite, float* out,
             float* scratch, cudaStream_t stream);
int64_t row_sum_scratch(int64_t rows, int64_t columns);

// kernels/softmax.hpp, for several blocks of one shape, as the heads of attention are: from one to the
// next, scores and gradients lie `scores` elements apart, rows of statistics block.rows, and the
// dropout's numbers grow by `numbers`.
struct Blocks {
  int64_t count = 1, scores = 0;
  uint64_t numbers = 0;
};
template <class Element>
void attention_softmax(const ScoreBlock& block, const Blocks& blocks, Element* scores,
                       const SoftmaxRows& rows, cudaStream_t stream);
template <class Element>
void attention_softmax_backward(const ScoreBlock& block, const Blocks& blocks,
                                const SoftmaxRows& rows, Element* scores, Element* d_weights,
                                cudaStream_t stream);
template <class Element>
void store_rows(int64_t rows, int64_t width, const Element* from, int64_t from_stride,
                const float* factors, Element* to, int64_t to_stride, cudaStream_t stream);

// kernels/expert_rows.hpp.
template <class Element>
void gather_expert_rows(int64_t rows, int64_t width, const int64_t* tokens, const Element* from,
                        Element* to, cudaStream_t stream);
template <class Element>
void combine_expert_rows(const ExpertChoices& choices, int64_t width, const Element* values,
                         const float* scores, const Element* start, Element* sums,
                         cudaStream_t stream);

// kernels/routing.hpp, in float32: routers are.
void choose_largest(const RoutingShape& shape, const float* values, int32_t* index,
                    cudaStream_t stream);
void row_softmax(const RoutingShape& shape, const float* values, float* out, cudaStream_t stream);
void row_sigmoid(const RoutingShape& shape, const float* values, float* out, cudaStream_t stream);
void row_log_sum(const RoutingShape& shape, const float* values, float* out, cudaStream_t stream);
void take_chosen(const RoutingShape& shape, const float* values, const int32_t* index,
                 float* scores, cudaStream_t stream);
void chosen_softmax(const RoutingShape& shape, float* scores, cudaStream_t stream);
void add_column_sums(const RoutingShape& shape, const float* values, float* sums,
                     cudaStream_t stream);
void add_choices(const RoutingShape& shape, const int32_t* index, float* counts,
                 cudaStream_t stream);
void chosen_softmax_backward(const RoutingShape& shape, const int32_t* index, const float* scores,
                             const float* d_scores, float* d_logits, cudaStream_t stream);
void chosen_probability_backward(const RoutingShape& shape, bool sigmoid, const int32_t* index,
                                 const float* probabilities, const float* d_scores, float* d_logits,
                                 cudaStream_t stream);
void balance_backward(const RoutingShape& shape, const float* probabilities, const float* weights,
                      float scale, float* d_logits, cudaStream_t stream);
void z_backward(const RoutingShape& shape, const float* logits, const float* log_sums, float scale,
                float* d_logits, cudaStream_t stream);
void row_exponentials(const RoutingShape& shape, const float* logits, float* out,
                      cudaStream_t stream);
void balance_rows(const RoutingShape& shape, const float* matrix, const float* column_factors,
                  int64_t all_tokens, float* column_sums, cudaStream_t stream);
void scale_columns(const RoutingShape& shape, const float* matrix, const float* factors, float* out,
                   cudaStream_t stream);

// kernels/matrix_product.hpp, by cuBLAS. blas works in the stream; one handle a thread and device.
// scratch is the handle's.
template <class Element>
void multiply_matrices(const ProductShape& shape, const MatrixViewOf<Element>& left,
                       const MatrixViewOf<Element>& right, bool add, Element* out,
                       int64_t out_stride, cublasHandle_t blas);

}  // namespace fastllm::gpt::cuda
