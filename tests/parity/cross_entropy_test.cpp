// The kernel of the losses in ordinary sizes, against autograd in double precision.
#include "kernels/cross_entropy.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using namespace testing;

constexpr int64_t kRows = 64;
constexpr double kTolerance = 1e-6;  // of the norm; of a sum, relative

struct Losses {
  at::Tensor cross_entropy, z, gradient;
};

Losses plain(const at::Tensor& logits, const at::Tensor& labels, const LossFactors& factors) {
  const auto x = logits.to(at::kDouble).requires_grad_(true);
  const auto z = x.logsumexp(-1);
  const auto counts = labels.ne(kNoLabel);
  const auto target = x.gather(-1, labels.clamp_min(0).unsqueeze(-1)).squeeze(-1);
  Losses losses{((z - target) * counts).sum(), (z.square() * counts).sum(), {}};
  (losses.cross_entropy * factors.cross_entropy + losses.z * factors.z).backward();
  losses.gradient = x.grad();
  return losses;
}

void expect_like_autograd(const at::Tensor& logits, const at::Tensor& labels,
                          const LossFactors& factors) {
  const Losses expected = plain(logits, labels, factors);
  const auto run = [&](const at::Tensor& from, const at::Tensor& gradient) {
    return cross_entropy(from.const_data_ptr<float>(), labels.const_data_ptr<int64_t>(), kRows,
                         logits.size(1), factors,
                         gradient.defined() ? gradient.mutable_data_ptr<float>() : nullptr);
  };
  const auto gradient = at::empty_like(logits), in_place = logits.clone();
  const LossSums kept = run(logits, gradient), replaced = run(in_place, in_place),
                 alone = run(logits, {});
  for (const LossSums& sums : {kept, replaced, alone}) {
    EXPECT_NEAR(sums.cross_entropy / expected.cross_entropy.item<double>(), 1, kTolerance);
    EXPECT_NEAR(sums.z / expected.z.item<double>(), 1, kTolerance);
    EXPECT_EQ(sums.cross_entropy, kept.cross_entropy);
    EXPECT_EQ(sums.z, kept.z);
  }
  EXPECT_LT(distance(gradient, expected.gradient), kTolerance);
  EXPECT_TRUE(in_place.equal(gradient));
}

TEST(GptCrossEntropy, IsLikeAutogradInOrdinarySizes) {
  for (const int64_t columns : {256, 500, 1000}) {
    for (const double scale : {1.0, 3.0, 4.0}) {
      for (const bool masked : {false, true}) {
        at::manual_seed(1);
        const auto logits = at::randn({kRows, columns}, at::kFloat) * scale;
        const auto labels = at::randint(0, columns, {kRows}, at::kLong);
        if (masked) labels.masked_fill_(at::rand({kRows}) < 0.3, kNoLabel);
        for (const LossFactors factors :
             {LossFactors{1, 0}, {2, 0}, {4, 0}, {0, 1}, {0, 4}, {1, 0.01}}) {
          SCOPED_TRACE(::testing::Message() << columns << " " << scale << " " << masked << " "
                                            << factors.cross_entropy << " " << factors.z);
          expect_like_autograd(logits, labels, factors);
        }
      }
    }
  }
}

}  // namespace
}  // namespace fastllm::gpt
