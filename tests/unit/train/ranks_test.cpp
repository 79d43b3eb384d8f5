// What ranks agree on before and after a step, as threads over a network in memory: how many labels it
// has, whether all take it, and what follows it.
#include "core/train/ranks.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/cancel.hpp"
#include "core/distributed/exchange.hpp"
#include "core/train/decisions.hpp"
#include "core/train/step_batches.hpp"
#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::train {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

std::unique_ptr<distributed::Communicator> world_of(int size, int rank,
                                                    distributed::testing::MemoryNetwork& network) {
  distributed::Group group{"world", "", rank, {}};
  for (int r = 0; r < size; ++r) group.members.push_back(r);
  return distributed::make_exchange(group, network.of(rank));
}

// Runs as one world; what the body gives, by rank.
template <class T>
std::vector<T> by_rank(int size, const std::function<T(int, distributed::Communicator&)>& body) {
  distributed::testing::MemoryNetwork network;
  std::vector<T> results(static_cast<size_t>(size));
  distributed::testing::run_ranks(size, [&](int rank) {
    const auto world = world_of(size, rank, network);
    results[size_t(rank)] = body(rank, *world);
  });
  return results;
}

TEST(Ranks, OneIsEnoughForAny) {
  for (int which = -1; which < 3; ++which) {
    const auto found = by_rank<int>(3, [&](int rank, distributed::Communicator& world) {
      return int(Ranks{.world = &world}.any(rank == which));
    });
    EXPECT_THAT(found, Each(int(which >= 0))) << which;
  }
}

TEST(Ranks, Rank0SpeaksForAll) {
  const auto found = by_rank<int64_t>(3, [](int rank, distributed::Communicator& world) {
    return Ranks{.world = &world}.of_main(7 + rank);
  });
  EXPECT_THAT(found, Each(7));
  EXPECT_EQ(Ranks{}.of_main(5), 5);
  EXPECT_FALSE(Ranks{}.any(false));
}

// ---- after a step

// What each of three ranks decides after step 5, when the clock of rank 1 shows `late` seconds and
// those of the others `early`, all from 0.
std::vector<Decisions> decide(const TrainingSettings& training, double early, double late) {
  return by_rank<Decisions>(3, [&](int rank, distributed::Communicator& world) {
    double now = 0;
    Decider decider(
        training, [&now] { return now; }, &world);
    now = rank == 1 ? late : early;
    return decider.decide(5);
  });
}

TEST(RanksDecide, TheClockOfOneDecidesForAll) {
  TrainingSettings training;
  training.train_iters = 100;
  training.logs = Interval(std::nullopt, 0, 10.);
  training.checkpoint.when = Interval(std::nullopt, 0, 20.);
  training.validation = {{"timed", Interval(std::nullopt, 0, 30.), 1}};
  training.wall_clock_limit = 40;
  for (double late : {9., 10., 20., 30., 40.}) {
    for (const Decisions& d : decide(training, 1, late)) {
      EXPECT_EQ(d.log, late >= 10) << late;
      EXPECT_EQ(d.save, late >= 20) << late;
      EXPECT_EQ(d.validate.size(), late >= 30 ? 1u : 0u) << late;
      EXPECT_EQ(d.time_is_up, late >= 40) << late;
      EXPECT_FALSE(d.signal || d.last || d.shutdown);
    }
  }
}

// Threads share the flag, so rank 1 is asked to stop when rank 0 has already voted.
TEST(RanksDecide, TheSignalOfOneStopsAll) {
  TrainingSettings training;
  training.train_iters = 100;
  stop_signal() = 0;
  distributed::testing::MemoryNetwork network;
  Decisions found[2];
  distributed::testing::run_ranks(2, [&](int rank) {
    const auto world = world_of(2, rank, network);
    Decider decider(
        training, [] { return 0.; }, world.get());
    if (rank == 1) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (network.bytes_sent(0) == 0 && std::chrono::steady_clock::now() < limit)
        std::this_thread::yield();
      stop_signal() = 15;
    }
    found[rank] = decider.decide(5);
  });
  stop_signal() = 0;
  for (const Decisions& d : found) EXPECT_TRUE(d.signal);
}

// ---- before a step

constexpr int64_t kLength = 8;

// Sample i has its tokens 1 .. i % 5 masked.
class Masked final : public data::SampledDataset {
 public:
  int64_t size() const override { return 100; }
  void get(int64_t index, data::Sample& sample) const override {
    std::fill(sample.tokens.begin(), sample.tokens.end(), index);
    sample.loss_masking_spans.clear();
    if (index % 5 > 0) sample.loss_masking_spans.push_back({1, index % 5});
    sample.document_lengths = {int64_t(sample.tokens.size())};
  }
  std::string name() const override { return "masked"; }
  std::vector<std::string> fingerprints() const override { return {}; }
  bool has_spans() const override { return true; }
};

struct Step {
  bool taken = false;
  std::vector<int64_t> samples, valid;  // the batches' samples; counts of both kinds of labels
};

// The step of four samples from sample 4 on, on `size` ranks of which each `replicas` work on the
// same; rank `stops` is to stop.
std::vector<Step> take_step(int size, int replicas, int stops) {
  Settings settings;
  settings.batch.micro_batch_size = 1;
  settings.batch.sequence_length = kLength;
  settings.batch.sequential_micro_batches = 4 * replicas / size;
  settings.training.num_workers = 0;
  settings.distributed.world_size = settings.distributed.local_world_size = size;
  settings.distributed.tensor_parallel = replicas;
  settings.distributed.data_parallel = settings.distributed.batch_data_parallel = size / replicas;
  return by_rank<Step>(size, [&](int rank, distributed::Communicator& world) {
    distributed::testing::MemoryNetwork unused;
    const auto data =
        size > replicas ? world_of(size / replicas, rank / replicas, unused) : nullptr;
    Settings own = settings;
    own.distributed.rank = rank;
    data::Loader loader(std::make_shared<Masked>(), loader_options(own, 0, 2, 4));
    const Ranks ranks{.world = &world, .data = data.get()};
    const auto batches = next_batches(
        loader, own, 1, [] { return 0.; }, ranks, [&] { return rank == stops; });
    Step step;
    step.taken = batches.has_value();
    if (!batches) return step;
    for (const auto& batch : batches->owned) step.samples.push_back(batch->tokens[0]);
    step.valid = {batches->input.valid(1), batches->input.valid(2)};
    return step;
  });
}

TEST(RanksStep, LabelsAreCountedOverAllRanksAndOncePerSample) {
  // Samples 4 .. 7: 4, 0, 1, 2 masked tokens; the first of them is no label two tokens ahead.
  const int64_t next = 4 * kLength - (4 + 0 + 1 + 2), second = 4 * kLength - (3 + 0 + 0 + 1);
  for (const auto& [size, replicas] : {std::pair(2, 1), {4, 1}, {4, 2}, {2, 2}}) {
    std::vector<int64_t> samples;
    for (const Step& step : take_step(size, replicas, -1)) {
      EXPECT_TRUE(step.taken);
      EXPECT_THAT(step.valid, ElementsAre(next, second)) << size << " ranks, " << replicas;
      samples.insert(samples.end(), step.samples.begin(), step.samples.end());
    }
    std::vector<int64_t> expected;
    for (int64_t sample = 4; sample < 8; ++sample)
      expected.insert(expected.end(), replicas, sample);
    EXPECT_THAT(samples, ::testing::UnorderedElementsAreArray(expected));
  }
}

TEST(RanksStep, OneThatStopsStopsAll) {
  for (int stops = 0; stops < 2; ++stops)
    for (const Step& step : take_step(2, 1, stops)) EXPECT_FALSE(step.taken);
}

}  // namespace
}  // namespace fastllm::train
