// A CUDA device's kernels as a side of kernel_cases.hpp, in any type of element.
#pragma once

#include <cstring>
#include <vector>

#include "core/cuda/adamw.hpp"
#include "core/cuda/elements.hpp"
#include "core/cuda/error.hpp"
#include "core/cuda/memory.hpp"
#include "core/cuda/stream.hpp"
#include "kernels/cuda/kernels.hpp"
#include "tests/support/kernel_cases.hpp"

namespace fastllm::testing {

inline double as_double(__half value) { return double(__half2float(value)); }
inline double as_double(__nv_bfloat16 value) { return double(__bfloat162float(value)); }
template <class T>
double as_double(T value) {
  return double(value);
}

template <class T>
class DeviceSide {
 public:
  using Element = T;
  // shift: memory for elements begins so many bytes behind an aligned place.
  explicit DeviceSide(size_t shift = 0) : shift_(shift) {
    if (cublasCreate(&blas_) != CUBLAS_STATUS_SUCCESS ||
        cublasSetStream(blas_, get()) != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error("expected a handle of cuBLAS, found none");
  }
  ~DeviceSide() { cublasDestroy(blas_); }
  DeviceSide(const DeviceSide&) = delete;
  DeviceSide& operator=(const DeviceSide&) = delete;

  Element* values(const std::vector<float>& numbers) {
    std::vector<Element> elements(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      if constexpr (sizeof(Element) == 4) {
        elements[i] = numbers[i];
      } else {
        const uint16_t bits =
            std::is_same_v<Element, __half> ? to_float16(numbers[i]) : to_bfloat16(numbers[i]);
        std::memcpy(static_cast<void*>(&elements[i]), &bits, 2);
      }
    }
    return put(elements, shift_);
  }
  template <class U>
  U* put(const std::vector<U>& data, size_t shift = 0) {
    char* memory = scratch(int64_t(shift + data.size() * sizeof(U))) + shift;
    cuda::check(cudaMemcpyAsync(memory, data.data(), data.size() * sizeof(U),
                                cudaMemcpyHostToDevice, get()),
                "a copy to a CUDA device");
    stream_.synchronize();  // data may go
    return reinterpret_cast<U*>(memory);
  }
  template <class U>
  std::vector<U> fetch(const U* memory, size_t count) {
    std::vector<U> data(count);
    cuda::check(
        cudaMemcpyAsync(data.data(), memory, count * sizeof(U), cudaMemcpyDeviceToHost, get()),
        "a copy from a CUDA device");
    stream_.synchronize();
    return data;
  }
  template <class U>
  std::vector<double> take(const U* memory, size_t count) {
    std::vector<double> result;
    for (const U& value : fetch(memory, count)) result.push_back(as_double(value));
    return result;
  }

  void norm_forward(const gpt::NormShape& shape, const T* x, const T* weight, const T* bias, T* y,
                    float* mean, float* inverse) {
    gpt::cuda::norm_forward(shape, x, weight, bias, y, mean, inverse, get());
  }
  void norm_backward(const gpt::NormShape& shape, const T* x, const T* weight, const float* mean,
                     const float* inverse, const T* dy, const gpt::NormGradientsOf<T>& gradients) {
    gpt::cuda::norm_backward(shape, x, weight, mean, inverse, dy, gradients,
                             floats(gpt::cuda::norm_backward_scratch(shape)), get());
  }
  void rotate(const gpt::RotaryShape& shape, const float* table, const int64_t* positions,
              bool backward, T* values) {
    gpt::cuda::rotate(shape, table, positions, backward, values, get());
  }
  void activation_forward(gpt::Activation kind, bool gated, int64_t rows, int64_t width,
                          const T* pre, T* out) {
    gpt::cuda::activation_forward(kind, gated, rows, width, pre, out, get());
  }
  void activation_backward(gpt::Activation kind, bool gated, int64_t rows, int64_t width, T* pre,
                           T* d_out) {
    gpt::cuda::activation_backward(kind, gated, rows, width, pre, d_out, get());
  }
  gpt::LossSums cross_entropy(const T* logits, const int64_t* labels, int64_t rows,
                              int64_t vocabulary, const gpt::LossFactors& factors, T* gradient) {
    return losses(rows, [&](gpt::LossSums* sums, gpt::LossSums* of_rows) {
      gpt::cuda::cross_entropy(logits, labels, rows, vocabulary, factors, gradient, sums, of_rows,
                               get());
    });
  }
  void row_maxima(const T* logits, const gpt::OwnColumns& own, float* maximum) {
    gpt::cuda::row_maxima(logits, own, maximum, get());
  }
  void row_sums(const T* logits, const int64_t* labels, const gpt::OwnColumns& own,
                const float* maximum, T* exponentials, float* sums) {
    gpt::cuda::row_sums(logits, labels, own, maximum, exponentials, sums, get());
  }
  gpt::LossSums cross_entropy_of_sums(const int64_t* labels, const gpt::OwnColumns& own,
                                      const float* maximum, const float* sums,
                                      const gpt::LossFactors& factors, T* gradient) {
    return losses(own.rows, [&](gpt::LossSums* all, gpt::LossSums* of_rows) {
      gpt::cuda::cross_entropy_of_sums(labels, own, maximum, sums, factors, gradient, all, of_rows,
                                       get());
    });
  }
  void apply_dropout(const gpt::Dropout& dropout, int64_t count, const T* values, const T* base,
                     T* out) {
    gpt::cuda::apply_dropout(dropout, count, values, base, out, get());
  }
  void gather_rows(const gpt::TableRowsOf<T>& first, const gpt::TableRowsOf<T>& second,
                   int64_t count, int64_t width, const gpt::Dropout& dropout, T* out) {
    gpt::cuda::gather_rows(first, second, count, width, dropout, out, get());
  }
  void scatter_rows(const T* rows, const int64_t* indices, int64_t count, int64_t width,
                    const gpt::Dropout& dropout, float* table, int64_t first, int64_t held) {
    gpt::cuda::scatter_rows(rows, indices, count, width, dropout, table, first, held,
                            scratch(gpt::cuda::scatter_rows_scratch(count)), get());
  }
  void row_sum(const T* values, int64_t rows, int64_t columns, bool overwrite, float* out) {
    gpt::cuda::row_sum(values, rows, columns, overwrite, out,
                       floats(gpt::cuda::row_sum_scratch(rows, columns)), get());
  }
  void attention_softmax(const gpt::ScoreBlock& block, T* scores, const gpt::SoftmaxRows& rows) {
    gpt::cuda::attention_softmax(block, {}, scores, rows, get());
  }
  void attention_softmax_backward(const gpt::ScoreBlock& block, const gpt::SoftmaxRows& rows,
                                  T* scores, T* d_weights) {
    gpt::cuda::attention_softmax_backward(block, {}, rows, scores, d_weights, get());
  }
  void store_rows(int64_t rows, int64_t width, const T* from, int64_t from_stride,
                  const float* factors, T* to, int64_t to_stride) {
    gpt::cuda::store_rows(rows, width, from, from_stride, factors, to, to_stride, get());
  }
  void multiply_matrices(const gpt::ProductShape& shape, const gpt::MatrixViewOf<T>& left,
                         const gpt::MatrixViewOf<T>& right, bool add, T* out, int64_t out_stride) {
    gpt::cuda::multiply_matrices(shape, left, right, add, out, out_stride, blas_);
  }
  void scored_activation_backward(gpt::Activation kind, bool gated, int64_t rows, int64_t width,
                                  const float* scores, T* pre, T* d_out, float* d_scores) {
    gpt::cuda::scored_activation_backward(kind, gated, rows, width, scores, pre, d_out, d_scores,
                                          get());
  }
  void gather_expert_rows(int64_t rows, int64_t width, const int64_t* tokens, const T* from,
                          T* to) {
    gpt::cuda::gather_expert_rows(rows, width, tokens, from, to, get());
  }
  void combine_expert_rows(const gpt::ExpertChoices& choices, int64_t width, const T* values,
                           const float* scores, const T* start, T* sums) {
    gpt::cuda::combine_expert_rows(choices, width, values, scores, start, sums, get());
  }
#define FASTLLM_IN_STREAM(name)              \
  template <class... Arguments>              \
  void name(const Arguments&... arguments) { \
    gpt::cuda::name(arguments..., get());    \
  }
  FASTLLM_IN_STREAM(choose_largest)
  FASTLLM_IN_STREAM(row_softmax)
  FASTLLM_IN_STREAM(row_sigmoid)
  FASTLLM_IN_STREAM(row_log_sum)
  FASTLLM_IN_STREAM(take_chosen)
  FASTLLM_IN_STREAM(chosen_softmax)
  FASTLLM_IN_STREAM(add_column_sums)
  FASTLLM_IN_STREAM(add_choices)
  FASTLLM_IN_STREAM(chosen_softmax_backward)
  FASTLLM_IN_STREAM(chosen_probability_backward)
  FASTLLM_IN_STREAM(balance_backward)
  FASTLLM_IN_STREAM(z_backward)
  FASTLLM_IN_STREAM(row_exponentials)
  FASTLLM_IN_STREAM(balance_rows)
  FASTLLM_IN_STREAM(scale_columns)
#undef FASTLLM_IN_STREAM
  void copy(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n) {
    cuda::copy(to, to_type, from, from_type, n, get());
  }
  void add(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n) {
    cuda::add(to, to_type, from, from_type, n, get());
  }
  void fill_zero(void* to, DLDataType type, int64_t n) { cuda::fill_zero(to, type, n, get()); }
  void sum_of_squares(const std::vector<optim::AdamWChunk>& chunks, const float* grads,
                      double* squares) {
    cuda::sum_of_squares(put(chunks), int64_t(chunks.size()), grads, squares, get());
  }
  void adamw_update(const std::vector<optim::AdamWChunk>& chunks,
                    const std::vector<optim::AdamWFactors>& groups,
                    const optim::AdamWArrays& arrays) {
    cuda::adamw_update(put(chunks), int64_t(chunks.size()), put(groups), arrays, get());
  }

  cudaStream_t get() const { return stream_.get(); }

 private:
  char* scratch(int64_t bytes) {
    return static_cast<char*>(memory_.emplace_back(0, size_t(bytes)).data());
  }
  float* floats(int64_t count) { return reinterpret_cast<float*>(scratch(4 * count)); }
  template <class Call>
  gpt::LossSums losses(int64_t rows, Call&& call) {
    auto* sums = reinterpret_cast<gpt::LossSums*>(scratch(sizeof(gpt::LossSums)));
    call(sums, reinterpret_cast<gpt::LossSums*>(scratch(rows * int64_t(sizeof(gpt::LossSums)))));
    return fetch(sums, 1)[0];
  }

  cuda::Stream stream_{0};
  cublasHandle_t blas_ = nullptr;
  size_t shift_;
  std::vector<cuda::DeviceMemory> memory_;
};

}  // namespace fastllm::testing
