// Every kernel with the cases it is tested by: shapes, flags and input values, the same for all who
// run them. A side has memory and calls the kernels: the processor's (cpu_kernels.hpp), plain loops
// (plain_kernels.hpp), a CUDA device (device_kernels.hpp). The table is the one list of kernels: a
// side that lacks one does not compile, and tests/kernels/kernel_list_test.cpp compares it with what
// the built libraries define.
//
// A side has
//   Element* values(std::vector<float>)      elements of its type, rounded to it
//   T* put(std::vector<T>)                   anything else
//   std::vector<double> take(const T* memory, size_t count)
// which stay until it goes, and a function for each kernel with the processor's arguments.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/base/half.hpp"
#include "core/base/tensor.hpp"
#include "core/optim/adamw_kernels.hpp"
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

namespace fastllm::testing {

struct KernelOutput {
  std::string name;
  std::vector<double> values;
  bool exact = false;  // processor and device have the same bits, for float32
};
using KernelOutputs = std::vector<KernelOutput>;

template <class Side>
struct KernelCase {
  std::string name;
  std::function<KernelOutputs(Side&)> run;
};
template <class Side>
struct Kernel {
  std::string name;  // of the function
  std::vector<KernelCase<Side>> cases;
};

// Numbers in [-2, 2), always the same; each call others.
class Numbers {
 public:
  explicit Numbers(uint32_t seed) : random_(seed) {}
  std::vector<float> operator()(int64_t count, float scale = 1, float shift = 0) {
    std::vector<float> result(static_cast<size_t>(count));
    for (float& value : result) value = float(int32_t(random_())) * 0x1p-30f * scale + shift;
    return result;
  }
  std::vector<int64_t> indices(int64_t count, int64_t end) {
    std::vector<int64_t> result(static_cast<size_t>(count));
    for (int64_t& index : result) index = int64_t(random_() % uint32_t(end));
    return result;
  }

 private:
  std::mt19937 random_;
};

inline std::string in_words(std::initializer_list<std::pair<const char*, int64_t>> parts) {
  std::string text;
  for (const auto& [name, value] : parts) text += std::string(name) + std::to_string(value) + " ";
  text.pop_back();
  return text;
}

// ---------------------------------------------------------------- normalization

struct NormCase {
  int64_t rows, columns;
  bool centered, biased;
  float offset = 0;
  int64_t heads = 1, gap = 0;  // gap: elements between the heads of two tokens
  bool wants_x = true, wants_weight = true, overwrite = true, residual = false;

  gpt::NormShape shape() const {
    gpt::NormShape result{
        .rows = rows, .columns = columns, .centered = centered, .epsilon = 1e-5f, .offset = offset};
    if (gap) {
      result.heads = heads;
      result.x_stride = heads * columns + gap;
      result.y_stride = heads * columns + 2 * gap;
    }
    return result;
  }
  int64_t x_size() const { return gap ? rows / heads * shape().x_stride : rows * columns; }
  int64_t y_size() const { return gap ? rows / heads * shape().y_stride : rows * columns; }
  std::string name() const {
    return in_words({{"rows ", rows},
                     {"columns ", columns},
                     {"layer ", centered},
                     {"bias ", biased},
                     {"offset ", int64_t(offset)},
                     {"heads ", heads},
                     {"gap ", gap},
                     {"residual ", residual},
                     {"overwrite ", overwrite},
                     {"x ", wants_x},
                     {"weight ", wants_weight}});
  }
};
// Whole packs and none; rows in registers and longer ones; pieces of rows and parts of one.
inline std::vector<NormCase> norm_cases() {
  return {{.rows = 3, .columns = 128, .centered = true, .biased = true},
          {.rows = 70, .columns = 1000, .centered = false, .biased = false, .offset = 1},
          {.rows = 5, .columns = 33, .centered = true, .biased = false, .residual = true},
          {.rows = 1100, .columns = 64, .centered = true, .biased = true, .overwrite = false},
          {.rows = 2, .columns = 40000, .centered = true, .biased = true, .residual = true},
          {.rows = 3, .columns = 5003, .centered = false, .biased = false},
          {.rows = 12, .columns = 32, .centered = false, .biased = false, .heads = 4, .gap = 16},
          {.rows = 9, .columns = 96, .centered = true, .biased = true, .wants_x = false},
          {.rows = 9, .columns = 96, .centered = false, .biased = false, .wants_weight = false}};
}

template <class Side>
KernelOutputs run_norm_forward(Side& side, const NormCase& c) {
  Numbers numbers(1);
  const auto* x = side.values(numbers(c.x_size(), 1, 0.5f));
  const auto* weight = side.values(numbers(c.columns, 0.2f, 1 - c.offset));
  const auto* bias = c.biased ? side.values(numbers(c.columns, 0.2f)) : nullptr;
  auto* y = side.values(std::vector<float>(size_t(c.y_size())));
  float* mean = c.centered ? side.put(std::vector<float>(size_t(c.rows))) : nullptr;
  float* inverse = side.put(std::vector<float>(size_t(c.rows)));
  side.norm_forward(c.shape(), x, weight, bias, y, mean, inverse);
  KernelOutputs outputs{{"y", side.take(y, size_t(c.y_size()))},
                        {"inverse", side.take(inverse, size_t(c.rows))}};
  if (mean) outputs.push_back({"mean", side.take(mean, size_t(c.rows))});
  return outputs;
}

template <class Side>
KernelOutputs run_norm_backward(Side& side, const NormCase& c) {
  Numbers numbers(2);
  const auto size = size_t(c.columns);
  auto* x = side.values(numbers(c.gap ? c.y_size() : c.x_size(), 1, 0.5f));
  const auto* weight = side.values(numbers(c.columns, 0.2f, 1 - c.offset));
  const float* mean = c.centered ? side.put(numbers(c.rows, 0.1f, 0.5f)) : nullptr;
  const float* inverse = side.put(numbers(c.rows, 0.1f, 0.9f));
  auto* dy = side.values(numbers(c.y_size()));
  gpt::NormGradientsOf<typename Side::Element> gradients;
  gradients.x = c.wants_x ? dy : nullptr;  // in place
  gradients.residual = c.residual ? x : nullptr;
  gradients.weight = c.wants_weight ? side.put(numbers(c.columns)) : nullptr;
  gradients.bias = c.biased ? side.put(numbers(c.columns)) : nullptr;
  gradients.overwrite_weight = gradients.overwrite_bias = c.overwrite;
  side.norm_backward(c.shape(), x, weight, mean, inverse, dy, gradients);
  KernelOutputs outputs{{"x", side.take(dy, size_t(c.y_size()))}};
  if (gradients.weight) outputs.push_back({"weight", side.take(gradients.weight, size)});
  if (gradients.bias) outputs.push_back({"bias", side.take(gradients.bias, size)});
  return outputs;
}

// ---------------------------------------------------------------- rotary

struct RotaryCase {
  int64_t tokens, heads, width, gap;
  bool interleaved, backward;
  std::string name() const {
    return in_words({{"tokens ", tokens},
                     {"heads ", heads},
                     {"width ", width},
                     {"gap ", gap},
                     {"interleaved ", interleaved},
                     {"backward ", backward}});
  }
};
inline std::vector<RotaryCase> rotary_cases() {
  std::vector<RotaryCase> cases;
  for (bool interleaved : {false, true})
    for (bool backward : {false, true})
      for (const auto& [heads, width, gap] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
               {4, 64, 64}, {3, 10, 7}, {40, 128, 0}})
        cases.push_back({21, heads, width, gap, interleaved, backward});
  return cases;
}

template <class Side>
KernelOutputs run_rotate(Side& side, const RotaryCase& c) {
  constexpr int64_t kPositions = 50;
  Numbers numbers(3);
  std::vector<float> table(size_t(kPositions * c.width));
  for (int64_t position = 0; position < kPositions; ++position)
    for (int64_t i = 0; i < c.width / 2; ++i) {
      const double angle = double(position) / double(i + 1);
      table[size_t(position * c.width + i)] = float(std::cos(angle));
      table[size_t(position * c.width + c.width / 2 + i)] = float(std::sin(angle));
    }
  const gpt::RotaryShape shape{.tokens = c.tokens,
                               .heads = c.heads,
                               .head_width = c.width,
                               .stride = c.heads * c.width + c.gap,
                               .interleaved = c.interleaved};
  const int64_t size = c.tokens * shape.stride;
  auto* values = side.values(numbers(size));
  side.rotate(shape, side.put(table), side.put(numbers.indices(c.tokens, kPositions)), c.backward,
              values);
  return {{"values", side.take(values, size_t(size))}};
}

// ---------------------------------------------------------------- activation

struct ActivationCase {
  gpt::Activation kind;
  bool gated;
  int64_t rows, width;
  std::string name() const {
    return in_words(
        {{"kind ", int64_t(kind)}, {"gated ", gated}, {"rows ", rows}, {"width ", width}});
  }
};
inline std::vector<ActivationCase> activation_cases() {
  std::vector<ActivationCase> cases;
  for (auto kind : {gpt::Activation::kGelu, gpt::Activation::kSilu, gpt::Activation::kRelu,
                    gpt::Activation::kSquaredRelu})
    for (bool gated : {false, true})
      for (int64_t width : {160, 77}) cases.push_back({kind, gated, 19, width});
  return cases;
}

template <class Side>
KernelOutputs run_activation_forward(Side& side, const ActivationCase& c) {
  const int64_t size = c.rows * c.width;
  const auto* pre = side.values(Numbers(4)(c.gated ? 2 * size : size, 2));
  auto* out = side.values(std::vector<float>(size_t(size)));
  side.activation_forward(c.kind, c.gated, c.rows, c.width, pre, out);
  return {{"out", side.take(out, size_t(size))}};
}
template <class Side>
KernelOutputs run_activation_backward(Side& side, const ActivationCase& c) {
  Numbers numbers(5);
  const int64_t size = c.rows * c.width, pre_size = c.gated ? 2 * size : size;
  auto* pre = side.values(numbers(pre_size, 2));
  auto* d_out = side.values(numbers(size));
  side.activation_backward(c.kind, c.gated, c.rows, c.width, pre, d_out);
  return {{"pre", side.take(pre, size_t(pre_size))}, {"out", side.take(d_out, size_t(size))}};
}

template <class Side>
KernelOutputs run_scored_activation_backward(Side& side, const ActivationCase& c) {
  Numbers numbers(21);
  const int64_t size = c.rows * c.width, pre_size = c.gated ? 2 * size : size;
  auto* pre = side.values(numbers(pre_size, 2));
  auto* d_out = side.values(numbers(size));
  float* d_scores = side.put(std::vector<float>(size_t(c.rows)));
  side.scored_activation_backward(c.kind, c.gated, c.rows, c.width, side.put(numbers(c.rows)), pre,
                                  d_out, d_scores);
  return {{"pre", side.take(pre, size_t(pre_size))},
          {"out", side.take(d_out, size_t(size))},
          {"scores", side.take(d_scores, size_t(c.rows))}};
}

// ---------------------------------------------------------------- losses

struct LossCase {
  int64_t rows, columns;
  double cross_entropy, z;
  bool gradient;
  int64_t first = 0, vocabulary = 0;  // of divided columns
  float scale = 2;
  std::string name() const {
    return in_words({{"rows ", rows},
                     {"columns ", columns},
                     {"first ", first},
                     {"scale ", int64_t(scale)},
                     {"z ", int64_t(z * 100)},
                     {"gradient ", gradient}});
  }
  // Some of none; others than this rank's columns where there are any.
  std::vector<int64_t> labels(Numbers& numbers) const {
    auto result = numbers.indices(rows, vocabulary ? vocabulary : columns);
    for (size_t row = 1; row < result.size(); row += 5) result[row] = gpt::kNoLabel;
    return result;
  }
  gpt::OwnColumns own() const { return {rows, columns, first}; }
  gpt::LossFactors factors() const { return {cross_entropy, z}; }
};
inline std::vector<LossCase> loss_cases() {
  std::vector<LossCase> cases;
  for (bool gradient : {false, true})
    for (int64_t columns : {5, 256, 1003, 20000})
      cases.push_back({11, columns, 0.25, 0.01, gradient});
  cases.push_back({3, 128, 1, 0, true, 0, 0, 40});  // nearly all of the weight on one entry
  return cases;
}
inline std::vector<LossCase> divided_loss_cases() {
  std::vector<LossCase> cases;
  for (bool gradient : {false, true})
    for (int64_t columns : {96, 501, 10000})
      cases.push_back({11, columns, 0.25, 0.01, gradient, columns, 3 * columns});
  return cases;
}

template <class Side>
KernelOutputs run_cross_entropy(Side& side, const LossCase& c) {
  Numbers numbers(6);
  const int64_t size = c.rows * c.columns;
  auto* logits = side.values(numbers(size, c.scale));
  const gpt::LossSums sums =
      side.cross_entropy(logits, side.put(c.labels(numbers)), c.rows, c.columns, c.factors(),
                         c.gradient ? logits : nullptr);
  return {{"cross entropy", {sums.cross_entropy}},
          {"z", {sums.z}},
          {"gradient", side.take(logits, size_t(size))}};
}

template <class Side>
KernelOutputs run_row_maxima(Side& side, const LossCase& c) {
  const auto* logits = side.values(Numbers(7)(c.rows * c.columns, c.scale));
  float* maximum = side.put(std::vector<float>(size_t(c.rows)));
  side.row_maxima(logits, c.own(), maximum);
  return {{"maximum", side.take(maximum, size_t(c.rows)), true}};
}

template <class Side>
KernelOutputs run_row_sums(Side& side, const LossCase& c) {
  Numbers numbers(8);
  const int64_t size = c.rows * c.columns;
  auto* logits = side.values(numbers(size, c.scale));
  float* sums = side.put(std::vector<float>(size_t(2 * c.rows)));
  side.row_sums(logits, side.put(c.labels(numbers)), c.own(),
                side.put(std::vector<float>(size_t(c.rows), 4.5f)), c.gradient ? logits : nullptr,
                sums);
  return {{"sums", side.take(sums, size_t(2 * c.rows))},
          {"exponentials", side.take(logits, size_t(size))}};
}

template <class Side>
KernelOutputs run_cross_entropy_of_sums(Side& side, const LossCase& c) {
  Numbers numbers(9);
  const int64_t size = c.rows * c.columns;
  const std::vector<int64_t> labels = c.labels(numbers);
  auto* gradient = side.values(numbers(size, 0.25f, 0.5f));  // exponentials: at most 1
  const gpt::LossSums sums = side.cross_entropy_of_sums(
      side.put(labels), c.own(), side.put(numbers(c.rows, 1, 5)),
      side.put(numbers(2 * c.rows, 1, 20)), c.factors(), c.gradient ? gradient : nullptr);
  return {{"cross entropy", {sums.cross_entropy}},
          {"z", {sums.z}},
          {"gradient", side.take(gradient, size_t(size))}};
}

// ---------------------------------------------------------------- dropout, tables, sums

struct DropoutCase {
  int64_t count;
  double probability;
  bool based;
  int64_t run = 0;  // elements between numbers that are left out; 0: none are
  std::string name() const {
    return in_words({{"count ", count},
                     {"percent ", int64_t(probability * 100)},
                     {"based ", based},
                     {"run ", run}});
  }
};
inline std::vector<DropoutCase> dropout_cases() {
  return {
      {4096, 0.3, true}, {4096, 0.1, false}, {777, 0.5, true}, {64, 0, true}, {777, 0.5, true, 64}};
}
template <class Side>
KernelOutputs run_apply_dropout(Side& side, const DropoutCase& c) {
  Numbers numbers(10);
  const auto* values = side.values(numbers(c.count, 1, 5));  // none near 0: what is dropped shows
  auto* out = side.values(numbers(c.count));
  gpt::Dropout dropout = gpt::make_dropout(c.probability, 77);
  if (c.run) dropout = dropout.in_runs(c.run, 100).from(10);
  side.apply_dropout(dropout, c.count, values, c.based ? out : nullptr, out);
  return {{"out", side.take(out, size_t(c.count))}};
}

struct TableCase {
  int64_t count, width, rows;  // rows: of the table
  double probability;
  bool two;           // tables
  int64_t first = 0;  // index of the table's first row; more rows than there are exist
  std::string name() const {
    return in_words({{"count ", count},
                     {"width ", width},
                     {"rows ", rows},
                     {"percent ", int64_t(probability * 100)},
                     {"two ", two},
                     {"first ", first}});
  }
};
// Few rows: many of one index, whose order counts.
inline std::vector<TableCase> table_cases() {
  return {{300, 64, 7, 0, false},
          {300, 64, 1000, 0.2, true},
          {33, 19, 5, 0.5, false},
          {120, 40, 10, 0, false, 10},
          {5000, 16, 3, 0, false}};
}
template <class Side>
KernelOutputs run_gather_rows(Side& side, const TableCase& c) {
  Numbers numbers(11);
  using Table = gpt::TableRowsOf<typename Side::Element>;
  const int64_t indices = c.first ? 3 * c.rows : c.rows, size = c.count * c.width;
  Table first{side.values(numbers(c.rows * c.width)), side.put(numbers.indices(c.count, indices))};
  if (c.first) {
    first.first = c.first;
    first.rows = c.rows;
  }
  Table second{nullptr, nullptr};
  if (c.two)
    second = {side.values(numbers(c.rows * c.width)), side.put(numbers.indices(c.count, c.rows))};
  auto* out = side.values(std::vector<float>(size_t(size), 9.0f));
  side.gather_rows(first, second, c.count, c.width, gpt::make_dropout(c.probability, 78), out);
  return {{"out", side.take(out, size_t(size))}};
}
template <class Side>
KernelOutputs run_scatter_rows(Side& side, const TableCase& c) {
  Numbers numbers(12);
  const int64_t indices = c.first ? 3 * c.rows : c.rows, size = c.rows * c.width;
  const auto* rows = side.values(numbers(c.count * c.width));
  float* table = side.put(numbers(size));
  side.scatter_rows(rows, side.put(numbers.indices(c.count, indices)), c.count, c.width,
                    gpt::make_dropout(c.probability, 79), table, c.first,
                    c.first ? c.rows : indices);
  // Equal bits: the order of additions is that of the rows.
  return {{"table", side.take(table, size_t(size)), c.probability == 0}};
}

struct RowSumCase {
  int64_t rows, columns;
  bool overwrite;
  std::string name() const {
    return in_words({{"rows ", rows}, {"columns ", columns}, {"overwrite ", overwrite}});
  }
};
inline std::vector<RowSumCase> row_sum_cases() {
  return {{1, 128, true}, {130, 1000, false}, {1000, 33, true}, {70000, 8, true}};
}
template <class Side>
KernelOutputs run_row_sum(Side& side, const RowSumCase& c) {
  Numbers numbers(13);
  const auto* values = side.values(numbers(c.rows * c.columns, 1, 0.1f));
  float* out = side.put(numbers(c.columns));
  side.row_sum(values, c.rows, c.columns, c.overwrite, out);
  return {{"out", side.take(out, size_t(c.columns))}};
}

// ---------------------------------------------------------------- attention

struct SoftmaxCase {
  int64_t rows, keys, stride, diagonal, window;
  double probability;
  std::string name() const {
    return in_words({{"rows ", rows},
                     {"keys ", keys},
                     {"stride ", stride},
                     {"diagonal ", diagonal},
                     {"window ", window},
                     {"percent ", int64_t(probability * 100)}});
  }
  gpt::ScoreBlock block() const {
    return {.rows = rows,
            .keys = keys,
            .stride = stride,
            .diagonal = diagonal,
            .window = window,
            .scale = 0.3f,
            .dropout = gpt::make_dropout(probability, 80),
            .first_number = 1234,
            .numbers_a_row = uint64_t(keys)};
  }
};
inline std::vector<SoftmaxCase> softmax_cases() {
  return {{64, 64, 80, 0, 64, 0},
          {64, 192, 192, 128, 192, 0.2},
          {13, 77, 79, 64, 10, 0.1},
          {4, 9000, 9000, 8996, 9000, 0}};
}
template <class Side>
KernelOutputs run_attention_softmax(Side& side, const SoftmaxCase& c) {
  const auto size = size_t(c.rows * c.stride), rows = size_t(c.rows);
  auto* scores = side.values(Numbers(14)(int64_t(size), 3));
  const gpt::SoftmaxRows statistics{side.put(std::vector<float>(rows)),
                                    side.put(std::vector<float>(rows))};
  side.attention_softmax(c.block(), scores, statistics);
  return {{"scores", side.take(scores, size)},
          {"maximum", side.take(statistics.maximum, rows), true},
          {"inverse sum", side.take(statistics.inverse_sum, rows)}};
}
template <class Side>
KernelOutputs run_attention_softmax_backward(Side& side, const SoftmaxCase& c) {
  Numbers numbers(15);
  const auto size = size_t(c.rows * c.stride);
  auto* scores = side.values(numbers(int64_t(size), 3));
  auto* d_weights = side.values(numbers(int64_t(size)));
  // Any statistics will do, of the size that real ones have.
  const gpt::SoftmaxRows statistics{side.put(numbers(c.rows, 0.1f, 6)),
                                    side.put(numbers(c.rows, 0.01f, 0.1f))};
  side.attention_softmax_backward(c.block(), statistics, scores, d_weights);
  return {{"scores", side.take(scores, size)}, {"weights", side.take(d_weights, size)}};
}

struct StoreCase {
  int64_t rows, width, from_stride, to_stride;
  bool factors;
  std::string name() const {
    return in_words({{"rows ", rows}, {"width ", width}, {"factors ", factors}});
  }
};
inline std::vector<StoreCase> store_cases() {
  return {{20, 64, 80, 96, true}, {20, 64, 64, 64, false}, {7, 13, 17, 15, true}};
}
template <class Side>
KernelOutputs run_store_rows(Side& side, const StoreCase& c) {
  Numbers numbers(16);
  const auto* from = side.values(numbers(c.rows * c.from_stride));
  const float* factors = c.factors ? side.put(numbers(c.rows)) : nullptr;
  auto* to = side.values(numbers(c.rows * c.to_stride));
  side.store_rows(c.rows, c.width, from, c.from_stride, factors, to, c.to_stride);
  return {{"to", side.take(to, size_t(c.rows * c.to_stride)), true}};
}

struct ProductCase {
  int64_t rows, columns, depth;
  bool left_by_columns, right_by_columns, add;
  std::string name() const {
    return in_words({{"rows ", rows},
                     {"columns ", columns},
                     {"depth ", depth},
                     {"left by columns ", left_by_columns},
                     {"right by columns ", right_by_columns},
                     {"add ", add}});
  }
};
inline std::vector<ProductCase> product_cases() {
  std::vector<ProductCase> cases;
  for (bool left : {false, true})
    for (bool right : {false, true})
      for (bool add : {false, true})
        for (const auto& [rows, columns, depth] : std::vector<std::array<int64_t, 3>>{
                 {70, 48, 96}, {1, 48, 96}, {70, 1, 96}, {70, 48, 1}})
          cases.push_back({rows, columns, depth, left, right, add});
  return cases;
}
template <class Side>
KernelOutputs run_multiply_matrices(Side& side, const ProductCase& c) {
  Numbers numbers(17);
  using View = gpt::MatrixViewOf<typename Side::Element>;
  const View left{side.values(numbers(c.rows * c.depth)), c.left_by_columns ? 1 : c.depth,
                  c.left_by_columns ? c.rows : 1};
  const View right{side.values(numbers(c.depth * c.columns)), c.right_by_columns ? 1 : c.columns,
                   c.right_by_columns ? c.depth : 1};
  const int64_t stride = c.columns + 16;
  auto* out = side.values(numbers(c.rows * stride));
  side.multiply_matrices(gpt::ProductShape{c.rows, c.columns, c.depth}, left, right, c.add, out,
                         stride);
  return {{"out", side.take(out, size_t(c.rows * stride))}};
}

// ---------------------------------------------------------------- experts

struct ExpertCase {
  int64_t tokens, experts, chosen, width;
  std::string name() const {
    return in_words(
        {{"tokens ", tokens}, {"experts ", experts}, {"chosen ", chosen}, {"width ", width}});
  }
  gpt::RoutingShape shape() const { return {tokens, experts, chosen}; }
  int64_t size() const { return tokens * experts; }
  int64_t choices() const { return tokens * chosen; }
  // Different experts for each token.
  std::vector<int32_t> index(Numbers& numbers) const {
    const std::vector<int64_t> first = numbers.indices(tokens, experts);
    std::vector<int32_t> result;
    for (int64_t at : first)
      for (int64_t j = 0; j < chosen; ++j) result.push_back(int32_t((at + j) % experts));
    return result;
  }
};
inline std::vector<ExpertCase> expert_cases() {
  return {{300, 8, 2, 64}, {70, 5, 1, 33}, {1000, 16, 4, 16}, {1, 2, 2, 8}};
}
template <class Side>
KernelOutputs run_gather_expert_rows(Side& side, const ExpertCase& c) {
  Numbers numbers(22);
  const int64_t rows = c.choices();
  const auto* from = side.values(numbers(c.tokens * c.width));
  auto* to = side.values(numbers(rows * c.width));
  side.gather_expert_rows(rows, c.width, side.put(numbers.indices(rows, c.tokens)), from, to);
  return {{"to", side.take(to, size_t(rows * c.width)), true}};
}
template <class Side>
KernelOutputs run_combine_expert_rows(Side& side, const ExpertCase& c) {
  KernelOutputs outputs;
  for (bool plain : {false, true}) {  // without scores and start
    Numbers numbers(23);
    const int64_t rows = c.choices(), size = c.tokens * c.width;
    const gpt::ExpertChoices choices{c.tokens, c.chosen, side.put(numbers.indices(rows, rows))};
    const auto* values = side.values(numbers(rows * c.width));
    const float* scores = plain ? nullptr : side.put(numbers(rows));
    const auto* start = plain ? nullptr : side.values(numbers(size));
    auto* sums = side.values(numbers(size));
    side.combine_expert_rows(choices, c.width, values, scores, start, sums);
    outputs.push_back({plain ? "plain sums" : "sums", side.take(sums, size_t(size))});
  }
  return outputs;
}

// The router's kernels: one output that call(numbers, out) fills, of `count` numbers.
template <class Side, class Call>
KernelOutputs run_routing(Side& side, int64_t count, Call&& call, bool exact = false) {
  Numbers numbers(24);
  float* out = side.put(numbers(count));
  call(numbers, out);
  return {{"out", side.take(out, size_t(count)), exact}};
}
template <class Side>
KernelOutputs run_choose_largest(Side& side, const ExpertCase& c) {
  int32_t* index = side.put(std::vector<int32_t>(size_t(c.choices())));
  // Few different values: equal ones are chosen in order.
  std::vector<float> values = Numbers(25)(c.size());
  for (float& value : values) value = std::round(4 * value);
  side.choose_largest(c.shape(), side.put(values), index);
  return {{"index", side.take(index, size_t(c.choices())), true}};
}
template <class Side>
KernelOutputs run_row_softmax(Side& side, const ExpertCase& c) {
  return run_routing(side, c.size(),
                     [&](Numbers&, float* out) { side.row_softmax(c.shape(), out, out); });
}
template <class Side>
KernelOutputs run_row_sigmoid(Side& side, const ExpertCase& c) {
  return run_routing(side, c.size(),
                     [&](Numbers&, float* out) { side.row_sigmoid(c.shape(), out, out); });
}
template <class Side>
KernelOutputs run_row_log_sum(Side& side, const ExpertCase& c) {
  return run_routing(side, c.tokens, [&](Numbers& numbers, float* out) {
    side.row_log_sum(c.shape(), side.put(numbers(c.size(), 3)), out);
  });
}
template <class Side>
KernelOutputs run_take_chosen(Side& side, const ExpertCase& c) {
  return run_routing(
      side, c.choices(),
      [&](Numbers& numbers, float* out) {
        side.take_chosen(c.shape(), side.put(numbers(c.size())), side.put(c.index(numbers)), out);
      },
      true);
}
template <class Side>
KernelOutputs run_chosen_softmax(Side& side, const ExpertCase& c) {
  return run_routing(side, c.choices(),
                     [&](Numbers&, float* out) { side.chosen_softmax(c.shape(), out); });
}
template <class Side>
KernelOutputs run_add_column_sums(Side& side, const ExpertCase& c) {
  return run_routing(side, c.experts, [&](Numbers& numbers, float* out) {
    side.add_column_sums(c.shape(), side.put(numbers(c.size(), 1, 0.2f)), out);
  });
}
template <class Side>
KernelOutputs run_add_choices(Side& side, const ExpertCase& c) {
  return run_routing(
      side, c.experts,
      [&](Numbers& numbers, float* out) {
        side.add_choices(c.shape(), side.put(c.index(numbers)), out);
      },
      true);
}
template <class Side>
KernelOutputs run_chosen_softmax_backward(Side& side, const ExpertCase& c) {
  return run_routing(side, c.size(), [&](Numbers& numbers, float* out) {
    side.chosen_softmax_backward(c.shape(), side.put(c.index(numbers)),
                                 side.put(numbers(c.choices(), 0.1f, 0.5f)),
                                 side.put(numbers(c.choices())), out);
  });
}
template <class Side>
KernelOutputs run_chosen_probability_backward(Side& side, const ExpertCase& c) {
  KernelOutputs outputs;
  for (bool sigmoid : {false, true})
    for (KernelOutput& output : run_routing(side, c.size(), [&](Numbers&numbers, float*out) {
           side.chosen_probability_backward(c.shape(), sigmoid, side.put(c.index(numbers)),
                                            side.put(numbers(c.size(), 0.1f, 0.5f)),
                                            side.put(numbers(c.choices())), out);
         }))
      outputs.push_back(output);
  return outputs;
}
template <class Side>
KernelOutputs run_balance_backward(Side& side, const ExpertCase& c) {
  return run_routing(side, c.size(), [&](Numbers& numbers, float* out) {
    side.balance_backward(c.shape(), side.put(numbers(c.size(), 0.1f, 0.5f)),
                          side.put(numbers(c.experts)), 0.3f, out);
  });
}
template <class Side>
KernelOutputs run_z_backward(Side& side, const ExpertCase& c) {
  return run_routing(side, c.size(), [&](Numbers& numbers, float* out) {
    side.z_backward(c.shape(), side.put(numbers(c.size())), side.put(numbers(c.tokens, 0.5f, 3)),
                    0.3f, out);
  });
}
template <class Side>
KernelOutputs run_row_exponentials(Side& side, const ExpertCase& c) {
  return run_routing(side, c.size(), [&](Numbers& numbers, float* out) {
    side.row_exponentials(c.shape(), side.put(numbers(c.size(), 3)), out);
  });
}
template <class Side>
KernelOutputs run_balance_rows(Side& side, const ExpertCase& c) {
  return run_routing(side, c.experts, [&](Numbers& numbers, float* out) {
    side.balance_rows(c.shape(), side.put(numbers(c.size(), 0.2f, 0.5f)),
                      side.put(numbers(c.experts, 0.2f, 1)), 3 * c.tokens, out);
  });
}
template <class Side>
KernelOutputs run_scale_columns(Side& side, const ExpertCase& c) {
  return run_routing(
      side, c.size(),
      [&](Numbers& numbers, float* out) {
        side.scale_columns(c.shape(), out, side.put(numbers(c.experts)), out);
      },
      true);
}

// ---------------------------------------------------------------- the host's kernels

inline constexpr DLDataType kElementTypes[]{kFloat32, kBfloat16, kFloat16};

struct ElementsCase {
  DLDataType to, from;
  int64_t count, shift;  // shift: elements from an aligned begin
  std::string name() const {
    return dtype_text(from) + " to " + dtype_text(to) + " " +
           in_words({{"count ", count}, {"shift ", shift}});
  }
};
inline std::vector<ElementsCase> elements_cases() {
  std::vector<ElementsCase> cases;
  for (DLDataType to : kElementTypes)
    for (DLDataType from : kElementTypes) {
      cases.push_back({to, from, 3001, 0});
      cases.push_back({to, from, 70, 1});
    }
  return cases;
}
// Bytes of numbers in a type. Extremes too: large ones, small ones, infinity, zeros of both signs.
inline std::vector<uint8_t> in_type(std::vector<float> values, DLDataType type) {
  const float extremes[]{1e30f, -7e4f, 65519.0f, 65520.0f, 1e-6f, -3e-8f, INFINITY, -0.0f, 0.0f};
  for (size_t i = 0; i < std::size(extremes) && 5 * i < values.size(); ++i)
    values[5 * i] = extremes[i];
  std::vector<uint8_t> bytes;
  for (float value : values) {
    const uint16_t half = type.code == kDLBfloat ? to_bfloat16(value) : to_float16(value);
    const auto* data = type.bits == 32 ? reinterpret_cast<const uint8_t*>(&value)
                                       : reinterpret_cast<const uint8_t*>(&half);
    bytes.insert(bytes.end(), data, data + type.bits / 8);
  }
  return bytes;
}
// Exact: conversions and sums of two numbers round once, to nearest even.
template <class Side, class Call>
KernelOutputs run_elements(Side& side, const ElementsCase& c, Call&& call) {
  Numbers numbers(18);
  const int64_t all = c.count + c.shift;
  uint8_t* to = side.put(in_type(numbers(all), c.to));
  uint8_t* from = side.put(in_type(numbers(all), c.from));
  call(to + c.shift * c.to.bits / 8, from + c.shift * c.from.bits / 8);
  return {{"to", side.take(to, size_t(all * c.to.bits / 8)), true}};
}

struct AdamWCase {
  std::vector<int64_t> lengths;  // of chunks; groups alternate
  int64_t gap;                   // between chunks in the weights
  std::string name() const {
    return in_words({{"chunks ", int64_t(lengths.size())}, {"gap ", gap}});
  }
  std::vector<optim::AdamWChunk> chunks(float* weights = nullptr) const {
    std::vector<optim::AdamWChunk> result;
    int64_t at = gap, states = 0;
    for (int64_t length : lengths) {
      result.push_back(
          {weights ? weights + at : nullptr, states, length, int32_t(result.size() % 2), 1});
      at += length + gap;
      states += length;
    }
    return result;
  }
  int64_t weights() const { return states() + gap * int64_t(lengths.size()); }
  int64_t states() const { return chunks().back().state_begin + lengths.back(); }
};
inline std::vector<AdamWCase> adamw_cases() {
  return {{{32768, 32768, 1000}, 0}, {{5, 4096, 31, 1}, 32}, {{17, 640}, 3}};
}
template <class Side>
KernelOutputs run_sum_of_squares(Side& side, const AdamWCase& c) {
  double* squares = side.put(std::vector<double>(c.lengths.size()));
  side.sum_of_squares(c.chunks(), side.put(Numbers(19)(c.states())), squares);
  return {{"squares", side.take(squares, c.lengths.size())}};
}
template <class Side>
KernelOutputs run_adamw_update(Side& side, const AdamWCase& c) {
  Numbers numbers(20);
  float* weights = side.put(numbers(c.weights()));
  float* exp_avgs = side.put(numbers(c.states(), 0.1f));
  float* exp_avgs_sq = side.put(numbers(c.states(), 0.01f, 0.02f));
  const float* grads = side.put(numbers(c.states()));
  const std::vector<optim::AdamWFactors> groups{
      {0.5f, 0.9f, 0.1f, 0.999f, 0.001f, 0.9999f, 1e-2f, 3.0f, 1e-8f},
      {1.0f, 0.8f, 0.2f, 0.95f, 0.05f, 1.0f, 2e-3f, 1.5f, 1e-5f}};
  side.adamw_update(c.chunks(weights), groups, optim::AdamWArrays{exp_avgs, exp_avgs_sq, grads});
  return {{"weights", side.take(weights, size_t(c.weights())), true},
          {"exp_avgs", side.take(exp_avgs, size_t(c.states())), true},
          {"exp_avgs_sq", side.take(exp_avgs_sq, size_t(c.states())), true}};
}

// ---------------------------------------------------------------- the table

template <class Side, class Case, class Run>
Kernel<Side> make_kernel(const char* name, const std::vector<Case>& cases, Run run) {
  Kernel<Side> kernel{name, {}};
  for (const Case& c : cases)
    kernel.cases.push_back({c.name(), [c, run](Side& side) { return run(side, c); }});
  return kernel;
}

template <class Side>
std::vector<Kernel<Side>> kernel_table() {
  const auto make = [](auto... arguments) { return make_kernel<Side>(arguments...); };
  return {
      make("norm_forward", norm_cases(), run_norm_forward<Side>),
      make("norm_backward", norm_cases(), run_norm_backward<Side>),
      make("rotate", rotary_cases(), run_rotate<Side>),
      make("activation_forward", activation_cases(), run_activation_forward<Side>),
      make("activation_backward", activation_cases(), run_activation_backward<Side>),
      make("cross_entropy", loss_cases(), run_cross_entropy<Side>),
      make("row_maxima", divided_loss_cases(), run_row_maxima<Side>),
      make("row_sums", divided_loss_cases(), run_row_sums<Side>),
      make("cross_entropy_of_sums", divided_loss_cases(), run_cross_entropy_of_sums<Side>),
      make("apply_dropout", dropout_cases(), run_apply_dropout<Side>),
      make("gather_rows", table_cases(), run_gather_rows<Side>),
      make("scatter_rows", table_cases(), run_scatter_rows<Side>),
      make("row_sum", row_sum_cases(), run_row_sum<Side>),
      make("attention_softmax", softmax_cases(), run_attention_softmax<Side>),
      make("attention_softmax_backward", softmax_cases(), run_attention_softmax_backward<Side>),
      make("store_rows", store_cases(), run_store_rows<Side>),
      make("multiply_matrices", product_cases(), run_multiply_matrices<Side>),
      make("scored_activation_backward", activation_cases(), run_scored_activation_backward<Side>),
      make("gather_expert_rows", expert_cases(), run_gather_expert_rows<Side>),
      make("combine_expert_rows", expert_cases(), run_combine_expert_rows<Side>),
      make("choose_largest", expert_cases(), run_choose_largest<Side>),
      make("row_softmax", expert_cases(), run_row_softmax<Side>),
      make("row_sigmoid", expert_cases(), run_row_sigmoid<Side>),
      make("row_log_sum", expert_cases(), run_row_log_sum<Side>),
      make("take_chosen", expert_cases(), run_take_chosen<Side>),
      make("chosen_softmax", expert_cases(), run_chosen_softmax<Side>),
      make("add_column_sums", expert_cases(), run_add_column_sums<Side>),
      make("add_choices", expert_cases(), run_add_choices<Side>),
      make("chosen_softmax_backward", expert_cases(), run_chosen_softmax_backward<Side>),
      make("chosen_probability_backward", expert_cases(), run_chosen_probability_backward<Side>),
      make("balance_backward", expert_cases(), run_balance_backward<Side>),
      make("z_backward", expert_cases(), run_z_backward<Side>),
      make("row_exponentials", expert_cases(), run_row_exponentials<Side>),
      make("balance_rows", expert_cases(), run_balance_rows<Side>),
      make("scale_columns", expert_cases(), run_scale_columns<Side>),
      make("copy", elements_cases(),
           [](Side& side, const ElementsCase& c) {
             return run_elements(side, c, [&](void* to, const void* from) {
               side.copy(to, c.to, from, c.from, c.count);
             });
           }),
      make("add", elements_cases(),
           [](Side& side, const ElementsCase& c) {
             return run_elements(side, c, [&](void* to, const void* from) {
               side.add(to, c.to, from, c.from, c.count);
             });
           }),
      make("fill_zero", elements_cases(),
           [](Side& side, const ElementsCase& c) {
             return run_elements(side, c,
                                 [&](void* to, const void*) { side.fill_zero(to, c.to, c.count); });
           }),
      make("sum_of_squares", adamw_cases(), run_sum_of_squares<Side>),
      make("adamw_update", adamw_cases(), run_adamw_update<Side>),
  };
}

// |found - expected| / |expected|; what is not finite must be the same.
inline double distance(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return INFINITY;
  double difference = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i]))) {
      if (std::isfinite(expected[i])) size += expected[i] * expected[i];
      continue;
    }
    difference += (found[i] - expected[i]) * (found[i] - expected[i]);
    size += expected[i] * expected[i];
  }
  if (difference == 0) return 0;
  return std::sqrt(difference) / std::sqrt(size);
}

}  // namespace fastllm::testing
