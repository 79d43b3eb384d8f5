// One step of training and evaluation with a small model in plain loops: gradients against finite differences, every way to
// run the same step against the others, what is kept and what is not, and what happens when a call fails.
#include "core/train/executor/executor.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "core/base/tensor.hpp"
#include "core/shard/elements.hpp"
#include "core/train/executor/initialize.hpp"
#include "core/train/executor/wiring.hpp"
#include "tests/support/message_of.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::train {
namespace {

using test::ToyModel;
using test::ToyOptions;
using testing::HasSubstr;

data::Batch make_batch(int64_t samples, int64_t length, uint32_t seed, int masked = 0) {
  std::mt19937 random(seed);
  data::Batch batch;
  batch.samples = samples;
  batch.length = length;
  for (int64_t i = 0; i < samples * length; ++i) {
    batch.tokens.push_back(int64_t(random() % 11));
    batch.labels.push_back(i < masked ? data::kIgnoredLabel : int64_t(random() % 11));
    batch.positions.push_back(i % length);
    batch.documents.push_back(0);
  }
  batch.cu_seqlens = {0, int32_t(samples * length)};
  batch.valid_labels = samples * length - masked;
  return batch;
}

struct RigOptions {
  ToyOptions model;
  shard::StoreOptions store;
  ExecutorOptions executor;
  double layers_per_stage = 1;
};

struct Rig {
  ToyModel model;
  shard::Layout layout;
  shard::Store store;
  Executor executor;

  explicit Rig(const RigOptions& o = {})
      : model(o.model),
        layout(model.description(), {}, {o.layers_per_stage, 1}),
        store(layout, 0, o.store),
        executor(model, store, o.executor) {
    initialize(store, model, 5);
  }

  static StepInput input(const std::vector<data::Batch>& batches, int64_t step = 1) {
    StepInput input;
    for (const data::Batch& batch : batches) input.add(batch);
    input.step = step;
    return input;
  }

  StepOutput train(const std::vector<data::Batch>& batches, int depth, int breadth,
                   int64_t step = 1, Observer* observer = nullptr) {
    return executor.train(input(batches, step),
                          model::make_schedule(schedule_options(store, depth, breadth, true)),
                          observer);
  }
  StepOutput evaluate(const std::vector<data::Batch>& batches, Observer* observer = nullptr) {
    return executor.evaluate(
        input(batches),
        model::make_schedule(schedule_options(store, int(batches.size()), 1, false)), observer);
  }
  std::vector<float> gradients() {
    return {store.flat_data("grads"), store.flat_data("grads") + store.flat("grads")->shape[0]};
  }
  const ToyModel::Counts& count(const std::string& layer) {
    for (size_t l = 0; l < model.description().layers.size(); ++l)
      if (model.description().layers[l].name == layer) return model.counts[l];
    throw std::logic_error(layer);
  }
};

// Calls back with every value it sees; also optional ones, when told so.
class Watcher : public Observer {
 public:
  using Look = std::function<void(const std::string& name, const Seen&)>;  // "layer.output"
  Watcher(const model::Description& description, Look look, Wants wants = Wants::kAlways)
      : description_(description), look_(std::move(look)), wants_(wants) {}
  Wants wants(const Output&) const override { return wants_; }
  void see(const Seen& seen) override {
    const model::Layer& layer = description_.layers.at(size_t(seen.what.layer));
    look_(layer.name + "." + layer.outputs.at(size_t(seen.what.output)).name, seen);
  }

 private:
  const model::Description& description_;
  const Look look_;
  const Wants wants_;
};

double total(const StepOutput& output) {
  double sum = 0;  // what backward minimises: the sum over layers of what is reported as their mean
  for (const auto& [name, loss] : output.losses) sum += loss * (name == "energy" ? 2 : 1);
  return sum;
}

// d total / d weight for every trainable weight, from the loss alone.
void expect_gradients_like_differences(const RigOptions& options) {
  Rig rig(options);
  const std::vector<data::Batch> batches{make_batch(2, 3, 1, 2)};
  rig.train(batches, 1, 1);
  const std::vector<float> found = rig.gradients();
  float* weights = rig.store.flat_data("weights");
  int compared = 0;
  for (const shard::Stage& stage : rig.layout.stages())
    for (size_t g = 0; g < stage.groups.size(); ++g) {
      if (stage.groups[g].frozen) continue;
      const int64_t w = rig.layout.shard_begin(0, "weights", stage.index, int(g)),
                    s = rig.layout.shard_begin(0, "grads", stage.index, int(g));
      for (int64_t i = 0; i < stage.groups[g].count; ++i) {
        const float before = weights[w + i];
        double value[2];
        for (int side = 0; side < 2; ++side) {
          weights[w + i] = before + (side ? 5e-3f : -5e-3f);
          rig.store.invalidate();
          value[side] = total(rig.evaluate(batches));
        }
        weights[w + i] = before;
        EXPECT_NEAR(found[s + i], (value[1] - value[0]) / 1e-2, 1e-3)
            << stage.groups[g].name << " element " << i;
        ++compared;
      }
    }
  EXPECT_GT(compared, 0);
}

TEST(Executor, GradientsEqualFiniteDifferences) { expect_gradients_like_differences({}); }

TEST(Executor, GradientsEqualFiniteDifferencesUntied) {
  RigOptions options;
  options.model.tied = false;
  expect_gradients_like_differences(options);
}

TEST(Executor, GradientsEqualFiniteDifferencesRecomputed) {
  RigOptions options;
  options.executor.recompute = true;
  expect_gradients_like_differences(options);
}

TEST(Executor, GradientsEqualFiniteDifferencesAroundAFrozenLayer) {
  RigOptions options;
  options.model.frozen = {3};  // the second block
  expect_gradients_like_differences(options);
}

TEST(Executor, LossIsTheSumOverValidLabels) {
  Rig rig;
  std::vector<data::Batch> batches{make_batch(1, 4, 1, 0), make_batch(1, 4, 2, 3)};
  const StepOutput both = rig.evaluate(batches);
  const StepOutput first = rig.evaluate({batches[0]}), second = rig.evaluate({batches[1]});
  EXPECT_NEAR(both.losses.at("loss"), (4 * first.losses.at("loss") + second.losses.at("loss")) / 5,
              1e-6);
  EXPECT_NEAR(both.losses.at("energy"),
              (first.losses.at("energy") + second.losses.at("energy")) / 2, 1e-6);
  EXPECT_NEAR(both.metrics.at("accuracy"),
              (4 * first.metrics.at("accuracy") + second.metrics.at("accuracy")) / 5, 1e-6);
}

TEST(Executor, NoValidLabelGivesZero) {
  RigOptions options;
  options.model.auxiliary = false;
  Rig rig(options);
  const StepOutput output = rig.train({make_batch(1, 4, 1, 4)}, 1, 1);
  EXPECT_EQ(output.losses.at("loss"), 0);
  EXPECT_EQ(output.metrics.at("accuracy"), 0);
  EXPECT_THAT(rig.gradients(), testing::Each(0.0f));
}

TEST(Executor, LossScaleMultipliesGradientsAlone) {
  Rig plain, scaled;
  const std::vector<data::Batch> batches{make_batch(2, 3, 1)};
  const StepOutput a = plain.train(batches, 1, 1);
  StepInput input = Rig::input(batches);
  input.loss_scale = 8;
  const StepOutput b = scaled.executor.train(
      input, model::make_schedule(schedule_options(scaled.store, 1, 1, true)));
  EXPECT_EQ(a.losses, b.losses);
  std::vector<float> expected = plain.gradients();
  for (float& g : expected) g *= 8;
  EXPECT_EQ(scaled.gradients(), expected);
}

// ---------------------------------------------------------------- other training types

RigOptions in_type(DLDataType type, bool full_precision_gradients = true) {
  RigOptions options;
  options.store.training = type;
  options.store.full_precision_gradients = full_precision_gradients;
  return options;
}

TEST(Executor, PortsWithoutATypeHaveTheTrainingTypeAndLossesFloat32) {
  for (const DLDataType type : {kFloat32, kBfloat16, kFloat16}) {
    Rig rig(in_type(type));
    int seen = 0;
    Watcher watcher(rig.model.description(), [&](const std::string& name, const auto& value) {
      const bool scalar = name.find("loss") != std::string::npos ||
                          name.find("energy") != std::string::npos ||
                          name.find("accuracy") != std::string::npos;
      EXPECT_TRUE(same_dtype(value.tensor.dtype, scalar ? kFloat32 : type)) << name;
      ++seen;
    });
    rig.train({make_batch(1, 4, 1)}, 1, 1, 1, &watcher);
    EXPECT_EQ(seen, 10 + 7);  // outputs, and gradients of outputs
  }
}

// The toy model rounds where it stores, so what is left is one rounding a value on the way: eps of
// the type, times a few for the depth.
TEST(Executor, SixteenBitsAgreeWithFloat32WithinTheirRounding) {
  const std::vector<data::Batch> batches{make_batch(2, 5, 1), make_batch(2, 5, 2, 3)};
  Rig exact;
  const StepOutput expected = exact.train(batches, 2, 1);
  const std::vector<float> gradients = exact.gradients();
  for (const auto& [type, epsilon] : {std::pair{kBfloat16, 0x1p-8}, {kFloat16, 0x1p-11}})
    for (const bool full : {true, false}) {
      Rig rig(in_type(type, full));
      const StepOutput found = rig.train(batches, 2, 1);
      for (const auto& [name, loss] : expected.losses)
        EXPECT_NEAR(found.losses.at(name), loss, 4 * epsilon * loss) << name;
      const std::vector<float> other = rig.gradients();
      double difference = 0, size = 0;
      for (size_t i = 0; i < gradients.size(); ++i) {
        difference += std::pow(double(gradients[i]) - double(other[i]), 2);
        size += std::pow(double(gradients[i]), 2);
      }
      EXPECT_LT(std::sqrt(difference / size), 4 * epsilon);
      EXPECT_GT(difference, 0);
    }
}

RigOptions recomputing(RigOptions options) {
  options.executor.recompute = true;
  return options;
}

std::vector<data::Batch> two_batches() { return {make_batch(2, 5, 1), make_batch(2, 5, 2)}; }

// Two micro-batches one after the other: to the last bit.
void expect_same_step(Rig& a, Rig& b) {
  const std::vector<data::Batch> batches = two_batches();
  EXPECT_EQ(a.train(batches, 2, 1).losses, b.train(batches, 2, 1).losses);
  EXPECT_EQ(a.gradients(), b.gradients());
}

TEST(Executor, RecomputationGivesTheSameBitsInSixteenBits) {
  for (const DLDataType type : {kBfloat16, kFloat16}) {
    RigOptions options = in_type(type, false);
    options.model.dropout = 0.3f;
    Rig plain(options), recomputed(recomputing(options));
    expect_same_step(plain, recomputed);
  }
}

TEST(Executor, MicroBatchesAgreeWithOneBatch) {
  // Labels are masked unequally; the tokens of the large batch are those of the small ones in order.
  const std::vector<data::Batch> small{make_batch(1, 5, 1, 0), make_batch(1, 5, 2, 2),
                                       make_batch(1, 5, 3, 5), make_batch(1, 5, 4, 1)};
  data::Batch large;
  large.samples = 4;
  large.length = 5;
  for (const data::Batch& b : small) {
    large.tokens.insert(large.tokens.end(), b.tokens.begin(), b.tokens.end());
    large.labels.insert(large.labels.end(), b.labels.begin(), b.labels.end());
    large.positions.insert(large.positions.end(), b.positions.begin(), b.positions.end());
    large.valid_labels += b.valid_labels;
  }
  Rig whole;
  const StepOutput expected = whole.train({large}, 1, 1);
  for (const auto& [depth, breadth] : {std::pair{4, 1}, {1, 4}, {2, 2}}) {
    Rig rig;
    const StepOutput found = rig.train(small, depth, breadth);
    for (const auto& [name, loss] : expected.losses)
      EXPECT_NEAR(found.losses.at(name), loss, 1e-6) << name;
    const std::vector<float> a = whole.gradients(), b = rig.gradients();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << i;
  }
}

// Two micro-batches of 4 labels, 3 of the second masked: (4 a + 1 b) / 5 of their own losses a and b,
// neither the mean of the two nor a share of all 8 positions (docs/compatibility.md).
TEST(Executor, MaskedLabelsNeitherAddNorShrink) {
  const data::Batch first = make_batch(1, 4, 1, 0), second = make_batch(1, 4, 2, 3);
  auto loss = [](const std::vector<data::Batch>& batches) {
    return Rig().train(batches, int64_t(batches.size()), 1).losses.at("loss");
  };
  const double a = loss({first}), b = loss({second});
  ASSERT_GT(std::abs(a - b), 1e-3);
  EXPECT_NEAR(loss({first, second}), (4 * a + b) / 5, 1e-6);
  EXPECT_EQ(loss({make_batch(1, 4, 1, 4)}), 0);  // no label counts
}

TEST(Executor, SharedBuffersGiveTheSameBits) {
  const std::vector<data::Batch> batches{make_batch(1, 5, 1), make_batch(1, 5, 2),
                                         make_batch(1, 5, 3)};
  RigOptions options;
  options.model.blocks = 4;
  Rig plain(options);
  const StepOutput expected = plain.train(batches, 3, 1);
  for (int zero : {2, 3}) {
    options.store.zero_stage = zero;
    Rig shared(options);
    const StepOutput found = shared.train(batches, 3, 1);
    EXPECT_EQ(found.losses, expected.losses);
    EXPECT_EQ(shared.gradients(), plain.gradients()) << "zero " << zero;
  }
}

TEST(Executor, StageSplitDoesNotChangeBits) {
  const std::vector<data::Batch> batches{make_batch(1, 5, 1), make_batch(1, 5, 2)};
  Rig fine;
  RigOptions options;
  options.layers_per_stage = 3;
  Rig coarse(options);
  EXPECT_EQ(fine.train(batches, 2, 1).losses, coarse.train(batches, 2, 1).losses);
  for (size_t p = 0; p < fine.model.description().parameters.size(); ++p) {
    const int64_t n = fine.model.description().parameters[p].elements();
    const float *a = static_cast<float*>(fine.store.gradient(int(p))->data),
                *b = static_cast<float*>(coarse.store.gradient(int(p))->data);
    EXPECT_TRUE(std::equal(a, a + n, b)) << p;
  }
}

TEST(Executor, RecomputationGivesTheSameBitsAndKeepsLess) {
  RigOptions options;
  options.model.dropout = 0.3f;
  options.model.blocks = 5;
  Rig plain(options), recomputed(recomputing(options));
  expect_same_step(plain, recomputed);
  EXPECT_EQ(plain.model.max_live, 8);       // all layers with a backward
  EXPECT_EQ(recomputed.model.max_live, 1);  // one at a time
  EXPECT_EQ(plain.count("block_2").forward, 2);
  EXPECT_EQ(recomputed.count("block_2").forward, 4);
  EXPECT_EQ(recomputed.count("head").forward, 2);   // its backward is next: nothing is made again
  EXPECT_EQ(recomputed.count("scale").forward, 2);  // preprocessing stays
  EXPECT_LT(std::set<uint64_t>(recomputed.count("block_2").seeds.begin(),
                               recomputed.count("block_2").seeds.end())
                .size(),
            3u);
  // Breadth-first: all micro-batches are forward before the first backward.
  Rig wide(recomputing(options));
  EXPECT_EQ(wide.train(two_batches(), 1, 2).losses.size(), 2u);
  EXPECT_EQ(wide.model.max_live, 1);
}

TEST(Executor, SeedsDifferByStepMicroBatchAndLayer) {
  RigOptions options;
  Rig rig(options);
  const std::vector<data::Batch> batches{make_batch(1, 4, 1), make_batch(1, 4, 2)};
  rig.train(batches, 2, 1, 1);
  rig.train(batches, 2, 1, 2);
  std::set<uint64_t> seeds;
  size_t calls = 0;
  for (const auto& c : rig.model.counts) {
    seeds.insert(c.seeds.begin(), c.seeds.end());
    calls += c.seeds.size();
  }
  EXPECT_EQ(seeds.size(), calls);
  Rig again(options);
  again.train(batches, 2, 1, 1);
  EXPECT_EQ(again.count("block_0").seeds[1],
            rig.count("block_0").seeds[1]);  // a function of the step, not of what ran before
  options.executor.seed = 1;
  Rig other(options);
  other.train(batches, 2, 1, 1);
  EXPECT_NE(other.count("block_0").seeds[0], rig.count("block_0").seeds[0]);
}

TEST(Executor, FrozenLowerLayersGetNoBackwardAndNoSave) {
  RigOptions options;
  options.model.tied = false;
  options.model.auxiliary = false;
  options.model.frozen = {1, 2};  // embedding and first block
  Rig rig(options);
  rig.train({make_batch(1, 4, 1)}, 1, 1);
  for (const char* layer : {"scale", "embed", "block_0"}) {
    EXPECT_EQ(rig.count(layer).forward, 1);
    EXPECT_EQ(rig.count(layer).saves, 0) << layer;
    EXPECT_EQ(rig.count(layer).backward, 0) << layer;
  }
  EXPECT_EQ(rig.count("block_1").backward, 1);
  EXPECT_FALSE(rig.count("block_1").wanted_input_gradient);  // the boundary
  EXPECT_FALSE(rig.count("gate").wanted_input_gradient);  // of the embedding; of the block it was
  EXPECT_TRUE(rig.count("head").wanted_input_gradient);
}

TEST(Executor, AFrozenLayerInTheMiddlePassesGradientsOn) {
  RigOptions options;
  options.model.frozen = {3};
  Rig rig(options);
  rig.train({make_batch(1, 4, 1)}, 1, 1);
  EXPECT_EQ(rig.count("block_1").backward, 1);
  EXPECT_FALSE(rig.count("block_1").had_gradient);
  EXPECT_TRUE(rig.count("block_1").wanted_input_gradient);
  EXPECT_TRUE(rig.count("block_0").had_gradient);
}

TEST(Executor, EverythingFrozenIsForwardAlone) {
  RigOptions options;
  options.model.frozen = {1, 2, 3};
  Rig rig(options);
  Rig trainable;
  const std::vector<data::Batch> batches{make_batch(1, 4, 1)};
  EXPECT_EQ(rig.train(batches, 1, 1).losses, trainable.train(batches, 1, 1).losses);
  for (const auto& c : rig.model.counts) {
    EXPECT_EQ(c.forward, 1);
    EXPECT_EQ(c.saves + c.backward, 0);
  }
  EXPECT_EQ(rig.store.flat("grads")->shape[0], 0);
}

TEST(Executor, AParameterWithoutALossIsZeroOrAnError) {
  RigOptions options;
  options.model.unused_parameter = true;
  Rig rig(options);
  rig.train({make_batch(1, 4, 1)}, 1, 1);
  EXPECT_EQ(rig.count("dead").backward + rig.count("dead").saves, 0);
  options.model.flag_unused = false;
  Rig wrong(options);
  EXPECT_THAT(test::message_of([&] { wrong.train({make_batch(1, 4, 1)}, 1, 1); }),
              HasSubstr("parameter dead.weight: expected a gradient in every step"));
}

TEST(Executor, EvaluationKeepsNothingAndSaysSo) {
  RigOptions options;
  options.model.dropout = 0.5f;
  Rig rig(options);
  const std::vector<data::Batch> batches{make_batch(1, 4, 1)};
  const StepOutput first = rig.evaluate(batches);
  EXPECT_EQ(first.losses, rig.evaluate(batches).losses);
  for (const auto& c : rig.model.counts) {
    EXPECT_EQ(c.flags, uint32_t(FASTLLM_EVAL));
    EXPECT_EQ(c.saves + c.backward, 0);
  }
  rig.train(batches, 1, 1);
  for (const auto& c : rig.model.counts) EXPECT_FALSE(c.flags & FASTLLM_EVAL);
}

TEST(Executor, InferenceStoreEvaluatesAndRefusesToTrain) {
  RigOptions options;
  options.store.training_mode = false;
  Rig rig(options);
  const std::vector<data::Batch> batches{make_batch(1, 4, 1)};
  EXPECT_EQ(rig.evaluate(batches).losses, Rig().evaluate(batches).losses);
  EXPECT_THROW(rig.executor.train(Rig::input(batches), {}), Error);
}

TEST(Executor, AsksForNoMemoryAfterTheFirstStep) {
  for (bool recompute : {false, true}) {
    RigOptions options;
    options.executor.recompute = recompute;
    Rig rig(options);
    const std::vector<data::Batch> batches = two_batches();
    rig.train(batches, 1, 2);
    const int64_t allocations = rig.executor.activation_allocations(),
                  peak = rig.executor.peak_activation_bytes();
    EXPECT_GT(allocations, 0);
    rig.train(batches, 1, 2);
    rig.train(batches, 2, 1);
    rig.evaluate(batches);
    EXPECT_EQ(rig.executor.activation_allocations(), allocations);
    EXPECT_EQ(rig.executor.peak_activation_bytes(), peak);
  }
}

TEST(Executor, ActivationsGoAsSoonAsNobodyNeedsThem) {
  RigOptions shallow, deep;
  shallow.model.blocks = 2;
  deep.model.blocks = 20;
  Rig a(shallow), b(deep);
  const std::vector<data::Batch> batches{make_batch(8, 64, 1)};
  a.evaluate(batches);
  b.evaluate(batches);
  EXPECT_EQ(a.executor.peak_activation_bytes(),
            b.executor.peak_activation_bytes());  // depth costs nothing without backward
}

TEST(Executor, AnOptionalOutputIsMadeForAnObserverThatWantsItAlone) {
  using Wants = Observer::Wants;
  const std::vector<data::Batch> batches{make_batch(1, 4, 1)};
  for (const Wants wants : {Wants::kNothing, Wants::kIfMade, Wants::kAlways}) {
    Rig rig;
    std::vector<std::string> forward, backward;
    Watcher watcher(
        rig.model.description(),
        [&](const std::string& name, const auto& seen) {
          (seen.what.gradient ? backward : forward).push_back(name);
          EXPECT_NE(seen.tensor.data, nullptr);
          EXPECT_GT(seen.activation_bytes, 0);
        },
        wants);
    rig.train(batches, 1, 1, 1, &watcher);
    EXPECT_EQ(rig.model.logits_made, wants == Wants::kAlways);
    if (wants == Wants::kNothing) {
      EXPECT_TRUE(forward.empty() && backward.empty());
      continue;
    }
    std::vector<std::string> expected{"scale.scale",    "embed.embedded", "block_0.hidden",
                                      "block_0.energy", "block_1.hidden", "block_1.energy",
                                      "gate.gated",     "head.loss",      "head.accuracy"};
    if (wants == Wants::kAlways) expected.push_back("head.logits");
    EXPECT_EQ(forward, expected);
    EXPECT_THAT(backward,
                testing::ElementsAre("head.loss", "gate.gated", "block_1.hidden", "block_1.energy",
                                     "block_0.hidden", "block_0.energy", "embed.embedded"));
    forward.clear();
    rig.evaluate(batches, &watcher);
    EXPECT_EQ(forward, expected);
    forward.clear();
    rig.train(batches, 1, 1);  // it was for that step alone
    EXPECT_TRUE(forward.empty());
    EXPECT_FALSE(rig.model.logits_made);
  }
}

TEST(Executor, AnObserverIsToldTheMicroBatch) {
  Rig rig;
  std::vector<int64_t> forward, backward;
  Watcher watcher(rig.model.description(), [&](const std::string& name, const auto& seen) {
    if (name == "gate.gated") (seen.what.gradient ? backward : forward).push_back(seen.micro_batch);
  });
  const std::vector<data::Batch> batches{make_batch(1, 4, 1), make_batch(1, 4, 2),
                                         make_batch(1, 4, 3), make_batch(1, 4, 4)};
  rig.train(batches, 2, 2, 1, &watcher);
  EXPECT_THAT(forward, testing::ElementsAre(0, 2, 1, 3));  // breadth first
  EXPECT_THAT(backward, testing::ElementsAre(0, 2, 1, 3));
}

TEST(Executor, ShapesMayChangeBetweenSteps) {
  Rig rig;
  const std::vector<data::Batch> a{make_batch(2, 3, 1)}, b{make_batch(1, 7, 2)};
  const StepOutput first = rig.train(a, 1, 1);
  const std::vector<float> gradients = rig.gradients();
  rig.train(b, 1, 1);
  EXPECT_EQ(rig.train(a, 1, 1).losses, first.losses);
  EXPECT_EQ(rig.gradients(), gradients);
}

TEST(Executor, AFailedCallLeavesNothingBehind) {
  Rig rig;
  const std::vector<data::Batch> batches{make_batch(1, 4, 1), make_batch(1, 4, 2)};
  const StepOutput expected = Rig().train(batches, 1, 2);
  rig.model.fail_forward = int(rig.model.description().layers.size()) - 1;
  EXPECT_THROW(rig.train(batches, 1, 2), Error);
  EXPECT_EQ(rig.model.live, 0);
  rig.model.fail_forward = -1;
  EXPECT_EQ(rig.train(batches, 1, 2).losses, expected.losses);
}

TEST(Executor, RefusesAScheduleThatLeavesWorkUndone) {
  Rig rig;
  const std::vector<data::Batch> batches{make_batch(1, 4, 1)};
  auto schedule = model::make_schedule(schedule_options(rig.store, 1, 1, true));
  schedule.pop_back();  // the embedding's backward
  EXPECT_THAT(test::message_of([&] { rig.executor.train(Rig::input(batches), schedule); }),
              HasSubstr("expected the schedule to use up output"));
  EXPECT_EQ(rig.model.live, 0);
}

// ---------------------------------------------------------------- what cannot be wired

class Described : public model::Model {
 public:
  explicit Described(model::Description d)
      : forwards(d.layers.size()), backwards(d.layers.size()), d_(std::move(d)) {}
  const model::Description& description() const override { return d_; }
  void bind(int, std::span<const DLTensor* const>, std::span<DLTensor* const>) override {}
  model::Saved forward(int layer, const fastllm_call&, std::span<const DLTensor* const>,
                       std::span<DLTensor* const> out) override {
    ++forwards[layer];
    for (DLTensor* tensor : out)
      if (tensor && tensor->ndim == 0) *static_cast<float*>(tensor->data) = 1;
    return {};
  }
  void backward(int layer, const fastllm_call&, model::Saved, std::span<const DLTensor* const>,
                std::span<DLTensor* const>) override {
    ++backwards[layer];
  }
  void discard(fastllm_saved*) noexcept override {}
  void init(int, int, const fastllm_call&, DLTensor*) override {}
  model::Flops flops(int, int64_t, int64_t) override { return {}; }

  std::vector<int> forwards, backwards;

 private:
  model::Description d_;
};

// Writes one number for the gradient of its first input: 256 as the gate, 1.5 as any other layer.
class Constant : public Described {
 public:
  using Described::Described;
  void backward(int layer, const fastllm_call& call, model::Saved saved,
                std::span<const DLTensor* const> d_out, std::span<DLTensor* const> d_in) override {
    Described::backward(layer, call, std::move(saved), d_out, d_in);
    const float value = description().layers[layer].name == "gate" ? 256 : 1.5f;
    for (DLTensor* tensor : d_in) {
      if (!tensor) continue;
      const std::vector<float> values(size_t(tensor->shape[0] * tensor->shape[1]), value);
      shard::copy(tensor->data, tensor->dtype, values.data(), kFloat32, int64_t(values.size()));
    }
  }
};

// The embedding's output is read by the first block and by the gate: their gradients are added in
// float32 and rounded to the output's type, which knows 256 and 258 and nothing between.
TEST(Executor, GradientsOfSeveralReadersAddInTheTrainingType) {
  for (const DLDataType type : {kFloat32, kBfloat16}) {
    Constant model(ToyModel({}).description());
    const shard::Layout layout(model.description(), {}, {});
    shard::StoreOptions options;
    options.training = type;
    shard::Store store(layout, 0, options);
    Executor executor(model, store, {});
    int seen = 0;
    Watcher watcher(model.description(), [&](const std::string& name, const auto& value) {
      if (!value.what.gradient || name != "embed.embedded") return;
      const DLTensor& tensor = value.tensor;
      std::vector<float> values(size_t(tensor.shape[0] * tensor.shape[1]));
      shard::copy(values.data(), kFloat32, tensor.data, tensor.dtype, int64_t(values.size()));
      EXPECT_THAT(values, testing::Each(is_float32(type) ? 257.5f : 258.0f));
      ++seen;
    });
    const std::vector<data::Batch> batches{make_batch(1, 4, 1)};
    executor.train(Rig::input(batches), model::make_schedule(schedule_options(store, 1, 1, true)),
                   &watcher);
    EXPECT_EQ(seen, 1);
  }
}

// A layer may need nothing for its backward: that is not the same as not having saved.
TEST(Executor, ALayerMayReturnNoSaved) {
  for (bool recompute : {false, true}) {
    Described model(ToyModel({}).description());
    const shard::Layout layout(model.description(), {}, {});
    shard::Store store(layout, 0, {});
    Executor executor(model, store, {recompute, 0});
    const std::vector<data::Batch> batches{make_batch(1, 4, 1)};
    executor.train(Rig::input(batches), model::make_schedule(schedule_options(store, 1, 1, true)));
    EXPECT_EQ(model.forwards, recompute ? std::vector({1, 2, 2, 2, 2, 1}) : std::vector(6, 1));
    EXPECT_EQ(model.backwards, std::vector({0, 1, 1, 1, 1, 1}));
  }
}

std::string refusal(const std::function<void(model::Description&)>& spoil) {
  model::Description d = ToyModel({}).description();
  spoil(d);
  d.validate();
  Described model(std::move(d));
  const shard::Layout layout(model.description(), {}, {});
  shard::Store store(layout, 0, {});
  return test::message_of([&] {
    Executor executor(model, store, {});
    const std::vector<data::Batch> batches{make_batch(1, 4, 1)};
    executor.train(Rig::input(batches), {});
  });
}

// A line of metrics has one number of a name.
TEST(Executor, RefusesLossesAndMetricsWhoseNameAnotherNumberHas) {
  using model::Description;
  for (const std::string name : {"phase", "iteration", "batch_size", "grad_norm", "learning_rate",
                                 "loss_scale", "run", "skipped_iters", "step_time_ms"}) {
    EXPECT_THAT(
        refusal([&](Description& d) { d.layers.back().outputs[0].name = name; }),
        HasSubstr("layer head: expected losses and metrics with names of their own, found " + name +
                  ", which the host's own numbers have"));
    EXPECT_THAT(refusal([&](Description& d) { d.layers.back().outputs[1].name = name; }),
                HasSubstr("found " + name));
    EXPECT_EQ(refusal([&](Description& d) { d.layers.back().outputs[2].name = name; }),
              "(no error)");  // neither
  }
  EXPECT_THAT(refusal([&](Description& d) { d.layers.back().outputs[1].name = "energy"; }),
              HasSubstr("expected one loss or one metric of a name, found both for energy"));
}

TEST(Executor, RefusesWhatItCannotDeliver) {
  using model::Description;
  EXPECT_THAT(refusal([](Description& d) { d.layers[1].inputs[0].name = "images"; }),
              HasSubstr("layer embed: expected batch entries among tokens, labels, positions, "
                        "documents, cu_seqlens, labels_2 .. labels_64, found images"));
  EXPECT_THAT(refusal([](Description& d) { d.layers[1].inputs[0].dtype.bits = 32; }),
              HasSubstr("layer embed: expected batch entry tokens as int64 [BATCH, SEQUENCE]"));
  EXPECT_THAT(
      refusal([](Description& d) {
        d.layers[2].outputs[1].dtype = {kDLFloat, 64, 1};
      }),
      HasSubstr("layer block_0: expected losses and metrics in float32, found 64 bits for energy"));
  EXPECT_THAT(refusal([](Description& d) { d.layers[2].outputs[1].flags |= FASTLLM_PORT_SUM; }),
              HasSubstr("layer block_1: expected output energy to have or lack the flag PORT_SUM "
                        "in all layers alike"));
  EXPECT_THAT(refusal([](Description& d) {
                d.layers.back().outputs[2].dtype = {kDLFloat, 4, 1};
              }),
              HasSubstr("layer head: expected outputs of whole bytes"));
  EXPECT_THAT(
      refusal([](Description& d) {
        d.layers[1].outputs[0].dtype = d.layers[2].inputs[0].dtype =
            d.layers[4].inputs[0].dtype = {kDLFloat, 64, 1};
      }),
      HasSubstr("output embed.embedded: expected float32, bfloat16 or float16 where a gradient "
                "flows, found float64; flag it PORT_NO_GRAD if none should"));
  EXPECT_THAT(
      refusal([](Description& d) {
        for (auto& layer : d.layers)
          for (auto& port : layer.outputs)
            port.flags &= ~uint32_t(FASTLLM_PORT_LOSS | FASTLLM_PORT_SUM);
      }),
      HasSubstr("expected an output flagged PORT_LOSS to train on, found none in the model"));
}

// What a head makes of labels_3 is what another makes of the same values as labels: also the number
// that the loss is divided by.
TEST(Executor, DeliversLabelsFurtherAheadAndDividesByTheirNumber) {
  RigOptions further;
  further.model.predicted = 3;
  Rig near, far(further);
  EXPECT_EQ(predicted_tokens(near.model.description()), 1);
  EXPECT_EQ(predicted_tokens(far.model.description()), 3);
  std::vector<data::Batch> batches{make_batch(2, 4, 1, 3), make_batch(2, 4, 2)};
  const StepOutput expected = near.train(batches, 2, 1);
  for (data::Batch& batch : batches) {
    batch.further_labels.resize(2);
    batch.further_labels[1] = {batch.labels, batch.valid_labels};
    batch.further_labels[0].labels.assign(batch.labels.size(), 0);
    batch.labels.assign(batch.labels.size(), 0);
    batch.valid_labels = 8;
  }
  const StepOutput found = far.train(batches, 2, 1);
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(far.gradients(), near.gradients());
  batches[1].further_labels.pop_back();
  EXPECT_THAT(test::message_of([&] { far.train(batches, 2, 1); }),
              HasSubstr("expected a batch of 8 tokens with the entries that the "
                        "model reads, found labels_3 with 0 values"));
}

TEST(Executor, RefusesABatchThatLacksAnEntry) {
  Rig rig;
  std::vector<data::Batch> batches{make_batch(1, 4, 1)};
  batches[0].positions.clear();
  EXPECT_THAT(test::message_of([&] { rig.train(batches, 1, 1); }),
              HasSubstr("expected a batch of 4 tokens with the entries that the "
                        "model reads, found positions with 0 values"));
}

}  // namespace
}  // namespace fastllm::train
