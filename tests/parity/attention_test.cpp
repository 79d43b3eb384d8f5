// The attention between the projections: against autograd of the plain formula in double
// precision, with ranges, windows and dropout; documents packed against documents alone; and what
// may not depend on threads or on recomputation.
#include <gtest/gtest.h>

#include <ATen/Parallel.h>

#include <cmath>

#include "layers/causal_attention.hpp"
#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using testing::distance;

constexpr double kTolerance = 2e-6;  // of the norm, per tensor: float32 against double

at::Tensor ends(const std::vector<int64_t>& lengths) {
  std::vector<int> sums{0};
  for (int64_t length : lengths) sums.push_back(sums.back() + int(length));
  return at::tensor(sums, at::kInt);
}

struct Tensors {
  at::Tensor query, key_value, d_out;
};
Tensors random_tensors(const AttentionShape& s, int64_t tokens, double size = 1) {
  return {at::randn({tokens, s.heads * s.head_width}, at::kFloat) * size,
          at::randn({tokens, 2 * s.groups * s.head_width}, at::kFloat) * size,
          at::randn({tokens, s.heads * s.head_width}, at::kFloat)};
}

struct Result {
  at::Tensor out, d_query, d_key_value;

  bool equal(const Result& other) const {
    return out.equal(other.out) && d_query.equal(other.d_query) &&
           d_key_value.equal(other.d_key_value);
  }
};
Result run(const AttentionShape& s, const at::Tensor& ranges, const Tensors& t,
           const Dropout& dropout = {}, const SamplePart& part = {}) {
  const sdk::ComputeGuard guard;
  Result r{at::full_like(t.query, NAN), at::full_like(t.query, NAN),
           at::full_like(t.key_value, NAN)};
  const auto softmax = attention_forward(s, ranges, part, dropout, t.query, t.key_value, r.out);
  attention_backward(s, ranges, part, dropout, t.query, t.key_value, softmax, t.d_out, r.d_query,
                     r.d_key_value);
  return r;
}

// [tokens, tokens]: which keys a query may not see.
at::Tensor unseen(const AttentionShape& s, const std::vector<int64_t>& lengths, int64_t tokens) {
  const auto all = at::ones({tokens, tokens}, at::kBool);
  std::vector<int64_t> numbers;
  for (size_t range = 0; range < lengths.size(); ++range)
    numbers.insert(numbers.end(), size_t(lengths[range]), int64_t(range));
  const auto number = at::tensor(numbers, at::kLong);
  auto mask = all.triu(1) | number.unsqueeze(0).ne(number.unsqueeze(1));
  if (s.window > 0) mask = mask | all.tril(-s.window);
  return mask;
}

// factors [heads, tokens, tokens] multiply the weights; undefined: none.
Result plain(const AttentionShape& s, const std::vector<int64_t>& lengths, const Tensors& t,
             const at::Tensor& factors = {}) {
  const int64_t tokens = t.query.size(0), width = s.head_width;
  const auto q = t.query.to(at::kDouble).requires_grad_(true);
  const auto kv = t.key_value.to(at::kDouble).requires_grad_(true);
  const auto heads = [&](const at::Tensor& rows, int64_t count) {
    return rows.reshape({tokens, count, width}).transpose(0, 1);
  };
  const auto shared = [&](int64_t column) {
    return heads(kv.narrow(1, column, s.groups * width), s.groups)
        .repeat_interleave(s.heads / s.groups, 0);
  };
  const auto scores = heads(q, s.heads).matmul(shared(0).transpose(1, 2)) * s.scale;
  auto weights = scores.masked_fill(unseen(s, lengths, tokens), -INFINITY).softmax(-1);
  if (factors.defined()) weights = weights * factors;
  const auto out = weights.matmul(shared(s.groups * width)).transpose(0, 1).reshape({tokens, -1});
  (out * t.d_out.to(at::kDouble)).sum().backward();
  return {out, q.grad(), kv.grad()};
}

void expect_near(const Result& actual, const Result& expected, double tolerance) {
  EXPECT_LT(distance(actual.out, expected.out), tolerance);
  EXPECT_LT(distance(actual.d_query, expected.d_query), tolerance);
  EXPECT_LT(distance(actual.d_key_value, expected.d_key_value), tolerance);
}

// Longer than a block of queries, and no multiple of one; scores up to 30, so that sums of
// exponentials matter.
TEST(GptAttention, IsLikeAutogradOverSeveralBlocksAndWithSharpScores) {
  for (int64_t groups : {1, 2, 4}) {
    for (int64_t length : {1, 2, 64, 150}) {
      SCOPED_TRACE(groups * 1000 + length);
      at::manual_seed(9);
      // With two keys and sharp scores next to nothing is left of the gradient but rounding.
      const AttentionShape s{4, groups, 10, length > 2 ? 1.7 : 0.3};
      const auto t = random_tensors(s, 2 * length, 1.5);
      const std::vector<int64_t> lengths{length, length};
      auto actual = run(s, ends(lengths), t);
      auto expected = plain(s, lengths, t);
      if (length == 1) {  // one key: the weight is 1 whatever the scores
        EXPECT_EQ(actual.d_query.abs().max().item<float>(), 0);
        actual.d_query = expected.d_query = at::ones({1});
        const int64_t keys = groups * 10;
        EXPECT_EQ(actual.d_key_value.narrow(1, 0, keys).abs().max().item<float>(), 0);
      }
      expect_near(actual, expected, 2 * kTolerance);
    }
  }
}

TEST(GptAttention, IsLikeAutogradWithWindowsAndRanges) {
  const std::vector<std::vector<int64_t>> cases = {{200}, {90, 0, 3, 1, 130, 64}, {65, 65, 70}};
  for (const auto& lengths : cases) {
    for (int64_t window : {0, 1, 2, 63, 64, 65, 100, 1000}) {
      for (int64_t groups : {1, 2}) {
        SCOPED_TRACE(window);
        at::manual_seed(window);
        const AttentionShape s{4, groups, 8, 0.35, window};
        const auto ranges = ends(lengths);
        const auto t = random_tensors(s, ranges[-1].item<int64_t>());
        auto actual = run(s, ranges, t);
        auto expected = plain(s, lengths, t);
        if (window == 1) {  // as with one key
          EXPECT_EQ(actual.d_query.abs().max().item<float>(), 0);
          actual.d_query = expected.d_query = at::ones({1});
        }
        expect_near(actual, expected, 2 * kTolerance);
      }
    }
  }
}

// The reference's lengths for packed documents, and more of them than a machine has threads.
TEST(GptAttention, OfPackedDocumentsIsThatOfEachAlone) {
  const std::vector<std::vector<int64_t>> cases = {
      {6, 9}, {4, 1, 10}, {8, 13, 4, 11, 11, 16, 9}, {100, 3, 129}};
  for (const auto& lengths : cases) {
    for (int64_t window : {0, 5}) {
      at::manual_seed(13);
      const AttentionShape s{4, 2, 16, 0.25, window};
      const auto ranges = ends(lengths);
      const auto packed = random_tensors(s, ranges[-1].item<int64_t>());
      const auto together = run(s, ranges, packed);
      for (size_t i = 0; i < lengths.size(); ++i) {
        const auto part = [&](const at::Tensor& rows) {
          return rows.narrow(0, ranges[int64_t(i)].item<int64_t>(), lengths[i]).contiguous();
        };
        const auto alone = run(s, ends({lengths[i]}),
                               {part(packed.query), part(packed.key_value), part(packed.d_out)});
        expect_near({part(together.out), part(together.d_query), part(together.d_key_value)}, alone,
                    kTolerance);
      }
    }
  }
}

TEST(GptAttention, GivesTheSameBitsWithAnyNumberOfThreads) {
  const int threads = at::get_num_threads();
  for (const auto& lengths : {std::vector<int64_t>{200, 200, 200}, std::vector<int64_t>{200},
                              std::vector<int64_t>{70, 10, 1, 150, 30, 90}}) {
    at::manual_seed(9);
    const AttentionShape s{4, 2, 16, 0.25, 80};
    const auto ranges = ends(lengths);
    const auto t = random_tensors(s, ranges[-1].item<int64_t>());
    const auto dropout = make_dropout(0.1, 5);
    at::set_num_threads(1);
    const auto one = run(s, ranges, t, dropout);
    for (int count : {2, 3, 7}) {
      at::set_num_threads(count);
      EXPECT_TRUE(run(s, ranges, t, dropout).equal(one)) << count;
    }
    at::set_num_threads(threads);
  }
}

// ---------------------------------------------------------------- dropout

// With values and output gradients of one-hot rows, the outputs are the weights that met the values
// and the gradients of the values their transpose.
TEST(GptAttention, DropsTheSameWeightsInForwardAndBackward) {
  constexpr int64_t kTokens = 96;
  at::manual_seed(21);
  const AttentionShape s{2, 2, kTokens, 0.01};
  auto t = random_tensors(s, kTokens);
  const auto one_hot = at::eye(kTokens, at::kFloat);
  t.key_value.narrow(1, 2 * kTokens, 2 * kTokens).copy_(at::cat({one_hot, one_hot}, 1));
  t.d_out.copy_(at::cat({one_hot, one_hot}, 1));
  const auto dropout = make_dropout(0.25, stream_key(3, 1, RandomUse::kAttention));
  const auto r = run(s, ends({kTokens}), t, dropout);
  const auto whole = run(s, ends({kTokens}), t);
  const auto seen = at::ones({kTokens, kTokens}, at::kBool).tril();
  int64_t dropped = 0;
  for (int64_t head : {0, 1}) {
    const auto forward = r.out.narrow(1, head * kTokens, kTokens);
    const auto backward = r.d_key_value.narrow(1, (2 + head) * kTokens, kTokens).t();
    const auto kept = forward.ne(0);
    EXPECT_TRUE(kept.equal(backward.ne(0)));
    EXPECT_LT(distance(backward, forward), 1e-6);
    const auto full = whole.out.narrow(1, head * kTokens, kTokens);
    EXPECT_LT(distance(forward, full * kept / 0.75), 1e-6);
    dropped += (seen & ~kept).sum().item<int64_t>();
  }
  const double count = double(kTokens * (kTokens + 1));
  EXPECT_NEAR(double(dropped) / count, 0.25, 5 * std::sqrt(0.25 * 0.75 / count));
  const auto first = r.out.narrow(1, 0, kTokens).ne(0),
             second = r.out.narrow(1, kTokens, kTokens).ne(0);
  EXPECT_FALSE(first.equal(second));  // heads drop each their own
}

TEST(GptAttention, IsLikeAutogradWithDropout) {
  for (int64_t groups : {1, 2}) {
    at::manual_seed(22);
    const std::vector<int64_t> lengths{100, 30};
    const AttentionShape s{4, groups, 12, 0.3, 50};
    const auto t = random_tensors(s, 130);
    const auto dropout = make_dropout(0.3, 77);
    const auto factors = at::empty({4, 130, 130}, at::kDouble);
    for (int64_t i = 0; i < factors.numel(); ++i)
      factors.mutable_data_ptr<double>()[i] = double(dropout.factor(uint64_t(i)));
    expect_near(run(s, ends(lengths), t, dropout), plain(s, lengths, t, factors), 2 * kTolerance);
  }
}

// ---------------------------------------------------------------- parts of samples

// Longer than a block, documents that end where a part does, and before and after it.
TEST(GptAttention, OfAPartOfTheQueriesIsThatOfAllOfThem) {
  constexpr int64_t kSample = 180, kTokens = 2 * kSample;
  const std::vector<std::vector<int64_t>> cases = {
      {180, 180}, {90, 90, 180}, {10, 30, 20, 60, 60, 1, 0, 179}};
  for (const auto& lengths : cases) {
    for (int64_t window : {0, 1, 50, 100}) {
      for (int64_t groups : {1, 2}) {
        at::manual_seed(window);
        const AttentionShape s{4, groups, 8, 0.35, window};
        const auto ranges = ends(lengths);
        const auto t = random_tensors(s, kTokens);
        const auto dropout = make_dropout(0.2, 5);
        const auto all = run(s, ranges, t, dropout);
        for (int64_t ranks : {2, 3, 9}) {
          SCOPED_TRACE(ranks * 1000 + window);
          const int64_t length = kSample / ranks;
          auto sum = at::zeros_like(t.key_value);
          for (int64_t rank = 0; rank < ranks; ++rank) {
            const auto here = [&](const at::Tensor& rows) {
              return rows.view({2, kSample, -1})
                  .narrow(1, rank * length, length)
                  .reshape({2 * length, -1});
            };
            const SamplePart part(kSample, rank * length, length);
            check_ranges(ranges, kTokens, part);
            const auto own =
                run(s, ranges, {here(t.query), t.key_value, here(t.d_out)}, dropout, part);
            EXPECT_LT(distance(own.out, here(all.out)), kTolerance);
            if (window == 1)  // as with one key
              EXPECT_EQ(own.d_query.abs().max().item<float>(), 0);
            else
              EXPECT_LT(distance(own.d_query, here(all.d_query)), 2 * kTolerance);
            sum += own.d_key_value;
          }
          EXPECT_LT(distance(sum, all.d_key_value), 2 * kTolerance);
        }
      }
    }
  }
}

// ---------------------------------------------------------------- errors

std::string refusal(const std::vector<int>& values, int64_t tokens, const SamplePart& part = {}) {
  try {
    check_ranges(at::tensor(values, at::kInt), tokens, part);
  } catch (const sdk::Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(GptAttention, RefusesRangesThatDoNotCoverTheTokensInOrder) {
  const auto sentence = [](const std::string& found) {
    return "cu_seqlens: expected ends of attention ranges that rise from 0 to 10, the tokens of "
           "the micro-batch, found " +
           found + "; whoever builds the batch must deliver them so";
  };
  EXPECT_EQ(refusal({0, 4, 4, 10}, 10), "no error");
  EXPECT_EQ(refusal({}, 10), sentence("none"));
  EXPECT_EQ(refusal({3, 10}, 10), sentence("3 first"));
  EXPECT_EQ(refusal({-1, 10}, 10), sentence("-1 first"));
  EXPECT_EQ(refusal({0, 7, 5, 10}, 10), sentence("5 after 7 at index 2"));
  EXPECT_EQ(refusal({0, 2000000000, -2000000000, 10}, 10),
            sentence("-2000000000 after 2000000000 at index 2"));
  EXPECT_EQ(refusal({0, 11}, 10), sentence("11 last"));
  EXPECT_EQ(refusal({0, 9}, 10), sentence("9 last"));
  EXPECT_EQ(refusal({0}, 10), sentence("0 last"));
}

TEST(GptAttention, RefusesARangeInTwoSamplesThatRanksShare) {
  const SamplePart half(4, 2, 2);
  EXPECT_EQ(refusal({0, 3, 4, 4, 8}, 8, half), "no error");
  EXPECT_EQ(refusal({0, 3, 8}, 8), "no error");
  EXPECT_EQ(refusal({0, 3, 8}, 8, half),
            "cu_seqlens: expected attention ranges inside samples of 4 tokens, of which each "
            "sequence-data rank has a part, found one from 3 to 8 at index 2; whoever builds the "
            "batch must deliver them so");
}

}  // namespace
}  // namespace fastllm::gpt
