// Products of whole matrices by tiles, against LibTorch's in double precision, for both layouts of both
// sides and sizes around every block's edge.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/matrix_product.hpp"
#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using testing::distance;

at::Tensor multiply(const at::Tensor& left, const at::Tensor& right, bool add, at::Tensor out) {
  const ProductShape shape{left.size(0), right.size(1), left.size(1)};
  const auto scratch = at::full({scratch_size(shape)}, NAN);
  const auto view = [](const at::Tensor& m) {
    return MatrixView{m.const_data_ptr<float>(), m.stride(0), m.stride(1)};
  };
  multiply_matrices(shape, view(left), view(right), add, out.mutable_data_ptr<float>(),
                    out.stride(0), scratch.mutable_data_ptr<float>());
  return out;
}
// Random values, rows or columns contiguous, in larger memory.
at::Tensor random(int64_t rows, int64_t columns, bool transposed) {
  if (transposed) return at::randn({columns, rows + 3}).narrow(1, 2, rows).t();
  return at::randn({rows, columns + 3}).narrow(1, 1, columns);
}

TEST(GptMatrixProduct, IsLikeTheLibrarysForEveryLayout) {
  at::manual_seed(8);
  for (auto [rows, columns, depth] : {std::array<int64_t, 3>{1, 1, 1},
                                      {48, 512, 384},
                                      {49, 513, 385},
                                      {100, 30, 900},
                                      {7, 9000, 3},
                                      {200, 16, 64}}) {
    for (int layout = 0; layout < 4; ++layout) {
      SCOPED_TRACE(rows * 10 + layout);
      const auto left = random(rows, depth, layout & 1), right = random(depth, columns, layout & 2);
      const auto expected = left.to(at::kDouble).matmul(right.to(at::kDouble));
      const auto frame = at::full({rows, columns + 20}, 7.0f);
      const auto written = multiply(left, right, false, frame.narrow(1, 2, columns));
      EXPECT_LT(distance(written, expected), 1e-6);
      EXPECT_TRUE(frame.narrow(1, columns + 2, 18).eq(7).all().item<bool>());
      EXPECT_TRUE(frame.narrow(1, 0, 2).eq(7).all().item<bool>());
      const auto start = at::randn({rows, columns});
      EXPECT_LT(distance(multiply(left, right, true, start.clone()), expected + start), 1e-6);
    }
  }
}

TEST(GptMatrixProduct, GivesTheSameBitsWithAnyNumberOfThreads) {
  at::manual_seed(9);
  const auto left = random(150, 500, true), right = random(500, 700, false);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = multiply(left, right, false, at::empty({150, 700}));
  at::set_num_threads(5);
  const auto five = multiply(left, right, false, at::empty({150, 700}));
  at::set_num_threads(threads);
  EXPECT_TRUE(one.equal(five));
}

}  // namespace
}  // namespace fastllm::gpt
