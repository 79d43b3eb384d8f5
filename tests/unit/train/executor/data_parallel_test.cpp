// Data parallel ranks, as threads over a network in memory, against one rank with all their micro-batches:
// losses, gradients and weights, for every ZeRO stage, frozen parts and training types; and what is sent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/base/tensor.hpp"
#include "core/distributed/exchange.hpp"
#include "core/optim/adamw.hpp"
#include "core/shard/elements.hpp"
#include "core/train/executor/executor.hpp"
#include "core/train/executor/initialize.hpp"
#include "tests/unit/distributed/memory_network.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::train {
namespace {

using distributed::Operation;
using test::ToyModel;
using test::ToyOptions;

constexpr int64_t kSteps = 3, kMicroBatches = 8, kLength = 5;

struct Options {
  ToyOptions model;
  shard::StoreOptions store;
  bool recompute = false;
  double clipping = 0.05;  // low enough to act, so that a wrong norm shows
};

// Micro-batch `index` of a step; labels are masked unequally.
data::Batch make_batch(int64_t step, int64_t index) {
  std::mt19937 random(uint32_t(100 * step + index));
  data::Batch batch;
  batch.samples = 1;
  batch.length = kLength;
  for (int64_t i = 0; i < kLength; ++i) {
    batch.tokens.push_back(int64_t(random() % 11));
    batch.labels.push_back(i < index % 3 ? data::kIgnoredLabel : int64_t(random() % 11));
    batch.positions.push_back(i);
    batch.documents.push_back(0);
  }
  batch.cu_seqlens = {0, int32_t(kLength)};
  batch.valid_labels = kLength - index % 3;
  return batch;
}

struct Result {
  std::vector<StepOutput> steps;
  std::vector<double> norms;
  std::vector<std::vector<float>> weights;    // by parameter, whole, as layers see them
  std::vector<distributed::Traffic> traffic;  // after each step
};

// One rank of `ranks`; data: their communicator, null for one.
Result run(const Options& o, int ranks, int rank, distributed::Communicator* data) {
  ToyModel model(o.model);
  const shard::Layout layout(model.description(), {.data = ranks}, {});
  shard::Store store(layout, rank, o.store, {.data = data});
  Executor executor(model, store, {.recompute = o.recompute, .seed = 3, .data = data});
  optim::AdamW optimizer(store, {.gradient_norm_clipping = o.clipping}, data);
  initialize(store, model, 5);
  const int own = int(kMicroBatches) / ranks;
  const auto schedule = model::make_schedule(schedule_options(store, own, 1, true));
  Result result;
  for (int64_t step = 1; step <= kSteps; ++step) {
    StepInput input;
    input.step = step;
    std::vector<data::Batch> batches;
    for (int64_t i = 0; i < kMicroBatches; ++i) {
      const data::Batch batch = make_batch(step, i);
      input.valid_labels += batch.valid_labels;
      if (i / own == rank) batches.push_back(batch);
    }
    for (const data::Batch& batch : batches) input.micro_batches.push_back(&batch);
    result.steps.push_back(executor.train(input, schedule));
    result.norms.push_back(optimizer.step(0.01).gradient_norm);
    if (data) result.traffic.push_back(data->traffic());
  }
  for (const shard::Stage& stage : layout.stages()) {
    store.restore(stage.index);
    for (const shard::Group& group : stage.groups)
      for (const shard::Piece& piece : group.pieces) {
        const DLTensor& w = *store.weight(piece.parameter);
        std::vector<float>& values =
            result.weights.emplace_back(size_t(piece.end - piece.begin), 0.0f);
        shard::copy(values.data(), kFloat32, w.data, w.dtype, int64_t(values.size()));
      }
  }
  return result;
}

std::vector<Result> run_on(int ranks, const Options& options) {
  distributed::testing::MemoryNetwork network;
  std::vector<Result> results(static_cast<size_t>(ranks));
  distributed::testing::run_ranks(ranks, [&](int rank) {
    const auto data = distributed::make_exchange(
        group_of({.data = ranks}, distributed::GroupKind::kData, rank), network.of(rank));
    results[size_t(rank)] = run(options, ranks, rank, data.get());
  });
  return results;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    size += std::pow(double(b[i]), 2);
  }
  return std::sqrt(difference / size);
}

void expect_equal_to_one(const Options& options, double tolerance) {
  Options one = options;
  one.store.zero_stage = 0;
  const Result expected = run(one, 1, 0, nullptr);
  EXPECT_GT(expected.norms[0], options.clipping);
  for (int ranks : {2, 4}) {
    SCOPED_TRACE(ranks);
    const std::vector<Result> results = run_on(ranks, options);
    for (const Result& result : results) {
      EXPECT_EQ(result.weights, results[0].weights) << "ranks must not drift apart";
      EXPECT_EQ(result.norms, results[0].norms);
      for (int64_t step = 0; step < kSteps; ++step) {
        EXPECT_EQ(result.steps[step].losses, results[0].steps[step].losses);
        EXPECT_NEAR(result.norms[step], expected.norms[step], tolerance * expected.norms[step]);
        for (const auto& [name, loss] : expected.steps[step].losses)
          EXPECT_NEAR(result.steps[step].losses.at(name), loss, tolerance * std::abs(loss)) << name;
      }
    }
    for (size_t p = 0; p < expected.weights.size(); ++p)
      EXPECT_LT(distance(results[0].weights[p], expected.weights[p]), tolerance) << p;
  }
}

TEST(DataParallel, EqualsOneRankForEveryZeroStage) {
  for (int zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    Options options;
    options.store.zero_stage = zero;
    expect_equal_to_one(options, 1e-5);
  }
}

TEST(DataParallel, EqualsOneRankWithFrozenPartsAndRecomputation) {
  for (const std::vector<int>& frozen : std::vector<std::vector<int>>{{1}, {2}, {2, 3}}) {
    Options options;
    options.model.frozen = frozen;
    options.recompute = true;
    for (int zero : {1, 3}) {
      SCOPED_TRACE(zero);
      options.store.zero_stage = zero;
      expect_equal_to_one(options, 1e-5);
    }
  }
}

TEST(DataParallel, SixteenBitsAreNearOneRank) {
  Options options;
  options.store.training = kBfloat16;
  for (bool full : {true, false}) {
    options.store.full_precision_gradients = full;
    options.store.zero_stage = 2;
    expect_equal_to_one(options, 0.03);
  }
}

// Reduced: gradients of what is trainable, once a step with a buffer each. Gathered: everything in the
// first step, then what an update has changed.
TEST(DataParallel, FrozenWeightsAreNeitherReducedNorGatheredAgain) {
  Options options;
  options.model.frozen = {2, 3};
  ToyModel model(options.model);
  const shard::Layout layout(model.description(), {.data = 2}, {});
  int64_t trainable = 0, frozen = 0;
  for (const shard::Stage& stage : layout.stages())
    for (const shard::Group& group : stage.groups)
      (group.frozen ? frozen : trainable) += group.shard_elements * int64_t(sizeof(float));
  ASSERT_GT(frozen, 0);
  const std::vector<Result> results = run_on(2, options);
  const auto sent = [&](int step, Operation operation) {
    const auto& traffic = results[0].traffic;
    return traffic[size_t(step)].of(operation).bytes -
           (step > 0 ? traffic[size_t(step) - 1].of(operation).bytes : 0);
  };
  const int64_t small = sent(1, Operation::kAllGather) - trainable;  // losses, metrics, norm
  EXPECT_LT(small, 200);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(sent(step, Operation::kReduceScatter), trainable);
    EXPECT_EQ(sent(step, Operation::kAllGather) - small,
              step == 0 ? trainable + frozen : trainable);
  }
}

}  // namespace
}  // namespace fastllm::train
