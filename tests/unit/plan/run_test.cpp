// What a plan foretells against what ranks do: bytes sent by group and operation, and the most memory
// of activations, both counted by the code of real runs over networks in memory.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <mutex>
#include <set>

#include "core/distributed/exchange.hpp"
#include "core/optim/adamw.hpp"
#include "core/plan/plan.hpp"
#include "core/train/executor/executor.hpp"
#include "core/train/executor/initialize.hpp"
#include "tests/unit/distributed/memory_network.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::plan {
namespace {

using distributed::Communicator;
using distributed::GroupKind;
using distributed::Operation;
using test::ToyModel;
using test::ToyOptions;

constexpr int64_t kSamples = 2, kLength = 12, kWidth = 7;

struct Case {
  ToyOptions model = {};
  distributed::World world = {};
  int zero = 1;
  bool recompute = false;
  int depth = 1, breadth = 1;
  DLDataType training = kFloat32;
};

shard::StoreOptions store_options(const Case& c) {
  shard::StoreOptions options;
  options.zero_stage = c.zero;
  options.training = c.training;
  options.full_precision_gradients = is_float32(c.training);
  return options;
}

data::Batch make_batch(int64_t index) {
  data::Batch batch;
  batch.samples = kSamples;
  batch.length = kLength;
  for (int64_t i = 0; i < kSamples * kLength; ++i) {
    batch.tokens.push_back((index + 3 * i) % 11);
    batch.labels.push_back((index + 5 * i) % 11);
    batch.positions.push_back(i % kLength);
    batch.documents.push_back(0);
  }
  batch.cu_seqlens = {0, int32_t(kLength), int32_t(2 * kLength)};
  batch.valid_labels = kSamples * kLength;
  return batch;
}

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

// By group and operation: calls, bytes.
using Counts = std::map<std::pair<std::string, std::string>, std::pair<int64_t, int64_t>>;

struct Seen {
  Counts first, second;  // steps
  int64_t peak = 0;
  std::vector<int> forwards, backwards;  // by layer, of one step
};

Counts counts_of(const std::vector<const Communicator*>& groups) {
  Counts counts;
  for (const Communicator* group : groups)
    for (int o = 0; group && o < distributed::kOperations; ++o) {
      const auto& line = group->traffic().of(Operation(o));
      if (line.bytes > 0)
        counts[{group->group().name, distributed::operation_name(Operation(o))}] = {line.calls,
                                                                                    line.bytes};
    }
  return counts;
}

Counts difference(Counts later, const Counts& before) {
  for (auto& [key, value] : later)
    if (const auto found = before.find(key); found != before.end()) {
      value.first -= found->second.first;
      value.second -= found->second.second;
    }
  std::erase_if(later, [](const auto& entry) { return entry.second.second == 0; });
  return later;
}

Seen run(const Case& c, int rank, Networks& networks) {
  ToyModel model(c.model);
  const shard::Layout layout(model.description(), c.world, {});
  const auto data = networks.join(group_of(c.world, GroupKind::kData, rank));
  const auto pipeline = networks.join(group_of(c.world, GroupKind::kPipeline, rank));
  const auto all = networks.join(group_of(c.world, GroupKind::kWorld, rank));
  std::unique_ptr<Communicator> tied;
  shard::StoreGroups groups{.data = data.get()};
  for (const shard::Tied& t : layout.tied()) {
    std::set<int> users;
    for (int stage : t.stages) users.insert(layout.stages()[size_t(stage)].pipeline_rank);
    const auto group =
        tied_group(c.world, layout.description().parameters[size_t(t.parameter)].name,
                   {users.begin(), users.end()}, rank);
    if (!group) continue;
    tied = networks.join(*group);
    groups.tied[t.main_stage] = tied.get();
  }
  shard::Store store(layout, rank, store_options(c), groups);
  train::Executor executor(
      model, store, {.recompute = c.recompute, .data = data.get(), .pipeline = pipeline.get()});
  optim::AdamW optimizer(store, {}, all.get());
  train::initialize(store, model, 5);
  const auto schedule = make_schedule(train::schedule_options(store, c.depth, c.breadth, true));
  std::vector<data::Batch> batches;
  train::StepInput input;
  for (int i = 0; i < c.depth * c.breadth; ++i) batches.push_back(make_batch(rank + i));
  for (const data::Batch& batch : batches) input.micro_batches.push_back(&batch);
  input.valid_labels = int64_t(batches.size()) * kSamples * kLength * c.world.data;
  const std::vector<const Communicator*> counted{data.get(), pipeline.get(), tied.get()};
  Seen seen;
  for (int step = 1; step <= 2; ++step) {
    input.step = step;
    executor.train(input, schedule);
    optimizer.step(0.01);
    if (step == 1) seen.first = counts_of(counted);
  }
  seen.second = difference(counts_of(counted), seen.first);
  seen.peak = executor.peak_activation_bytes();
  for (const ToyModel::Counts& layer : model.counts) {
    seen.forwards.push_back(layer.forward / 2);
    seen.backwards.push_back(layer.backward / 2);
  }
  return seen;
}

Counts planned(const StepTraffic& traffic) {
  Counts counts;
  for (const TrafficLine& line : traffic.lines) {
    if (line.group == "world") continue;  // the norm's and the loop's
    auto& sum = counts[{line.group, distributed::operation_name(line.operation)}];
    sum.first += line.calls;
    sum.second += line.bytes;
  }
  return counts;
}

int64_t bytes(const Counts& counts) {
  int64_t sum = 0;
  for (const auto& [key, value] : counts) sum += value.second;
  return sum;
}

void expect_as_planned(const Case& c) {
  Networks networks;
  std::vector<Seen> seen(size_t(c.world.size()));
  distributed::testing::run_ranks(c.world.size(),
                                  [&](int rank) { seen[size_t(rank)] = run(c, rank, networks); });
  const ToyModel model(c.model);
  const shard::Layout layout(model.description(), c.world, {});
  const train::Wiring wiring = train::make_wiring(model.description());
  const train::Crossings crossings = train::make_crossings(wiring, layout);
  const Wires wires{wiring, crossings, layout, c.training, c.recompute};
  const MicroBatch micro_batch{kSamples, kLength};
  const train::Settings settings;
  const shard::StoreOptions store = store_options(c);
  for (int rank = 0; rank < c.world.size(); ++rank) {
    SCOPED_TRACE(rank);
    const auto schedule = make_schedule(schedule_options(layout, rank, store, c.depth, c.breadth));
    const Activations expected = activations(wires, rank, schedule, micro_batch);
    const Seen& own = seen[size_t(rank)];
    EXPECT_EQ(expected.peak_bytes, own.peak);
    for (size_t l = 0; l < own.forwards.size(); ++l) {
      EXPECT_EQ(expected.forwards[l], own.forwards[l]) << l;
      EXPECT_EQ(expected.backwards[l], own.backwards[l]) << l;
    }
    const StepTraffic traffic = step_traffic(settings, wires, store, rank, schedule, micro_batch);
    EXPECT_EQ(planned(traffic), own.second);
    EXPECT_EQ(bytes(own.first) - bytes(own.second), traffic.first_step_bytes);
  }
}

std::string name_of(const Case& c) {
  std::string name = "zero " + std::to_string(c.zero) + " depth " + std::to_string(c.depth) +
                     " breadth " + std::to_string(c.breadth) + (c.recompute ? " recompute" : "") +
                     (c.model.tied ? " tied" : "") + " frozen";
  for (int layer : c.model.frozen) name += " " + std::to_string(layer);
  return name;
}

class PlannedRun : public testing::TestWithParam<std::array<int, 2>> {};  // data, pipeline

TEST_P(PlannedRun, SendsAndHoldsWhatThePlanSays) {
  const auto [data, pipeline] = GetParam();
  for (const std::vector<int>& frozen : std::vector<std::vector<int>>{{}, {1}, {2, 3}, {1, 2, 5}})
    for (int zero : {1, 2, 3})
      for (bool recompute : {false, true})
        for (bool tied : {false, true})
          for (const auto& [depth, breadth] : {std::pair(1, 1), {1, 4}, {3, 1}, {2, 2}}) {
            if (pipeline > 1 && depth > 1) continue;
            Case c;
            c.model.width = kWidth;
            c.model.tied = tied;
            c.model.frozen = frozen;
            c.world = {.pipeline = pipeline, .data = data};
            c.zero = zero;
            c.recompute = recompute;
            c.depth = depth;
            c.breadth = breadth;
            SCOPED_TRACE(name_of(c));
            expect_as_planned(c);
            if (HasFailure()) return;
          }
}

INSTANTIATE_TEST_SUITE_P(Worlds, PlannedRun,
                         testing::Values(std::array{1, 1}, std::array{2, 1}, std::array{3, 1},
                                         std::array{1, 2}, std::array{1, 3}, std::array{2, 2},
                                         std::array{1, 5}));

TEST(PlannedRunInHalves, SendsAndHoldsWhatThePlanSays) {
  for (int zero : {1, 3}) {
    Case c;
    c.world = {.pipeline = 2, .data = 2};
    c.zero = zero;
    c.breadth = 4;
    c.training = kBfloat16;
    SCOPED_TRACE(zero);
    expect_as_planned(c);
  }
}

}  // namespace
}  // namespace fastllm::plan
