// Pipeline ranks, also beside data ranks, as threads over networks in memory, against one rank: losses,
// gradients and weights. The toy model has a value that two stages read and a weight that two stages use.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <set>

#include "core/base/tensor.hpp"
#include "core/distributed/exchange.hpp"
#include "core/optim/adamw.hpp"
#include "core/train/executor/crossings.hpp"
#include "core/train/executor/executor.hpp"
#include "core/train/executor/initialize.hpp"
#include "tests/unit/distributed/memory_network.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::train {
namespace {

using distributed::Communicator;
using distributed::GroupKind;
using test::ToyModel;
using test::ToyOptions;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kSteps = 3, kMicroBatches = 4, kLength = 5;

struct Options {
  ToyOptions model;
  shard::StoreOptions store;
  double layers_per_stage = 1;
  bool recompute = false;
};

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
  StepOutput evaluation;
  std::vector<double> norms;
  // By parameter: this rank's part of the gradient of the first step and of the final weights.
  std::map<std::string, std::vector<float>> gradients, weights;
};

// A network for each group: members are numbered inside.
class Networks {
 public:
  std::unique_ptr<Communicator> join(const distributed::Group& group) {
    if (group.size() == 1) return nullptr;
    distributed::testing::MemoryNetwork* network;
    {
      const std::lock_guard lock(mutex_);
      auto& own = networks_[group.key()];
      if (!own) own = std::make_unique<distributed::testing::MemoryNetwork>();
      network = own.get();
    }
    return distributed::make_exchange(group, network->of(group.rank));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<distributed::testing::MemoryNetwork>> networks_;
};

std::map<std::string, std::vector<float>> parts(shard::Store& store, const std::string& state) {
  std::map<std::string, std::vector<float>> result;
  const shard::Layout& layout = store.layout();
  const int data_rank = layout.world().data_rank(store.rank()), data = layout.world().data;
  for (const shard::Placed& placed : layout.on_device(store.rank())) {
    const auto& groups = layout.stages()[size_t(placed.stage)].groups;
    for (int g = 0; g < int(groups.size()); ++g) {
      const int64_t begin = layout.shard_begin(store.rank(), state, placed.stage, g);
      if (begin < 0) continue;
      for (const shard::Piece& piece : groups[size_t(g)].pieces) {
        const auto& name = layout.description().parameters[size_t(piece.parameter)].name;
        const float* const values = store.flat_data(state) + begin;
        result[name].assign(values + groups[size_t(g)].to_shard(piece.begin, data_rank, data),
                            values + groups[size_t(g)].to_shard(piece.end, data_rank, data));
      }
    }
  }
  return result;
}

Result run(const Options& o, const distributed::World& world, int rank, Networks& networks) {
  ToyModel model(o.model);
  const shard::Layout layout(model.description(), world, {o.layers_per_stage, 1});
  const auto data = networks.join(group_of(world, GroupKind::kData, rank));
  const auto pipeline = networks.join(group_of(world, GroupKind::kPipeline, rank));
  const auto all = networks.join(group_of(world, GroupKind::kWorld, rank));
  std::unique_ptr<Communicator> tied;
  shard::StoreGroups groups{.data = data.get()};
  for (const shard::Tied& t : layout.tied()) {
    std::set<int> users;
    for (int stage : t.stages) users.insert(layout.stages()[size_t(stage)].pipeline_rank);
    const auto group = tied_group(world, "tied", {users.begin(), users.end()}, rank);
    if (!group) continue;
    tied = networks.join(*group);
    groups.tied[t.main_stage] = tied.get();
  }
  shard::Store store(layout, rank, o.store, groups);
  Executor executor(
      model, store,
      {.recompute = o.recompute, .seed = 3, .data = data.get(), .pipeline = pipeline.get()});
  optim::AdamW optimizer(store, {.gradient_norm_clipping = 0.05}, all.get());
  initialize(store, model, 5);
  const int own = int(kMicroBatches) / world.data;
  // Depth where there is one rank: the same sums in another order.
  const bool one = world.pipeline == 1;
  const auto schedule = make_schedule(schedule_options(store, one ? own : 1, one ? 1 : own, true));
  const auto evaluation =
      make_schedule(schedule_options(store, one ? own : 1, one ? 1 : own, false));
  Result result;
  for (int64_t step = 1; step <= kSteps; ++step) {
    StepInput input;
    input.step = step;
    std::vector<data::Batch> batches;
    for (int64_t i = 0; i < kMicroBatches; ++i) {
      const data::Batch batch = make_batch(step, i);
      input.valid_labels += batch.valid_labels;
      if (i / own == world.data_rank(rank)) batches.push_back(batch);
    }
    for (const data::Batch& batch : batches) input.micro_batches.push_back(&batch);
    result.steps.push_back(executor.train(input, schedule));
    if (step == 1) result.gradients = parts(store, "grads");
    result.norms.push_back(optimizer.step(0.01).gradient_norm);
    if (step == kSteps) result.evaluation = executor.evaluate(input, evaluation);
  }
  EXPECT_EQ(executor.activation_bytes(), 0);
  result.weights = parts(store, "weights");
  return result;
}

std::vector<Result> run_on(const distributed::World& world, const Options& options) {
  Networks networks;
  std::vector<Result> results(size_t(world.size()));
  distributed::testing::run_ranks(
      world.size(), [&](int rank) { results[size_t(rank)] = run(options, world, rank, networks); });
  return results;
}

// Parameter -> all parts in the order of the data ranks, of the first rank that has them; every other
// rank of the same data rank must have the same bits.
std::map<std::string, std::vector<float>> whole(
    const distributed::World& world, const std::vector<Result>& results,
    std::map<std::string, std::vector<float>> Result::*part) {
  std::map<std::string, std::map<int, std::vector<float>>> by_data;
  for (int rank = 0; rank < world.size(); ++rank)
    for (const auto& [name, values] : results[size_t(rank)].*part) {
      const auto [at, fresh] = by_data[name].emplace(world.data_rank(rank), values);
      EXPECT_EQ(at->second, values) << "copies must not drift apart: " << name;
    }
  std::map<std::string, std::vector<float>> result;
  for (const auto& [name, ranks] : by_data)
    for (const auto& [data_rank, values] : ranks)
      result[name].insert(result[name].end(), values.begin(), values.end());
  return result;
}

void expect_near(const std::map<std::string, std::vector<float>>& found,
                 const std::map<std::string, std::vector<float>>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    SCOPED_TRACE(name);
    double difference = 0, size = 0;
    ASSERT_EQ(found.at(name).size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(double(found.at(name)[i]) - double(values[i]), 2);
      size += std::pow(double(values[i]), 2);
    }
    EXPECT_LE(std::sqrt(difference), 1e-5 * std::sqrt(size));
  }
}

void expect_equal_to_one(const Options& options, const distributed::World& world) {
  SCOPED_TRACE(world.pipeline * 10 + world.data);
  Options one = options;
  one.store.zero_stage = 0;
  const std::vector<Result> expected = run_on({}, one);
  const std::vector<Result> results = run_on(world, options);
  for (const Result& result : results) {
    EXPECT_EQ(result.norms, results[0].norms);
    for (int64_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(result.steps[step].losses, results[0].steps[step].losses);
      EXPECT_EQ(result.steps[step].metrics, results[0].steps[step].metrics);
      EXPECT_NEAR(result.norms[step], expected[0].norms[step], 1e-5 * expected[0].norms[step]);
      for (const auto& [name, loss] : expected[0].steps[step].losses)
        EXPECT_NEAR(result.steps[step].losses.at(name), loss, 1e-5 * std::abs(loss)) << name;
    }
    for (const auto& [name, loss] : expected[0].evaluation.losses)
      EXPECT_NEAR(result.evaluation.losses.at(name), loss, 1e-5 * std::abs(loss)) << name;
  }
  for (const auto part : {&Result::gradients, &Result::weights})
    expect_near(whole(world, results, part), whole({}, expected, part));
}

TEST(Pipeline, EqualsOneRankTiedOrNot) {
  for (bool tied : {true, false})
    for (double layers : {1.0, 2.0})
      for (int ranks : {2, 3}) {
        Options options;
        options.model.tied = tied;
        options.layers_per_stage = layers;
        expect_equal_to_one(options, {.pipeline = ranks});
      }
}

TEST(Pipeline, EqualsOneRankBesideDataRanks) {
  for (int zero : {1, 2, 3})
    for (bool first : {true, false}) {
      Options options;
      options.store.zero_stage = zero;
      expect_equal_to_one(options, {.pipeline = 2, .data = 2, .pipeline_first = first});
    }
}

TEST(Pipeline, EqualsOneRankWithFrozenPartsAndRecomputation) {
  for (const std::vector<int>& frozen :
       std::vector<std::vector<int>>{{1}, {2}, {1, 2}, {1, 2, 3}, {3, 4}, {5}})
    for (bool recompute : {true, false}) {
      Options options;
      options.model.frozen = frozen;
      options.recompute = recompute;
      options.store.zero_stage = 3;
      expect_equal_to_one(options, {.pipeline = 2});
      options.model.tied = false;
      expect_equal_to_one(options, {.pipeline = 2});
      expect_equal_to_one(options, {.pipeline = 5});
    }
}

// scale, embed | block | block | gate | head: the gate also reads what embed made.
TEST(Pipeline, AValueTravelsWithTheStagesToThoseThatReadIt) {
  const ToyModel model(ToyOptions{});
  const Wiring wiring = make_wiring(model.description());
  const auto into = [&](int ranks) {
    const shard::Layout layout(model.description(), {.pipeline = ranks}, {});
    std::vector<std::vector<std::string>> names;
    for (const std::vector<int>& values : make_crossings(wiring, layout).into) {
      auto& stage = names.emplace_back();
      for (int value : values) stage.push_back(wiring.values[size_t(value)].name);
    }
    return names;
  };
  const std::string embed = wiring.values[size_t(wiring.layers[1].first_value)].name;
  for (const auto& stage : into(1)) EXPECT_THAT(stage, IsEmpty());
  // With two ranks embed's is where the block needs it, and then where the gate does, which is the same rank.
  const auto two = into(2);
  ASSERT_EQ(two.size(), 5u);
  EXPECT_THAT(two[1], ElementsAre(embed));
  for (size_t stage = 2; stage < 5; ++stage) EXPECT_EQ(two[stage].size(), 1u) << stage;
  // With five it goes on beside the blocks' own.
  const auto five = into(5);
  EXPECT_THAT(five[1], ElementsAre(embed));
  EXPECT_THAT(five[2], testing::Contains(embed));
  EXPECT_THAT(five[3], testing::Contains(embed));
  EXPECT_EQ(five[3].size(), 2u);
  EXPECT_EQ(five[4].size(), 1u);
}

}  // namespace
}  // namespace fastllm::train
