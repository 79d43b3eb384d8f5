// Known answers of Philox, statistics of the streams, and independence of initial weights from threads and layout.
#include "core/train/executor/initialize.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <set>

#include "core/base/tensor.hpp"
#include "core/train/executor/random.hpp"
#include "tests/support/gpt_description.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::train {
namespace {

using testing::ElementsAre;

// The known-answer vectors that come with the paper's implementation.
TEST(Philox, KnownAnswers) {
  EXPECT_THAT(philox({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(philox({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(Random, UniformNumbersAreTheWordsOfPhilox) {
  const uint64_t key = 0x299f31d0a4093822;
  const int64_t first = (int64_t(1) << 40) + 5;  // counters beyond 32 bits
  std::vector<float> numbers(200);
  fill_uniform(numbers.data(), first, 200, key, 0, 1);
  for (int64_t k = 0; k < 200; ++k) {
    const uint64_t n = uint64_t(first + k), counter = n / 64 * 16 + n % 16;
    const auto words = philox({uint32_t(counter), uint32_t(counter >> 32), 0, 0},
                              {uint32_t(key), uint32_t(key >> 32)});
    EXPECT_EQ(numbers[k], float(words[n / 16 % 4] >> 8) * 0x1p-24f) << k;
  }
}

TEST(Random, NormalNumbersAreBoxMullerOfThem) {
  const uint64_t key = 77;
  std::vector<float> numbers(1 << 16);
  fill_normal(numbers.data(), 0, int64_t(numbers.size()), key, 0, 1);
  double largest = 0;
  for (uint64_t n = 0; n < numbers.size(); ++n) {
    const uint64_t counter = n / 64 * 16 + n % 16;
    const auto words =
        philox({uint32_t(counter), uint32_t(counter >> 32), 0, 0}, {uint32_t(key), 0});
    const size_t word = n / 16 % 4, pair = word & 2;
    // The generator rounds its argument to float; from there on everything here is double.
    const double u = double(float(int32_t(words[pair] >> 1)) + 0.25f) * 0x1p-31;
    const double radius = std::sqrt(-2 * std::log(u)), angle = 2 * M_PI * words[pair + 1] * 0x1p-32;
    const double expected = radius * (word & 1 ? std::sin(angle) : std::cos(angle));
    largest = std::max(largest, std::fabs(numbers[n] - expected) / (1 + std::fabs(expected)));
  }
  EXPECT_LT(largest, 1e-6);
}

TEST(Random, AnyPartEqualsTheSamePartOfTheWhole) {
  std::vector<float> whole(1000);
  fill_normal(whole.data(), 0, 1000, 3, 1, 2);
  for (const auto& [first, count] :
       {std::pair{0, 1}, {1, 63}, {63, 2}, {64, 64}, {130, 777}, {999, 1}}) {
    std::vector<float> part(count);
    fill_normal(part.data(), first, count, 3, 1, 2);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first)) << first;
  }
}

struct Moments {
  double mean = 0, variance = 0, fourth = 0, lag = 0;
};

Moments moments(const std::vector<float>& x) {
  Moments m;
  const double n = double(x.size());
  for (float v : x) m.mean += v / n;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] - m.mean;
    m.variance += d * d / n;
    m.fourth += d * d * d * d / n;
    if (i > 0) m.lag += d * (x[i - 1] - m.mean) / n;
  }
  return m;
}

TEST(Random, NormalStatistics) {
  constexpr int64_t n =
      1 << 20;  // standard errors: mean 0.001, variance 0.0014, fourth moment 0.01
  std::vector<float> a(n), b(n);
  fill_normal(a.data(), 0, n, stream_key(1, "a"), 0, 1);
  fill_normal(b.data(), 0, n, stream_key(1, "b"), 0, 1);
  const Moments m = moments(a);
  EXPECT_NEAR(m.mean, 0, 0.005);
  EXPECT_NEAR(m.variance, 1, 0.007);
  EXPECT_NEAR(m.fourth, 3, 0.05);
  EXPECT_NEAR(m.lag, 0, 0.005);
  double together = 0;
  for (int64_t i = 0; i < n; ++i) together += double(a[i]) * b[i] / n;
  EXPECT_NEAR(together, 0, 0.005);  // streams of two names
  EXPECT_LT(*std::max_element(a.begin(), a.end()), 7);
}

TEST(Random, UniformStaysInItsBounds) {
  std::vector<float> x(1 << 18);
  fill_uniform(x.data(), 0, int64_t(x.size()), 9, -0.25f, 0.5f);
  EXPECT_GE(*std::min_element(x.begin(), x.end()), -0.25f);
  EXPECT_LT(*std::max_element(x.begin(), x.end()), 0.5f);
  const Moments m = moments(x);
  EXPECT_NEAR(m.mean, 0.125, 0.003);
  EXPECT_NEAR(m.variance, 0.75 * 0.75 / 12, 0.001);
  fill_uniform(x.data(), 0, 100, 9, 1, 1);
  EXPECT_EQ(x[0], 1);
}

TEST(Random, KeysDifferBySeedAndName) {
  std::set<uint64_t> keys;
  for (uint64_t seed : {0, 1, 2})
    for (const char* name : {"", "a", "b", "ab", "ba"}) keys.insert(stream_key(seed, name));
  EXPECT_EQ(keys.size(), 15u);
}

// ---------------------------------------------------------------- a store

// A model that is only described, and asked to initialise.
class Described : public test::ToyModel {
 public:
  explicit Described(model::Description d) : ToyModel(test::ToyOptions()), d_(std::move(d)) {}
  const model::Description& description() const override { return d_; }

 private:
  model::Description d_;
};

model::Description description(bool frozen = false) {
  test::GptShape shape;
  shape.layers = 2;
  shape.hidden = 96;
  shape.heads = 4;
  shape.vocabulary = 1000;
  shape.positions = 33;
  if (frozen) shape.scales["mlp"] = {0};
  return test::gpt_description(shape);
}

// Values by parameter, in local order.
std::vector<std::vector<float>> weights(model::Description d, double layers_per_stage = 1,
                                        uint64_t seed = 1) {
  Described model(std::move(d));
  const shard::Layout layout(model.description(), {}, {layers_per_stage, 1});
  shard::Store store(layout, 0, {});
  std::fill_n(store.flat_data("weights"),
              layout.state_elements(0, "weights") + 3 * layout.state_elements(0, "grads"), 9.0f);
  initialize(store, model, seed);
  for (const char* state : {"exp_avgs", "exp_avgs_sq", "grads"})
    for (int64_t i = 0; i < store.flat(state)->shape[0]; ++i)
      EXPECT_EQ(store.flat_data(state)[i], 0);
  std::vector<std::vector<float>> result(model.description().parameters.size());
  for (const shard::Stage& stage : layout.stages()) {
    EXPECT_FALSE(store.restored(stage.index));
    store.restore(stage.index);
    for (size_t g = 0; g < stage.groups.size(); ++g) {
      const shard::Group& group = stage.groups[g];
      for (const shard::Piece& piece : group.pieces) {
        const float* at = static_cast<const float*>(store.weight(piece.parameter)->data);
        result[piece.parameter].assign(at, at + (piece.end - piece.begin));
      }
      const float* shard =
          store.flat_data("weights") + layout.shard_begin(0, "weights", stage.index, int(g));
      for (int64_t i = group.count; i < group.elements; ++i)
        EXPECT_EQ(shard[i], 0) << group.name << " padding";
    }
  }
  return result;
}

TEST(Initialize, GivesEachKindItsValues) {
  model::Description d = description();
  d.parameters[0].init_b = 0.5;
  d.parameters[1].init_min = -0.01;
  d.parameters[1].init_max = 0.005;
  d.parameters[2].init = FASTLLM_INIT_ONES;
  d.parameters[3].init = FASTLLM_INIT_UNIFORM;
  d.parameters[3].init_a = 2;
  d.parameters[3].init_b = 3;
  d.parameters[4].init = FASTLLM_INIT_PLUGIN;
  const auto found = weights(d);
  EXPECT_NEAR(std::sqrt(moments(found[0]).variance), 0.5, 0.01);
  EXPECT_FLOAT_EQ(*std::min_element(found[1].begin(), found[1].end()), -0.01f);
  EXPECT_FLOAT_EQ(*std::max_element(found[1].begin(), found[1].end()), 0.005f);
  EXPECT_THAT(found[2], testing::Each(1.0f));
  EXPECT_THAT(found[3], testing::Each(testing::AllOf(testing::Ge(2.0f), testing::Lt(3.0f))));
  const float shift = float(stream_key(1, d.parameters[4].name) % 3);
  for (size_t i = 0; i < found[4].size(); ++i) EXPECT_EQ(found[4][i], float(i % 7) + shift);
}

// Values are made in float32 in the shards, whatever the training type: runs of different types
// start from the same weights, also those that the plugin makes.
TEST(Initialize, TheTrainingTypeDoesNotChangeMasterWeights) {
  model::Description d = description();
  d.parameters[4].init = FASTLLM_INIT_PLUGIN;
  std::vector<float> expected;
  for (const DLDataType type : {kFloat32, kBfloat16, kFloat16}) {
    Described model(d);
    const shard::Layout layout(model.description(), {}, {});
    shard::StoreOptions options;
    options.training = type;
    shard::Store store(layout, 0, options);
    initialize(store, model, 1);
    const float* weights = store.flat_data("weights");
    const std::vector<float> found(weights, weights + store.flat("weights")->shape[0]);
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected) << dtype_text(type);
  }
}

TEST(Initialize, DependsOnSeedAndNameAlone) {
  const auto base = weights(description());
  EXPECT_EQ(weights(description()), base);
  EXPECT_EQ(weights(description(), 2.5), base);         // another split into stages
  EXPECT_EQ(weights(description(true)), base);          // frozen groups lie elsewhere
  EXPECT_NE(weights(description(), 1, 2)[0], base[0]);  // another seed
  const int usual = omp_get_max_threads();
  omp_set_num_threads(1);
  EXPECT_EQ(weights(description()), base);
  omp_set_num_threads(3);
  EXPECT_EQ(weights(description()), base);
  omp_set_num_threads(usual);
  const model::Description d = description();
  for (size_t p = 0; p < d.parameters.size(); ++p) {
    if (d.parameters[p].init != FASTLLM_INIT_NORMAL) continue;
    std::vector<float> expected(d.parameters[p].elements());  // element i of the parameter's stream
    fill_normal(expected.data(), 0, d.parameters[p].elements(), stream_key(1, d.parameters[p].name),
                0, 0.02f);
    EXPECT_EQ(base[p], expected) << d.parameters[p].name;
  }
}

}  // namespace
}  // namespace fastllm::train
