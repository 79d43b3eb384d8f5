// The formulas of all kernels as plain loops in double precision: the oracle of kernel_cases.hpp.
#pragma once

#include <algorithm>
#include <cstring>

#include "tests/support/host_side.hpp"
#include "tests/support/kernel_cases.hpp"

namespace fastllm::testing {

struct PlainSide : HostSide {
  using HostSide::HostSide;

  void norm_forward(const gpt::NormShape& s, const float* x_all, const float* weight,
                    const float* bias, float* y, float* mean_out, float* inverse_out) {
    for (int64_t row = 0; row < s.rows; ++row) {
      const float* x = x_all + s.x_at(row);
      double mean = 0, square = 0;
      for (int64_t i = 0; s.centered && i < s.columns; ++i) mean += x[i] / double(s.columns);
      for (int64_t i = 0; i < s.columns; ++i)
        square += (x[i] - mean) * (x[i] - mean) / double(s.columns);
      const double inverse = 1 / std::sqrt(square + double(s.epsilon));
      for (int64_t i = 0; i < s.columns; ++i)
        y[s.y_at(row) + i] =
            float((x[i] - mean) * inverse * (double(weight[i]) + s.offset) + (bias ? bias[i] : 0));
      if (mean_out) mean_out[row] = float(mean);
      inverse_out[row] = float(inverse);
    }
  }

  void norm_backward(const gpt::NormShape& s, const float* x_all, const float* weight,
                     const float* mean, const float* inverse_all, const float* dy_all,
                     const gpt::NormGradients& gradients) {
    const auto columns = size_t(s.columns);
    std::vector<double> d_weight(columns), d_bias(columns), g(columns), hat(columns);
    for (int64_t row = 0; row < s.rows; ++row) {
      const float *x = x_all + s.x_at(row), *dy = dy_all + s.y_at(row);
      const double inverse = inverse_all[row];
      double mean_g = 0, mean_g_hat = 0;
      for (size_t i = 0; i < columns; ++i) {
        hat[i] = (double(x[i]) - (mean ? mean[row] : 0)) * inverse;
        g[i] = double(dy[i]) * (double(weight[i]) + s.offset);
        d_weight[i] += dy[i] * hat[i];
        d_bias[i] += dy[i];
        mean_g += g[i] / double(columns);
        mean_g_hat += g[i] * hat[i] / double(columns);
      }
      for (size_t i = 0; gradients.x && i < columns; ++i) {
        const double residual =
            gradients.residual ? gradients.residual[size_t(s.y_at(row)) + i] : 0;
        gradients.x[size_t(s.y_at(row)) + i] =
            float(residual + inverse * (g[i] - (s.centered ? mean_g : 0) - hat[i] * mean_g_hat));
      }
    }
    const auto store = [&](float* to, const std::vector<double>& sums, bool overwrite) {
      for (size_t i = 0; to && i < columns; ++i)
        to[i] = float(sums[i] + (overwrite ? 0 : double(to[i])));
    };
    store(gradients.weight, d_weight, gradients.overwrite_weight);
    store(gradients.bias, d_bias, gradients.overwrite_bias);
  }

  void rotate(const gpt::RotaryShape& s, const float* table, const int64_t* positions,
              bool backward, float* values) {
    for (int64_t token = 0; token < s.tokens; ++token)
      for (int64_t head = 0; head < s.heads; ++head)
        for (int64_t i = 0; i < s.head_width / 2; ++i) {
          const float* angle = table + positions[token] * s.head_width + i;
          const double cosine = angle[0], sine = (backward ? -1.0 : 1.0) * angle[s.head_width / 2];
          float* at = values + token * s.stride + head * s.head_width;
          float& x = at[s.interleaved ? 2 * i : i];
          float& y = at[s.interleaved ? 2 * i + 1 : i + s.head_width / 2];
          const double a = x, b = y;
          x = float(a * cosine - b * sine);
          y = float(b * cosine + a * sine);
        }
  }

  static double activation(gpt::Activation kind, double x) {
    const double cubic = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
    switch (kind) {
      case gpt::Activation::kGelu:
        return x * (1 + std::tanh(cubic)) / 2;
      case gpt::Activation::kSilu:
        return x / (1 + std::exp(-x));
      case gpt::Activation::kRelu:
        return std::max(x, 0.0);
      case gpt::Activation::kSquaredRelu:
        return std::max(x, 0.0) * std::max(x, 0.0);
    }
    return 0;
  }
  // By a difference: exact for relu away from 0, and close to 1e-9 for the others.
  static double slope(gpt::Activation kind, double x) {
    constexpr double kStep = 1e-5;
    return (activation(kind, x + kStep) - activation(kind, x - kStep)) / (2 * kStep);
  }
  void activation_forward(gpt::Activation kind, bool gated, int64_t rows, int64_t width,
                          const float* pre, float* out) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i) {
        const float* at = pre + row * (gated ? 2 * width : width) + i;
        out[row * width + i] = float(activation(kind, at[0]) * (gated ? double(at[width]) : 1.0));
      }
  }
  void activation_backward(gpt::Activation kind, bool gated, int64_t rows, int64_t width,
                           float* pre, float* d_out) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i) {
        float* at = pre + row * (gated ? 2 * width : width) + i;
        float& d = d_out[row * width + i];
        const double x = at[0], up = gated ? double(at[width]) : 1.0, gradient = d;
        d = float(activation(kind, x) * up);
        at[0] = float(gradient * up * slope(kind, x));
        if (gated) at[width] = float(gradient * activation(kind, x));
      }
  }

  gpt::LossSums cross_entropy(const float* logits, const int64_t* labels, int64_t rows,
                              int64_t vocabulary, const gpt::LossFactors& factors,
                              float* gradient) {
    gpt::LossSums losses;
    for (int64_t row = 0; row < rows; ++row) {
      const float* from = logits + row * vocabulary;
      float* to = gradient ? gradient + row * vocabulary : nullptr;
      const int64_t label = labels[row];
      double sum = 0;
      for (int64_t i = 0; i < vocabulary; ++i) sum += std::exp(double(from[i]));
      const double z = std::log(sum);
      if (label != gpt::kNoLabel) {
        losses.cross_entropy += z - from[label];
        losses.z += z * z;
      }
      for (int64_t i = 0; to && i < vocabulary; ++i) {
        const double probability = std::exp(from[i] - z);
        to[i] = label == gpt::kNoLabel
                    ? 0
                    : float(factors.cross_entropy * (probability - (i == label)) +
                            factors.z * 2 * z * probability);
      }
    }
    return losses;
  }
  void row_maxima(const float* logits, const gpt::OwnColumns& own, float* maximum) {
    for (int64_t row = 0; row < own.rows; ++row)
      maximum[row] =
          *std::max_element(logits + row * own.columns, logits + (row + 1) * own.columns);
  }
  void row_sums(const float* logits, const int64_t* labels, const gpt::OwnColumns& own,
                const float* maximum, float* exponentials, float* sums) {
    for (int64_t row = 0; row < own.rows; ++row) {
      double sum = 0, target = 0;
      for (int64_t i = 0; i < own.columns; ++i) {
        const double logit = logits[row * own.columns + i], e = std::exp(logit - maximum[row]);
        if (labels[row] == own.first + i) target = logit;
        if (exponentials) exponentials[row * own.columns + i] = float(e);
        sum += e;
      }
      sums[2 * row] = float(sum);
      sums[2 * row + 1] = float(target);
    }
  }
  gpt::LossSums cross_entropy_of_sums(const int64_t* labels, const gpt::OwnColumns& own,
                                      const float* maximum, const float* sums,
                                      const gpt::LossFactors& factors, float* gradient) {
    gpt::LossSums losses;
    for (int64_t row = 0; row < own.rows; ++row) {
      const bool counts = labels[row] != gpt::kNoLabel;
      const double sum = sums[2 * row], z = std::log(sum) + maximum[row];
      losses.cross_entropy += counts ? z - sums[2 * row + 1] : 0;
      losses.z += counts ? z * z : 0;
      for (int64_t i = 0; gradient && i < own.columns; ++i) {
        float& at = gradient[row * own.columns + i];
        const double here = labels[row] == own.first + i;
        at = counts ? float(at / sum * (factors.cross_entropy + 2 * factors.z * z) -
                            factors.cross_entropy * here)
                    : 0;
      }
    }
    return losses;
  }

  void apply_dropout(const gpt::Dropout& dropout, int64_t count, const float* values,
                     const float* base, float* out) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = float((base ? double(base[i]) : 0.0) +
                     double(values[i]) * dropout.factor_at(uint64_t(i)));
  }
  void gather_rows(const gpt::TableRows& first, const gpt::TableRows& second, int64_t count,
                   int64_t width, const gpt::Dropout& dropout, float* out) {
    for (int64_t row = 0; row < count; ++row)
      for (int64_t i = 0; i < width; ++i) {
        const float* a = first.row(row, width);
        const double b = second.table ? second.row(row, width)[i] : 0;
        out[row * width + i] =
            a ? float((a[i] + b) * dropout.factor_at(uint64_t(row * width + i))) : 0;
      }
  }
  void scatter_rows(const float* rows, const int64_t* indices, int64_t count, int64_t width,
                    const gpt::Dropout& dropout, float* table, int64_t first, int64_t held) {
    for (int64_t to = 0; to < held; ++to)
      for (int64_t i = 0; i < width; ++i) {
        double sum = table[to * width + i];
        for (int64_t row = 0; row < count; ++row)
          if (indices[row] - first == to)
            sum += double(rows[row * width + i]) * dropout.factor_at(uint64_t(row * width + i));
        table[to * width + i] = float(sum);
      }
  }
  void row_sum(const float* values, int64_t rows, int64_t columns, bool overwrite, float* out) {
    for (int64_t column = 0; column < columns; ++column) {
      double sum = overwrite ? 0 : out[column];
      for (int64_t row = 0; row < rows; ++row) sum += values[row * columns + column];
      out[column] = float(sum);
    }
  }

  static bool seen(const gpt::ScoreBlock& block, int64_t row, int64_t column) {
    const int64_t own = block.diagonal + row;
    return column <= own && column > own - block.window;
  }
  static double kept(const gpt::ScoreBlock& block, int64_t row, int64_t column) {
    return block.dropout.factor(block.first_number + uint64_t(row) * block.numbers_a_row +
                                uint64_t(column));
  }
  void attention_softmax(const gpt::ScoreBlock& block, float* scores,
                         const gpt::SoftmaxRows& rows) {
    for (int64_t row = 0; row < block.rows; ++row) {
      float* s = scores + row * block.stride;
      double maximum = -INFINITY, sum = 0;
      for (int64_t i = 0; i < block.keys; ++i)
        if (seen(block, row, i)) maximum = std::max(maximum, double(s[i]));
      for (int64_t i = 0; i < block.keys; ++i) {
        const double e = seen(block, row, i) ? std::exp((s[i] - maximum) * block.scale) : 0;
        sum += e;
        s[i] = float(e * kept(block, row, i));
      }
      rows.maximum[row] = float(maximum);
      rows.inverse_sum[row] = float(1 / sum);
    }
  }
  void attention_softmax_backward(const gpt::ScoreBlock& block, const gpt::SoftmaxRows& rows,
                                  float* scores, float* d_weights) {
    for (int64_t row = 0; row < block.rows; ++row) {
      float *s = scores + row * block.stride, *d = d_weights + row * block.stride;
      std::vector<double> weights(static_cast<size_t>(block.keys));
      double sum = 0;
      for (int64_t i = 0; i < block.keys; ++i) {
        if (!seen(block, row, i)) continue;
        weights[size_t(i)] =
            std::exp((double(s[i]) - rows.maximum[row]) * block.scale) * rows.inverse_sum[row];
        sum += weights[size_t(i)] * kept(block, row, i) * d[i];
      }
      for (int64_t i = 0; i < block.keys; ++i) {
        const double weight = weights[size_t(i)], factor = kept(block, row, i);
        d[i] = weight == 0 ? 0 : float(block.scale * weight * (d[i] * factor - sum));
        s[i] = float(weight * factor);
      }
    }
  }
  void store_rows(int64_t rows, int64_t width, const float* from, int64_t from_stride,
                  const float* factors, float* to, int64_t to_stride) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < width; ++i)
        to[row * to_stride + i] =
            float(double(from[row * from_stride + i]) * (factors ? double(factors[row]) : 1.0));
  }
  void multiply_matrices(const gpt::ProductShape& shape, const gpt::MatrixView& left,
                         const gpt::MatrixView& right, bool add, float* out, int64_t out_stride) {
    const auto at = [](const gpt::MatrixView& view, int64_t row, int64_t column) {
      return double(view.data[row * view.row_stride + column * view.column_stride]);
    };
    for (int64_t row = 0; row < shape.rows; ++row)
      for (int64_t column = 0; column < shape.columns; ++column) {
        float& to = out[row * out_stride + column];
        double sum = add ? double(to) : 0.0;
        for (int64_t d = 0; d < shape.depth; ++d) sum += at(left, row, d) * at(right, d, column);
        to = float(sum);
      }
  }

  void scored_activation_backward(gpt::Activation kind, bool gated, int64_t rows, int64_t width,
                                  const float* scores, float* pre, float* d_out, float* d_scores) {
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t i = 0; i < width; ++i) {
        float* at = pre + row * (gated ? 2 * width : width) + i;
        float& d = d_out[row * width + i];
        const double x = at[0], up = gated ? double(at[width]) : 1.0, gradient = d,
                     score = scores[row], out = activation(kind, x) * up;
        sum += gradient * out;
        d = float(score * out);
        at[0] = float(score * gradient * up * slope(kind, x));
        if (gated) at[width] = float(score * gradient * activation(kind, x));
      }
      d_scores[row] = float(sum);
    }
  }
  void gather_expert_rows(int64_t rows, int64_t width, const int64_t* tokens, const float* from,
                          float* to) {
    for (int64_t i = 0; i < rows * width; ++i) to[i] = from[tokens[i / width] * width + i % width];
  }
  void combine_expert_rows(const gpt::ExpertChoices& choices, int64_t width, const float* values,
                           const float* scores, const float* start, float* sums) {
    for (int64_t i = 0; i < choices.tokens * width; ++i) {
      double sum = start ? double(start[i]) : 0.0;
      for (int64_t j = 0; j < choices.chosen; ++j) {
        const int64_t choice = i / width * choices.chosen + j;
        sum += (scores ? double(scores[choice]) : 1.0) *
               values[choices.rows[choice] * width + i % width];
      }
      sums[i] = float(sum);
    }
  }

  void choose_largest(const gpt::RoutingShape& shape, const float* values, int32_t* index) {
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const float* row = values + t * shape.experts;
      std::vector<int32_t> order(size_t(shape.experts));
      for (size_t e = 0; e < order.size(); ++e) order[e] = int32_t(e);
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      std::copy_n(order.begin(), shape.chosen, index + t * shape.chosen);
    }
  }
  static double log_sum(const float* row, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += std::exp(double(row[i]));
    return std::log(sum);
  }
  static void softmax(const float* row, int64_t count, float* out) {
    const double z = log_sum(row, count);
    for (int64_t i = 0; i < count; ++i) out[i] = float(std::exp(row[i] - z));
  }
  void row_softmax(const gpt::RoutingShape& shape, const float* values, float* out) {
    for (int64_t t = 0; t < shape.tokens; ++t)
      softmax(values + t * shape.experts, shape.experts, out + t * shape.experts);
  }
  void row_sigmoid(const gpt::RoutingShape& shape, const float* values, float* out) {
    for (int64_t i = 0; i < shape.tokens * shape.experts; ++i)
      out[i] = float(1 / (1 + std::exp(-double(values[i]))));
  }
  void row_log_sum(const gpt::RoutingShape& shape, const float* values, float* out) {
    for (int64_t t = 0; t < shape.tokens; ++t)
      out[t] = float(log_sum(values + t * shape.experts, shape.experts));
  }
  void take_chosen(const gpt::RoutingShape& shape, const float* values, const int32_t* index,
                   float* scores) {
    for (int64_t j = 0; j < shape.tokens * shape.chosen; ++j)
      scores[j] = values[j / shape.chosen * shape.experts + index[j]];
  }
  void chosen_softmax(const gpt::RoutingShape& shape, float* scores) {
    for (int64_t t = 0; t < shape.tokens; ++t)
      softmax(scores + t * shape.chosen, shape.chosen, scores + t * shape.chosen);
  }
  void add_column_sums(const gpt::RoutingShape& shape, const float* values, float* sums) {
    for (int64_t e = 0; e < shape.experts; ++e) {
      double sum = sums[e];
      for (int64_t t = 0; t < shape.tokens; ++t) sum += values[t * shape.experts + e];
      sums[e] = float(sum);
    }
  }
  void add_choices(const gpt::RoutingShape& shape, const int32_t* index, float* counts) {
    for (int64_t e = 0; e < shape.experts; ++e)
      counts[e] += float(std::count(index, index + shape.tokens * shape.chosen, int32_t(e)));
  }
  // d_logits += the product of d_probabilities with the softmax's derivative at probabilities p.
  static void add_softmax_gradient(int64_t count, const std::vector<double>& p,
                                   const std::vector<double>& d, float* out) {
    for (int64_t i = 0; i < count; ++i) {
      double gradient = 0;
      for (int64_t k = 0; k < count; ++k)
        gradient += d[size_t(k)] * p[size_t(k)] * ((i == k) - p[size_t(i)]);
      out[i] += float(gradient);
    }
  }
  void chosen_softmax_backward(const gpt::RoutingShape& shape, const int32_t* index,
                               const float* scores, const float* d_scores, float* d_logits) {
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const int64_t first = t * shape.chosen;
      for (int64_t i = 0; i < shape.chosen; ++i) {
        // Scores need not sum to 1 here, so the diagonal is apart.
        double gradient = double(scores[first + i]) * d_scores[first + i];
        for (int64_t k = 0; k < shape.chosen; ++k)
          gradient -= double(scores[first + i]) * scores[first + k] * d_scores[first + k];
        d_logits[t * shape.experts + index[first + i]] += float(gradient);
      }
    }
  }
  void chosen_probability_backward(const gpt::RoutingShape& shape, bool sigmoid,
                                   const int32_t* index, const float* probabilities,
                                   const float* d_scores, float* d_logits) {
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const auto experts = size_t(shape.experts);
      std::vector<double> p(experts), d(experts);
      for (size_t e = 0; e < experts; ++e) p[e] = probabilities[size_t(t) * experts + e];
      for (int64_t j = 0; j < shape.chosen; ++j)
        d[size_t(index[t * shape.chosen + j])] = d_scores[t * shape.chosen + j];
      float* out = d_logits + t * shape.experts;
      if (sigmoid)
        for (size_t e = 0; e < experts; ++e) out[e] += float(p[e] * (1 - p[e]) * d[e]);
      else
        add_softmax_gradient(shape.experts, p, d, out);
    }
  }
  void balance_backward(const gpt::RoutingShape& shape, const float* probabilities,
                        const float* weights, float scale, float* d_logits) {
    const auto experts = size_t(shape.experts);
    for (int64_t t = 0; t < shape.tokens; ++t) {
      std::vector<double> p(experts), d(experts);
      for (size_t e = 0; e < experts; ++e) {
        p[e] = probabilities[size_t(t) * experts + e];
        d[e] = double(scale) * weights[e];
      }
      add_softmax_gradient(shape.experts, p, d, d_logits + t * shape.experts);
    }
  }
  void z_backward(const gpt::RoutingShape& shape, const float* logits, const float* log_sums,
                  float scale, float* d_logits) {
    for (int64_t i = 0; i < shape.tokens * shape.experts; ++i) {
      const double z = log_sums[i / shape.experts];
      d_logits[i] += float(2 * double(scale) * z * std::exp(logits[i] - z));
    }
  }
  void row_exponentials(const gpt::RoutingShape& shape, const float* logits, float* out) {
    for (int64_t i = 0; i < shape.tokens * shape.experts; ++i) {
      const float* row = logits + i / shape.experts * shape.experts;
      out[i] = float(std::exp(double(logits[i]) - *std::max_element(row, row + shape.experts)));
    }
  }
  void balance_rows(const gpt::RoutingShape& shape, const float* matrix,
                    const float* column_factors, int64_t all_tokens, float* column_sums) {
    for (int64_t e = 0; e < shape.experts; ++e) {
      double sum = 0;
      for (int64_t t = 0; t < shape.tokens; ++t) {
        const float* row = matrix + t * shape.experts;
        double of_row = 1e-9;
        for (int64_t k = 0; k < shape.experts; ++k) of_row += double(row[k]) * column_factors[k];
        sum += row[e] / of_row / double(all_tokens);
      }
      column_sums[e] = float(sum);
    }
  }
  void scale_columns(const gpt::RoutingShape& shape, const float* matrix, const float* factors,
                     float* out) {
    for (int64_t i = 0; i < shape.tokens * shape.experts; ++i)
      out[i] = float(double(matrix[i]) * factors[i % shape.experts]);
  }

  static double read(const void* memory, DLDataType type, int64_t i) {
    if (type.bits == 32) return static_cast<const float*>(memory)[i];
    uint16_t bits;
    std::memcpy(&bits, static_cast<const char*>(memory) + 2 * i, 2);
    return type.code == kDLBfloat ? from_bfloat16(bits) : from_float16(bits);
  }
  static void write(void* memory, DLDataType type, int64_t i, double value) {
    const float rounded = float(value);
    const uint16_t half = type.code == kDLBfloat ? to_bfloat16(rounded) : to_float16(rounded);
    if (type.bits == 32)
      std::memcpy(static_cast<char*>(memory) + 4 * i, &rounded, 4);
    else
      std::memcpy(static_cast<char*>(memory) + 2 * i, &half, 2);
  }
  void copy(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n) {
    for (int64_t i = 0; i < n; ++i) write(to, to_type, i, read(from, from_type, i));
  }
  void add(void* to, DLDataType to_type, const void* from, DLDataType from_type, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      write(to, to_type, i, read(to, to_type, i) + read(from, from_type, i));
  }
  void fill_zero(void* to, DLDataType type, int64_t n) {
    for (int64_t i = 0; i < n; ++i) write(to, type, i, 0);
  }

  void sum_of_squares(const std::vector<optim::AdamWChunk>& chunks, const float* grads,
                      double* squares) {
    for (const optim::AdamWChunk& chunk : chunks) {
      double sum = 0;
      for (int64_t i = 0; i < chunk.elements; ++i)
        sum += double(grads[chunk.state_begin + i]) * grads[chunk.state_begin + i];
      *squares++ = sum;
    }
  }
  void adamw_update(const std::vector<optim::AdamWChunk>& chunks,
                    const std::vector<optim::AdamWFactors>& groups,
                    const optim::AdamWArrays& arrays) {
    for (const optim::AdamWChunk& chunk : chunks) {
      const optim::AdamWFactors& f = groups[size_t(chunk.group)];
      for (int64_t i = 0; i < chunk.elements; ++i) {
        float& weight = chunk.weights[i];
        float& average = arrays.exp_avgs[chunk.state_begin + i];
        float& square = arrays.exp_avgs_sq[chunk.state_begin + i];
        const double g = double(arrays.grads[chunk.state_begin + i]) * f.clip;
        const double m = double(f.beta_1) * average + double(f.one_minus_beta_1) * g;
        const double v = double(f.beta_2) * square + double(f.one_minus_beta_2) * g * g;
        weight = float(double(weight) * f.keep -
                       double(f.step) * m / (std::sqrt(v) * f.root + double(f.epsilon)));
        average = float(m);
        square = float(v);
      }
    }
  }
};

}  // namespace fastllm::testing
