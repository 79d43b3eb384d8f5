#include "core/data/sampling/blended.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/data/sampling/random_dataset.hpp"
#include "core/data/sampling/sampling.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BlendOrder, EqualsTheGoldens) {
  json cases = fixture_json("sampling/expected.json").at("blending");
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    SCOPED_TRACE(c.at("weights").dump());
    BlendOrder order(c.at("weights").get<std::vector<double>>());
    std::vector<std::vector<int64_t>> choices;
    for (int64_t i = 0; i < c.at("num_samples"); ++i)
      choices.push_back({order.at(i).part, order.at(i).sample});
    EXPECT_EQ(choices, c.at("dataset_and_sample").get<std::vector<std::vector<int64_t>>>());
  }
}

std::vector<std::vector<double>> many_weights() {
  std::vector<double> many(200);
  for (size_t i = 0; i < many.size(); ++i) many[i] = double(i % 7) + 0.2;
  return {{.5, .5},        {.6, .4},         {.75, .25}, {.2, .8}, {M_PI, 2}, {.3, .4, .3},
          {.75, .05, .20}, {.3, .2, .4, .1}, {1},        {1, 0},   {0, 1},    many};
}

// The rule, one sample after the other: the part that is furthest behind its share, the first of
// them when several are. `weights` add up to 1.
std::vector<BlendOrder::Choice> by_the_rule(const std::vector<double>& weights, int64_t samples) {
  std::vector<BlendOrder::Choice> choices;
  std::vector<int64_t> taken(weights.size(), 0);
  for (int64_t i = 0; i < samples; ++i) {
    std::vector<double> behind(weights.size());
    for (size_t j = 0; j < weights.size(); ++j)
      behind[j] = weights[j] * double(i + 1) - double(taken[j]);
    const int64_t part = std::max_element(behind.begin(), behind.end()) - behind.begin();
    choices.push_back({part, taken[size_t(part)]++});
  }
  return choices;
}

TEST(BlendOrder, EqualsTheRuleForAnyWeights) {
  constexpr int64_t kSamples = 10000;  // several blocks
  for (std::vector<double> weights : many_weights()) {
    SCOPED_TRACE(::testing::PrintToString(weights));
    const BlendOrder forward(weights), backward(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (double& weight : weights) weight /= sum;
    const auto expected = by_the_rule(weights, kSamples);
    for (int64_t i = 0; i < kSamples; ++i) ASSERT_EQ(forward.at(i), expected[size_t(i)]) << i;
    for (int64_t i = kSamples - 1; i >= 0; i -= 97)
      ASSERT_EQ(backward.at(i), expected[size_t(i)]) << i;
  }
}

// What a part is sampled for, ceil(share) + 1, always suffices.
TEST(BlendOrder, StaysWithinASampleOfEachShare) {
  for (const auto& weights : many_weights()) {
    SCOPED_TRACE(::testing::PrintToString(weights));
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const BlendOrder order(weights);
    for (int64_t samples : {100, 10000}) {
      std::vector<int64_t> taken(weights.size(), 0);
      for (int64_t i = 0; i < samples; ++i) ++taken[size_t(order.at(i).part)];
      for (size_t j = 0; j < weights.size(); ++j)
        EXPECT_LE(double(taken[j]), weights[j] / sum * double(samples) + 1) << j;
      if (samples != 100) continue;
      for (size_t j = 0; j < weights.size(); ++j)
        EXPECT_LE(std::abs(double(taken[j]) - weights[j] / sum * 100), 1 + 1e-9) << j;
    }
  }
}

TEST(BlendOrder, RefusesImpossibleWeights) {
  for (const std::vector<double>& weights :
       {std::vector<double>{}, {0, 0}, {1, -1}, {1, NAN}, {INFINITY, 1}}) {
    EXPECT_THAT(message_of([&] { BlendOrder order(weights); }, Status::kInvalid),
                HasSubstr("expected finite weights from 0 up"));
  }
}

TEST(BlendOrder, TakesFiniteWeightsWhoseSumIsNot) {
  constexpr double kHuge = std::numeric_limits<double>::max();
  BlendOrder huge({kHuge, kHuge / 3, 1}), plain({3, 1, 0});
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(huge.at(i), plain.at(i)) << i;
}

TEST(Blended, SamplesItsPartsForTheirShareWithSeedsOfTheirOwn) {
  struct Asked {
    int64_t samples;
    uint64_t seed;
    bool operator==(const Asked&) const = default;
  };
  auto ask = [](bool legacy) {
    std::vector<Asked> asked;
    auto part = [&](int64_t count, uint64_t seed) {
      asked.push_back({count, seed});
      return make_random("part", count, 5, 8192, seed);
    };
    make_blended("blend", {{3, part}, {1, part}}, 10, 54983, legacy);
    return asked;
  };
  EXPECT_EQ(ask(false), (std::vector<Asked>{{9, 54983}, {4, 54983 + 697}}));
  // ceil(0.75 (10 + 5 sqrt(2.5))) and ceil(0.25 (10 + 5 sqrt(7.5)))
  EXPECT_EQ(ask(true), (std::vector<Asked>{{14, 54983}, {6, 54983}}));
}

TEST(Blended, MixesAStreamWithRandomSamples) {
  std::vector<std::vector<int64_t>> documents{std::vector<int64_t>(40, 1)};
  auto stream = [&](int64_t count, uint64_t seed) {
    return make_sampled(std::make_shared<FakeDocuments>(documents),
                        {count, 5, seed, Shuffle::kEpoch});
  };
  auto random = [](int64_t count, uint64_t seed) {
    return make_random("dummy", count, 5, 8192, seed);
  };
  auto blended = make_blended("blend", {{0.6, stream}, {0.4, random}}, 8, 54983);
  std::vector<int64_t> from_stream;
  for (int64_t i = 0; i < 8; ++i) {
    if (read_sample(*blended, i, 5) == std::vector<int64_t>(6, 1)) from_stream.push_back(i);
  }
  EXPECT_THAT(from_stream, ElementsAre(0, 2, 4, 5, 7));
  EXPECT_THAT(read_sample(*blended, 1, 5), ElementsAre(916, 6683, 7685, 1277, 5106, 378));
  EXPECT_THAT(read_sample(*blended, 3, 5), ElementsAre(3359, 6803, 780, 4561, 669, 7878));
  EXPECT_EQ(blended->locate(2, 1), "position 6 of document 0 of fake");
  EXPECT_EQ(blended->fingerprints().size(), 2u);
  EXPECT_FALSE(blended->has_spans());
  EXPECT_EQ(blended->name(), "blend");
  EXPECT_THAT(message_of([&] { read_sample(*blended, 8, 5); }, Status::kInvalid),
              HasSubstr("from 0 to 7"));
  EXPECT_THAT(message_of([] { make_blended("blend", {}, 8, 0); }, Status::kInvalid),
              HasSubstr("at least one dataset"));
}

}  // namespace
}  // namespace fastllm::data
