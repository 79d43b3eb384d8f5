// The kernels of normalization in ordinary sizes, against autograd in double precision.
#include "kernels/norm.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using namespace testing;

struct Case {
  int64_t rows, columns;
  bool layer, biased, zero_centered;
};

struct Result {
  at::Tensor y, dx, d_weight, d_bias;
};

struct Inputs {
  at::Tensor x, weight, bias, dy;
  explicit Inputs(const Case& c)
      : x(at::randn({c.rows, c.columns}, at::kFloat) + 0.5),
        weight(at::randn({c.columns}, at::kFloat) * 0.1 + (c.zero_centered ? 0.0 : 1.0)),
        bias(at::randn({c.columns}, at::kFloat) * 0.1),
        dy(at::randn_like(x)) {}
};

Result run(const Case& c, const Inputs& in) {
  const NormShape shape{.rows = c.rows,
                        .columns = c.columns,
                        .centered = c.layer,
                        .epsilon = 1e-5f,
                        .offset = c.zero_centered ? 1.0f : 0.0f};
  Result r{at::empty_like(in.x), at::empty_like(in.x), at::empty_like(in.weight),
           at::empty_like(in.bias)};
  const auto mean = at::empty({c.rows}, at::kFloat), inverse = at::empty_like(mean);
  float* const kept_mean = c.layer ? mean.mutable_data_ptr<float>() : nullptr;
  const auto data = [](const at::Tensor& tensor) { return tensor.mutable_data_ptr<float>(); };
  norm_forward(shape, data(in.x), data(in.weight), c.biased ? data(in.bias) : nullptr, data(r.y),
               kept_mean, data(inverse));
  norm_backward(shape, data(in.x), data(in.weight), kept_mean, data(inverse), data(in.dy),
                {.x = data(r.dx),
                 .weight = data(r.d_weight),
                 .bias = c.biased ? data(r.d_bias) : nullptr,
                 .overwrite_weight = true,
                 .overwrite_bias = true});
  return r;
}

Result plain(const Case& c, const Inputs& in) {
  const auto leaf = [](const at::Tensor& t) { return t.to(at::kDouble).requires_grad_(true); };
  const auto x = leaf(in.x), weight = leaf(in.weight), bias = leaf(in.bias);
  const auto centered = c.layer ? x - x.mean({-1}, true) : x;
  auto y = centered / (centered.square().mean({-1}, true) + 1e-5).sqrt() *
           (c.zero_centered ? weight + 1 : weight);
  if (c.biased) y = y + bias;
  (y * in.dy.to(at::kDouble)).sum().backward();
  return {y.detach(), x.grad(), weight.grad(), bias.grad()};
}

TEST(GptNorm, IsLikeAutogradInOrdinarySizes) {
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{32, 128}, {32, 8192}, {1024, 1024}}) {
    for (const bool layer : {false, true}) {
      for (const bool biased : layer ? std::vector{false, true} : std::vector{false}) {
        for (const bool zero_centered : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << rows << "x" << columns << " " << layer << biased << zero_centered);
          at::manual_seed(1);
          const Case c{rows, columns, layer, biased, zero_centered};
          const Inputs in(c);
          const Result found = run(c, in), again = run(c, in), expected = plain(c, in);
          EXPECT_LT(distance(found.y, expected.y), 1e-6);
          EXPECT_LT(distance(found.dx, expected.dx), 1e-6);
          EXPECT_LT(distance(found.d_weight, expected.d_weight), 1e-6);
          EXPECT_TRUE(again.y.equal(found.y) && again.dx.equal(found.dx) &&
                      again.d_weight.equal(found.d_weight));
          if (biased) {
            EXPECT_LT(distance(found.d_bias, expected.d_bias), 1e-6);
            EXPECT_TRUE(again.d_bias.equal(found.d_bias));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fastllm::gpt
