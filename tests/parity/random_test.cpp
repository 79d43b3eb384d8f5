// The random numbers of dropout: known values of the published generator, streams that differ, and
// the share and scale of what is dropped.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernels/random.hpp"

namespace fastllm::gpt {
namespace {

TEST(GptRandom, IsThePublishedGenerator) {
  // The first numbers of splitmix64 from state 1234567, as its authors' implementation prints them.
  const uint64_t expected[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                               4593380528125082431u, 16408922859458223821u};
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(random_bits(1234567, i), expected[i]);
}

TEST(GptRandom, HasAnotherStreamForEverySeedOffsetAndUse) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0, 1, 2}) {
    for (uint64_t offset : {0, 1, 2}) {
      for (auto use : {RandomUse::kAttention, RandomUse::kAttentionOutput, RandomUse::kMlpOutput,
                       RandomUse::kEmbedding}) {
        keys.insert(stream_key(seed, offset, use));
      }
    }
  }
  EXPECT_EQ(keys.size(), 3u * 3 * 4);
}

TEST(GptRandom, DropsTheShareAskedForAndKeepsTheMean) {
  constexpr int64_t kCount = 1 << 20;
  for (double probability : {0.01, 0.1, 0.5, 0.9}) {
    const Dropout dropout = make_dropout(probability, stream_key(7, 0, RandomUse::kAttention));
    ASSERT_TRUE(dropout.active());
    double sum = 0, squares = 0, neighbours = 0, last = 0;
    int64_t dropped = 0;
    for (int64_t i = 0; i < kCount; ++i) {
      const double factor = dropout.factor(uint64_t(i));
      EXPECT_TRUE(factor == 0 || factor == double(float(1 / (1 - probability))));
      dropped += factor == 0;
      sum += factor;
      squares += (factor - 1) * (factor - 1);
      neighbours += (factor - 1) * (last - 1);
      last = factor;
    }
    // Five standard deviations of what independent draws give.
    const double variance = probability / (1 - probability);
    EXPECT_NEAR(double(dropped) / kCount, probability,
                5 * std::sqrt(probability * (1 - probability) / kCount));
    EXPECT_NEAR(sum / kCount, 1, 5 * std::sqrt(variance / kCount));
    const double fourth = probability + std::pow(probability / (1 - probability), 4) *
                                            (1 - probability);  // of the factor about its mean
    EXPECT_NEAR(squares / kCount, variance, 5 * std::sqrt(fourth / kCount));
    EXPECT_NEAR(neighbours / kCount, 0, 5 * variance / std::sqrt(double(kCount)));
  }
}

TEST(GptRandom, DropsNothingWithProbabilityZero) {
  const Dropout dropout = make_dropout(0, 99);
  EXPECT_FALSE(dropout.active());
  for (uint64_t i = 0; i < 1000; ++i) EXPECT_EQ(dropout.factor(i), 1);
}

}  // namespace
}  // namespace fastllm::gpt
