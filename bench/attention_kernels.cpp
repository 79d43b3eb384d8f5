// Forward and backward of gpt's attention between the projections, apart, beside LibTorch's own
// causal attention (which repeats keys of a group for every head).
//
//     bench_attention_kernels [samples length heads groups width [window [dropout]]]
//
// The number of threads is OMP_NUM_THREADS. Rates count the products that a causal mask (and a
// window) leaves: 2 forward, 5 backward.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "layers/causal_attention.hpp"

namespace {

using fastllm::gpt::AttentionShape;

struct Times {
  double least, median;  // in seconds
};

Times measure(const std::function<void()>& work) {
  std::vector<double> times;
  for (double total = 0; times.size() < 5 || (total < 2 && times.size() < 200);) {
    const auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += times.back();
  }
  std::ranges::sort(times);
  return {times.front(), times[times.size() / 2]};
}

void report(const char* name, const Times& times, double operations) {
  std::printf("%-20s least %8.3f ms, median %8.3f ms, %6.1f GF/s\n", name, times.least * 1e3,
              times.median * 1e3, operations / times.least * 1e-9);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int index, double fallback) {
    return index < argc ? std::atof(argv[index]) : fallback;
  };
  const int64_t samples = int64_t(argument(1, 4)), length = int64_t(argument(2, 512));
  const int64_t heads = int64_t(argument(3, 6)), groups = int64_t(argument(4, 2));
  const int64_t width = int64_t(argument(5, 64)), window = int64_t(argument(6, 0));
  const AttentionShape shape{heads, groups, width, 0.125, window};
  const auto dropout = fastllm::gpt::make_dropout(argument(7, 0), 1);
  const int64_t tokens = samples * length;
  const c10::InferenceMode mode;
  at::manual_seed(1);
  const auto query = at::randn({tokens, heads * width}), d_out = at::randn_like(query);
  const auto key_value = at::randn({tokens, 2 * groups * width});
  const auto ranges = at::arange(samples + 1, at::kInt) * length;
  const auto out = at::empty_like(query), d_query = at::empty_like(query);
  const auto d_key_value = at::empty_like(key_value);

  const double seen = window > 0 && window < length
                          ? double(window) * (double(length) - double(window - 1) / 2)
                          : double(length) * double(length + 1) / 2;
  const double a_product = 2 * double(samples * heads * width) * seen;
  std::printf("%lld samples of %lld tokens, %lld heads in %lld groups, width %lld, %d threads\n",
              (long long)samples, (long long)length, (long long)heads, (long long)groups,
              (long long)width, at::get_num_threads());
  at::Tensor softmax;
  report("forward", measure([&] {
           softmax = attention_forward(shape, ranges, {}, dropout, query, key_value, out);
         }),
         2 * a_product);
  report("backward", measure([&] {
           attention_backward(shape, ranges, {}, dropout, query, key_value, softmax, d_out, d_query,
                              d_key_value);
         }),
         5 * a_product);

  if (window > 0) return 0;
  const auto split = [&](const at::Tensor& rows, int64_t count) {
    return rows.view({samples, length, count, width}).transpose(1, 2);
  };
  const auto spread = [&](int64_t column) {
    return split(key_value.narrow(1, column, groups * width).contiguous(), groups)
        .repeat_interleave(heads / groups, 1);
  };
  at::Tensor library_out, log_sum;
  const auto q = split(query, heads), k = spread(0), v = spread(groups * width);
  report("LibTorch, forward", measure([&] {
           std::tie(library_out, log_sum) =
               at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, argument(7, 0), true);
         }),
         2 * a_product);
  const auto d = split(d_out, heads);
  report("LibTorch, backward", measure([&] {
           at::_scaled_dot_product_flash_attention_for_cpu_backward(d, q, k, v, library_out,
                                                                    log_sum, argument(7, 0), true);
         }),
         5 * a_product);
  std::printf(
      "distance of the outputs %.1e\n",
      (split(out, heads) - library_out).norm().item<double>() / library_out.norm().item<double>());
  return 0;
}
