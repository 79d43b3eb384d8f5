#include "core/distributed/groups.hpp"

#include <gmock/gmock.h>

#include <map>
#include <numeric>
#include <set>

namespace fastllm::distributed {
namespace {

using testing::ElementsAre;

std::vector<World> small_meshes() {
  std::vector<World> result;
  for (int tensor = 1; tensor <= 3; ++tensor) {
    for (int pipeline = 1; pipeline <= 3; ++pipeline) {
      for (int data = 1; data <= 6; ++data) {
        for (int sequence_data = 1; sequence_data <= data; ++sequence_data) {
          if (data % sequence_data != 0) continue;
          for (bool pipeline_first : {false, true})
            result.push_back({tensor, pipeline, data, pipeline_first, sequence_data, tensor});
        }
      }
    }
  }
  return result;
}

// What a rank's coordinates are, by counting through the mesh instead of dividing.
struct Coordinates {
  int tensor, data, pipeline;
};
std::vector<Coordinates> counted(const World& w) {
  std::vector<Coordinates> result;
  for (int outer = 0; outer < (w.pipeline_first ? w.data : w.pipeline); ++outer) {
    for (int inner = 0; inner < (w.pipeline_first ? w.pipeline : w.data); ++inner) {
      for (int t = 0; t < w.tensor; ++t) {
        result.push_back({t, w.pipeline_first ? outer : inner, w.pipeline_first ? inner : outer});
      }
    }
  }
  return result;
}

TEST(World, CoordinatesOfEveryRankOfSmallMeshes) {
  for (const World& w : small_meshes()) {
    const auto expected = counted(w);
    ASSERT_EQ(int(expected.size()), w.size());
    for (int rank = 0; rank < w.size(); ++rank) {
      const Coordinates& c = expected[size_t(rank)];
      EXPECT_EQ(w.tensor_rank(rank), c.tensor);
      EXPECT_EQ(w.data_rank(rank), c.data);
      EXPECT_EQ(w.pipeline_rank(rank), c.pipeline);
      EXPECT_EQ(w.rank_at(c.tensor, c.data, c.pipeline), rank);
      EXPECT_EQ(w.sequence_data_rank(rank), c.data % w.sequence_data);
      EXPECT_EQ(w.batch_data_rank(rank), c.data / w.sequence_data);
    }
  }
}

TEST(World, TheExampleOfEightRanks) {
  World w{.tensor = 2, .pipeline = 2, .data = 2, .local_world_size = 4};
  EXPECT_EQ(w.tensor_rank(5), 1);
  EXPECT_EQ(w.data_rank(5), 0);
  EXPECT_EQ(w.pipeline_rank(5), 1);
  EXPECT_EQ(w.nodes(), 2);
  EXPECT_EQ(w.local_rank(5), 1);
  w.pipeline_first = true;
  EXPECT_EQ(w.data_rank(5), 1);
  EXPECT_EQ(w.pipeline_rank(5), 0);
}

// Which coordinates a rank must share with another to be in its group.
using Fixed = std::vector<int>;
Fixed fixed_coordinates(GroupKind kind, const World& w, const Coordinates& c) {
  const int sequence = c.data % w.sequence_data, batch = c.data / w.sequence_data;
  switch (kind) {
    case GroupKind::kWorld:
      return {};
    case GroupKind::kData:
      return {c.pipeline, c.tensor};
    case GroupKind::kPipeline:
      return {c.data, c.tensor};
    case GroupKind::kTensor:
      return {c.data, c.pipeline};
    case GroupKind::kSequenceData:
      return {batch, c.pipeline, c.tensor};
    case GroupKind::kBatchData:
      return {sequence, c.pipeline, c.tensor};
    case GroupKind::kTensorAndSequenceData:
      return {batch, c.pipeline};
  }
  return {};
}

TEST(Groups, SiblingsAreDisjointCoverTheWorldAndAgree) {
  for (const World& w : small_meshes()) {
    const auto coordinates = counted(w);
    for (GroupKind kind : kAllGroups) {
      std::map<std::string, std::vector<int>> by_key;
      std::map<std::string, Fixed> fixed_of_key;
      std::set<Fixed> all_fixed;
      for (int rank = 0; rank < w.size(); ++rank) {
        const Group group = group_of(w, kind, rank);
        ASSERT_EQ(group.size(), group_size(w, kind));
        ASSERT_EQ(group.members[size_t(group.rank)], rank);
        ASSERT_EQ(std::set<int>(group.members.begin(), group.members.end()).size(),
                  group.members.size());
        const Fixed fixed = fixed_coordinates(kind, w, coordinates[size_t(rank)]);
        all_fixed.insert(fixed);
        auto [members, first] = by_key.try_emplace(group.key(), group.members);
        if (first) fixed_of_key[group.key()] = fixed;
        EXPECT_EQ(members->second, group.members) << group.key();
        for (int member : group.members)
          EXPECT_EQ(fixed_coordinates(kind, w, coordinates[size_t(member)]), fixed);
      }
      EXPECT_EQ(by_key.size(), all_fixed.size());
      size_t covered = 0;
      for (const auto& [key, members] : by_key) covered += members.size();
      EXPECT_EQ(covered, size_t(w.size()));
    }
  }
}

TEST(Groups, OneServesAnotherOnlyWithTheSameMembersInTheSameOrder) {
  for (const World& w : small_meshes()) {
    for (GroupKind kind : kAllGroups) {
      const auto served = served_by(w, kind);
      EXPECT_EQ(served.has_value(), group_size(w, kind) > 1);
      if (!served) continue;
      for (int rank = 0; rank < w.size(); ++rank) {
        const Group own = group_of(w, kind, rank), other = group_of(w, *served, rank);
        EXPECT_EQ(own.members, other.members);
        EXPECT_EQ(own.rank, other.rank);
      }
    }
  }
}

TEST(Groups, NamesIdsAndParentsOfTheTable) {
  // 2 x 2 x 4, pairs of data ranks share a sample. Rank 13: tensor 1, data 2, pipeline 1.
  const World w{.tensor = 2, .pipeline = 2, .data = 4, .sequence_data = 2, .local_world_size = 2};
  const auto key = [&](GroupKind kind) { return group_of(w, kind, 13).key(); };
  EXPECT_EQ(key(GroupKind::kWorld), "world");
  EXPECT_EQ(key(GroupKind::kData), "data_x_1_1");
  EXPECT_EQ(key(GroupKind::kPipeline), "pipeline_x_2_1");
  EXPECT_EQ(key(GroupKind::kTensor), "tensor_x_2_1");
  EXPECT_EQ(key(GroupKind::kSequenceData), "sequence_data_1_1_1");
  EXPECT_EQ(key(GroupKind::kBatchData), "batch_data_0_1_1");
  EXPECT_EQ(key(GroupKind::kTensorAndSequenceData), "tensor_and_sequence_data_1_1");
  EXPECT_THAT(group_of(w, GroupKind::kTensorAndSequenceData, 13).members,
              ElementsAre(12, 13, 14, 15));
  EXPECT_EQ(group_of(w, GroupKind::kTensorAndSequenceData, 15).rank, 3);
  EXPECT_THAT(group_of(w, GroupKind::kBatchData, 13).members, ElementsAre(9, 13));
  EXPECT_THAT(group_of(w, GroupKind::kPipeline, 13).members, ElementsAre(5, 13));
  EXPECT_EQ(group_of_name("batch_data"), GroupKind::kBatchData);
  EXPECT_EQ(group_of_name("expert"), std::nullopt);
}

TEST(Groups, WhichOnesNeedACommunicator) {
  using enum GroupKind;
  const auto served = [](const World& w) {
    std::vector<int> result;
    for (GroupKind kind : kAllGroups) {
      const auto by = served_by(w, kind);
      result.push_back(by ? int(*by) : -1);
    }
    return result;
  };
  const int world = int(kWorld), data = int(kData), none = -1, tensor = int(kTensor);
  // World, data, pipeline, tensor, sequence_data, batch_data, tensor_and_sequence_data.
  EXPECT_THAT(served({}), ElementsAre(none, none, none, none, none, none, none));
  EXPECT_THAT(served({.data = 4}), ElementsAre(world, world, none, none, none, world, none));
  EXPECT_THAT(served({.tensor = 2}), ElementsAre(world, none, none, world, none, none, world));
  EXPECT_THAT(served({.tensor = 2, .data = 2}),
              ElementsAre(world, data, none, tensor, none, data, tensor));
  EXPECT_THAT(served({.tensor = 2, .data = 2, .sequence_data = 2}),
              ElementsAre(world, data, none, tensor, data, none, world));
  EXPECT_THAT(served({.data = 4, .sequence_data = 2}),
              ElementsAre(world, world, none, none, int(kSequenceData), int(kBatchData),
                          int(kSequenceData)));
  EXPECT_THAT(served({.tensor = 2, .pipeline = 2, .data = 4, .sequence_data = 2}),
              ElementsAre(world, data, int(kPipeline), tensor, int(kSequenceData), int(kBatchData),
                          int(kTensorAndSequenceData)));
}

TEST(Groups, ATiedWeightJoinsItsPipelineRanks) {
  const World w{.tensor = 2, .pipeline = 3, .data = 2};
  const std::string name = "layers.0.word_embeddings_weight";
  // Rank 9 is tensor 1, data 0, pipeline 2.
  const auto group = tied_group(w, name, {0, 2}, 9);
  ASSERT_TRUE(group);
  EXPECT_EQ(group->key(), name + "_tied_weight_0_x_1");
  EXPECT_EQ(group->rank, 1);
  EXPECT_THAT(group->members, ElementsAre(1, 9));
  EXPECT_FALSE(tied_group(w, name, {0, 2}, 5)) << "pipeline rank 1 has no part in it";
  EXPECT_FALSE(tied_group(w, name, {2}, 9)) << "one rank needs nobody";
}

TEST(Groups, RanksAsText) {
  EXPECT_EQ(ranks_text({}), "no rank");
  EXPECT_EQ(ranks_text({3}), "rank 3");
  EXPECT_EQ(ranks_text({5, 1, 4, 3}), "ranks 1, 3-5");
  EXPECT_EQ(ranks_text({0, 1}), "ranks 0-1");
}

}  // namespace
}  // namespace fastllm::distributed
