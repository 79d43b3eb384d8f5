// The rotary embedding on its own: against its formula for every type and size of head, both
// layouts of pairs against each other, and the corners of YaRN's blend.
#include "layers/rotary.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/parity/layer_harness.hpp"
#include "tests/parity/plain_rotary.hpp"

namespace fastllm::gpt {
namespace {

using namespace testing;

struct Size {
  int64_t batch, sequence, heads, width;
};

GptConfig rotary_config(const Size& size, RotaryKind kind, double theta = 10000) {
  GptConfig c = small_config();
  c.heads = size.heads;
  c.head_width = size.width;
  c.rotary.kind = kind;
  c.rotary.theta = theta;
  if (kind == RotaryKind::kYarn) c.rotary.attention_factor = 0.1 * std::log(8.0) + 1;
  return c;
}

at::Tensor positions_of(const Size& size) {
  return at::arange(size.sequence, at::kLong).expand({size.batch, size.sequence}).contiguous();
}

// x [batch, sequence, heads * width], turned in place.
void turn(const GptConfig& c, const Size& size, const at::Tensor& x, bool backward = false) {
  Rotary(c).apply(x.flatten(0, 1), size.heads, positions_of(size).flatten(), size.sequence,
                  backward);
}

TEST(GptRotary, IsLikeItsFormulaInEverySize) {
  struct Type {
    RotaryKind kind;
    double theta;
  };
  for (const Type type : {Type{RotaryKind::kDefault, 1e4},
                          {RotaryKind::kDefault, 5e5},
                          {RotaryKind::kLinear, 1e4},
                          {RotaryKind::kLlama3, 5e5},
                          {RotaryKind::kYarn, 1e4}}) {
    for (int64_t width : {16, 32, 64}) {
      for (int64_t sequence : {8, 24}) {
        for (bool interleaved : {false, true}) {
          SCOPED_TRACE(::testing::Message()
                       << int(type.kind) << " " << width << " " << sequence << interleaved);
          at::manual_seed(1);
          const Size size{2, sequence, 4, width};
          GptConfig c = rotary_config(size, type.kind, type.theta);
          c.rotary.interleaved = interleaved;
          const auto x = at::randn({size.batch, sequence, 4 * width}, at::kFloat);
          const auto heads = [&](const at::Tensor& rows) {
            return rows.to(at::kDouble).unflatten(-1, {4, width}).transpose(1, 2);
          };
          auto found = x.clone();
          turn(c, size, found);
          EXPECT_LT(distance(heads(found), plain_rotary(c, heads(x), positions_of(size))), 2e-7);
          // Back again: the factor of YaRN comes in twice.
          turn(c, size, found, true);
          EXPECT_LT(distance(found, x * std::pow(c.rotary.attention_factor, 2)), 3e-7);
        }
      }
    }
  }
}

// Elements 2i, 2i + 1 of each head moved to i, i + half.
at::Tensor halves_of_pairs(const at::Tensor& x, const Size& size) {
  return x.view({size.batch, size.sequence, size.heads, size.width / 2, 2})
      .transpose(-1, -2)
      .contiguous()
      .view(x.sizes());
}

TEST(GptRotary, TurnsBothLayoutsOfPairsAlike) {
  for (const Size size : {Size{4, 256, 8, 128}, {1, 32, 1, 16}, {3, 519, 7, 134}}) {
    SCOPED_TRACE(size.width);
    at::manual_seed(2);
    GptConfig c = rotary_config(size, RotaryKind::kDefault);
    const auto pairs = at::randn({size.batch, size.sequence, size.heads * size.width}, at::kFloat);
    const auto halves = halves_of_pairs(pairs, size), before = pairs.clone();
    turn(c, size, halves);
    c.rotary.interleaved = true;
    turn(c, size, pairs);
    EXPECT_TRUE(halves_of_pairs(pairs, size).equal(halves));
    EXPECT_GT(distance(pairs, before), 0.1);
  }
}

// Keys and values of a token lie side by side.
TEST(GptRotary, TurnsKeysAndLeavesTheValuesBesideThemAlone) {
  const Size size{2, 24, 4, 16};
  const auto key_value = at::randn({2, 24, 2 * 4 * 16}, at::kFloat), before = key_value.clone();
  turn(rotary_config(size, RotaryKind::kDefault), size, key_value);
  EXPECT_TRUE(key_value.narrow(-1, 64, 64).equal(before.narrow(-1, 64, 64)));
  EXPECT_GT(distance(key_value.narrow(-1, 0, 64), before.narrow(-1, 0, 64)), 0.1);
}

// What a pair is turned by from one position to the next, read off the unit vector.
std::vector<double> frequencies(const GptConfig& c) {
  const int64_t half = c.head_width / 2;
  const auto x = at::zeros({1, c.head_width}, at::kFloat);
  x.narrow(1, 0, half).fill_(1);
  Rotary(c).apply(x, 1, at::ones({1}, at::kLong), 2, false);
  std::vector<double> result;
  for (int64_t i = 0; i < half; ++i)
    result.push_back(std::atan2(x[0][half + i].item<double>(), x[0][i].item<double>()));
  return result;
}

// YaRN blends the pairs from `low` to `high` into those that are slowed down by the factor.
TEST(GptRotary, BlendsTheRightPairsAtTheEdgesOfYarn) {
  struct Case {
    const char* name;
    int64_t width;
    double theta, context, beta_fast, beta_slow;
    std::vector<double> slowed;  // share by pair
  };
  const double third = 1.0 / 3, part = 1.0 / 14;
  const std::vector<Case> cases{
      // corners -0.99 and 2.02
      {"low held at 0", 16, 1e4, 64, 32, 1, {0, third, 2 * third, 1, 1, 1, 1, 1}},
      // corners 1.36 and 20.7
      {"high held at width - 1",
       16,
       16,
       8192,
       815,
       1,
       {0, 0, part, 2 * part, 3 * part, 4 * part, 5 * part, 6 * part}},
      // both corners 2, to the bit: 16 / (2 / pi * 2 * pi) = 4 = theta^(2 * 2 / width)
      {"low equals high", 8, 16, 16, 2 / M_PI, 2 / M_PI, {0, 0, 0, 1}},
      // both corners -0.39: floor is held at 0, ceil is -0
      {"both are 0", 16, 1e4, 8, 2, 2, {0, 1, 1, 1, 1, 1, 1, 1}},
      // corners 42.8 and 82.8
      {"high held below low", 16, 2, 8192, 32, 1, {1, 1, 1, 1, 1, 1, 1, 1}},
      // corners -6.4, and less
      {"high below 0", 16, 10, 1, 4, 1, {0, 0, 0, 0, 0, 0, 0, 0}},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    GptConfig c = rotary_config({1, 1, 1, one.width}, RotaryKind::kYarn, one.theta);
    c.rotary.scale_factor = 4;
    c.rotary.original_context_length = one.context;
    c.rotary.beta_fast = one.beta_fast;
    c.rotary.beta_slow = one.beta_slow;
    const auto found = frequencies(c);
    ASSERT_EQ(found.size(), one.slowed.size());
    for (size_t pair = 0; pair < found.size(); ++pair) {
      const double plain = std::pow(one.theta, -2.0 * double(pair) / double(one.width)),
                   slowed = one.slowed[pair];
      const double expected = plain * (1 - slowed + slowed / 4);
      EXPECT_NEAR(found[pair], expected, 1e-6 * expected) << pair;
    }
    EXPECT_LT(distance(at::tensor(found, at::kDouble), plain_frequencies(c)), 1e-6);
  }
}

}  // namespace
}  // namespace fastllm::gpt
