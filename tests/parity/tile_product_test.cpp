// The products of attention against LibTorch's, for every count of rows, in both layouts of the
// left matrix, with padding on all sides.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "kernels/tile_product.hpp"
#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using testing::distance;

at::Tensor pack(const at::Tensor& matrix, bool transposed) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const auto panels = at::full({padded(rows) * padded(columns)}, NAN);
  (transposed ? pack_transposed_panels : pack_panels)(rows, columns, matrix.stride(0),
                                                      matrix.const_data_ptr<float>(),
                                                      panels.mutable_data_ptr<float>());
  return panels;
}

at::Tensor multiply(const at::Tensor& left, const at::Tensor& panels, int64_t columns,
                    at::Tensor result, bool add) {
  const int64_t rows = left.size(0), depth = left.size(1);
  for (int64_t panel = 0; panel < panels_of(columns); ++panel) {
    multiply_panel(rows, depth, {left.const_data_ptr<float>(), left.stride(0), left.stride(1)},
                   panels.const_data_ptr<float>() + panel * depth * kPanel, add,
                   result.mutable_data_ptr<float>() + panel * kPanel, result.stride(0));
  }
  return result;
}

TEST(GptTileProduct, IsLikeTheLibrarysForEveryShape) {
  at::manual_seed(4);
  for (int64_t rows = 1; rows <= 27; ++rows) {
    for (int64_t columns : {1, 15, 16, 33}) {
      for (int64_t depth : {1, 7, 64}) {
        // Parts of larger matrices, whose other elements must not matter.
        const auto wide = at::randn({rows, depth + 3}).narrow(1, 1, depth);
        const auto tall = at::randn({depth, rows + 3}).narrow(1, 2, rows).t();
        const auto right = at::randn({depth, columns + 5}).narrow(1, 3, columns);
        const auto panels = pack(right, false);
        const auto transposed = pack(right.t().contiguous(), true);
        const auto size = panels_of(columns) * depth * kPanel;
        EXPECT_TRUE(panels.narrow(0, 0, size).equal(transposed.narrow(0, 0, size)));
        const auto start = at::randn({rows, padded(columns)});
        for (const auto& left : {wide, tall}) {
          const auto expected = left.to(at::kDouble).matmul(right.to(at::kDouble));
          const auto written =
              multiply(left, panels, columns, at::full({rows, padded(columns)}, NAN), false);
          EXPECT_LT(distance(written.narrow(1, 0, columns), expected), 1e-6);
          const auto added = multiply(left, panels, columns, start.clone(), true);
          EXPECT_LT(distance(added.narrow(1, 0, columns), expected + start.narrow(1, 0, columns)),
                    1e-6);
        }
      }
    }
  }
}

TEST(GptTileProduct, GivesARowTheSameBitsInAnyTile) {
  at::manual_seed(5);
  const auto left = at::randn({29, 50}), right = at::randn({50, 32});
  const auto panels = pack(right, false);
  const auto all = multiply(left, panels, 32, at::empty({29, 32}), false);
  for (int64_t row = 0; row < 29; ++row) {
    const auto alone = multiply(left.narrow(0, row, 1), panels, 32, at::empty({1, 32}), false);
    EXPECT_TRUE(alone.equal(all.narrow(0, row, 1))) << row;
  }
}

}  // namespace
}  // namespace fastllm::gpt
