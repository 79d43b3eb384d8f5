// The table as a plugin sees it, with ranks as threads.
#include "core/plugin/collectives_table.hpp"

#include <gmock/gmock.h>

#include "core/plugin/context.hpp"
#include "core/plugin/host_services.hpp"
#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::plugin {
namespace {

using distributed::Group;
using distributed::testing::MemoryNetwork;
using distributed::testing::run_ranks;
using testing::HasSubstr;

thread_local distributed::Communicator* t_data = nullptr;  // of the rank that this thread is

struct Tensor : DLTensor {
  Tensor(float* values, std::vector<int64_t> dimensions)
      : DLTensor{}, sizes(std::move(dimensions)) {
    data = values;
    device = {kDLCPU, 0};
    ndim = int32_t(sizes.size());
    dtype = kFloat32;
    shape = sizes.data();
    steps = row_major_strides(sizes);
    strides = steps.data();
  }
  std::vector<int64_t> sizes, steps;
};

const fastllm_collectives* asked() {
  return static_cast<const fastllm_collectives*>(host_table()->get(FASTLLM_COLLECTIVES));
}

class CollectivesTable : public testing::Test {
 protected:
  void SetUp() override {
    offer_collectives([](std::string_view name) { return name == "data" ? t_data : nullptr; });
  }
  void TearDown() override { offer_collectives({}); }
};

TEST_F(CollectivesTable, IsAbsentForOneRank) {
  EXPECT_TRUE(asked());
  offer_collectives({});
  EXPECT_FALSE(asked());
}

TEST_F(CollectivesTable, CallsReachTheGroup) {
  const fastllm_collectives* table = asked();
  MemoryNetwork network;
  run_ranks(2, [&](int rank) {
    auto group = distributed::make_exchange(Group{"data", "", rank, {0, 1}}, network.of(rank));
    t_data = group.get();
    EXPECT_EQ(table->rank("data"), rank);
    EXPECT_EQ(table->count("data"), 2);
    EXPECT_EQ(table->count("expert"), 1);

    float sum[2] = {float(rank + 1), 5};
    Tensor inout(sum, {2});
    EXPECT_EQ(table->all_reduce("data", FASTLLM_SUM, &inout, nullptr), FASTLLM_OK);
    EXPECT_EQ(sum[0], 3);
    EXPECT_EQ(sum[1], 10);

    float part[2] = {float(rank), float(rank + 10)}, whole[4] = {};
    Tensor in(part, {1, 2}), out(whole, {2, 2});
    EXPECT_EQ(table->all_gather("data", &in, &out, nullptr), FASTLLM_OK);
    EXPECT_THAT(whole, testing::ElementsAre(0, 10, 1, 11));
    EXPECT_EQ(table->reduce_scatter("data", FASTLLM_MEAN, &out, &in, nullptr), FASTLLM_OK);
    EXPECT_THAT(part, testing::ElementsAre(float(rank), float(rank + 10)));

    // Rank 0 keeps a row and sends two, rank 1 sends one and keeps none, rows of two.
    float rows_out[6] = {0, 1, 2, 3, 4, 5}, rows_in[4] = {};
    const int64_t from_0[] = {1, 2}, from_1[] = {1, 0}, to_0[] = {1, 1}, to_1[] = {2, 0};
    Tensor sent(rows_out, {rank == 0 ? 3 : 1, 2}), received(rows_in, {2, 2});
    EXPECT_EQ(table->all_to_all("data", &sent, rank == 0 ? from_0 : from_1, &received,
                                rank == 0 ? to_0 : to_1, nullptr),
              FASTLLM_OK);
    if (rank == 0) {
      EXPECT_THAT(rows_in, testing::ElementsAre(0, 1, 0, 1));
    } else {
      EXPECT_THAT(rows_in, testing::ElementsAre(2, 3, 4, 5));
    }
    t_data = nullptr;
  });
}

TEST_F(CollectivesTable, RefusesWhatItCannotDo) {
  const fastllm_collectives* table = asked();
  float x[4] = {};
  Tensor whole(x, {2, 2}), turned(x, {2, 2}), elsewhere(x, {4});
  std::swap(turned.steps[0], turned.steps[1]);
  elsewhere.device.device_type = kDLCUDA;
  EXPECT_EQ(table->all_reduce("no-such", FASTLLM_SUM, &whole, nullptr), FASTLLM_INVALID);
  EXPECT_THAT(latest_failure(), HasSubstr("pipeline or world, found no-such"));
  EXPECT_EQ(table->all_reduce("expert", 7, &whole, nullptr), FASTLLM_INVALID);
  EXPECT_THAT(latest_failure(), HasSubstr("FASTLLM_MEAN, found 7"));
  EXPECT_EQ(table->all_reduce("expert", FASTLLM_SUM, nullptr, nullptr), FASTLLM_INVALID);
  EXPECT_EQ(table->all_reduce("expert", FASTLLM_SUM, &turned, nullptr), FASTLLM_INVALID);
  EXPECT_THAT(latest_failure(), HasSubstr("expected a contiguous tensor to communicate"));
  EXPECT_EQ(table->all_reduce("expert", FASTLLM_SUM, &elsewhere, nullptr), FASTLLM_UNSUPPORTED);
  EXPECT_THAT(latest_failure(), HasSubstr("expected a tensor on the CPU"));
}

}  // namespace
}  // namespace fastllm::plugin
