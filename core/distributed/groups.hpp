// Which ranks communicate with which: the groups of the mesh, each by kind, and those of tied
// weights. Arithmetic alone; docs/compatibility.md has the table.
// A group of one rank has no communicator. A group as large as its parent is its parent.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/distributed/world.hpp"

namespace fastllm::distributed {

enum class GroupKind {
  kWorld,
  kData,
  kPipeline,
  kTensor,
  kSequenceData,
  kBatchData,
  kTensorAndSequenceData,
};
inline constexpr GroupKind kAllGroups[] = {GroupKind::kWorld,
                                           GroupKind::kData,
                                           GroupKind::kPipeline,
                                           GroupKind::kTensor,
                                           GroupKind::kSequenceData,
                                           GroupKind::kBatchData,
                                           GroupKind::kTensorAndSequenceData};
const char* group_name(GroupKind kind);                         // "sequence_data"
std::optional<GroupKind> group_of_name(std::string_view name);  // nullopt: there is no such group

struct Group {
  std::string name;          // "data", "layers.0.word_embeddings_weight_tied_weight"
  std::string id;            // tells siblings apart: "x_1_0"; empty: the world
  int rank = 0;              // of this process, inside
  std::vector<int> members;  // world ranks, by rank inside
  int size() const { return int(members.size()); }
  // Unique among all groups of a run: "data_x_1_0".
  std::string key() const { return id.empty() ? name : name + "_" + id; }
};

// The group of that kind that the rank belongs to, of whatever size.
Group group_of(const World& world, GroupKind kind, int rank);
int group_size(const World& world, GroupKind kind);
std::optional<GroupKind> parent_of(const World& world, GroupKind kind);  // nullopt: the world

// The kind whose communicator serves groups of this kind: itself, or the ancestor it is equal to.
// nullopt: none is needed.
std::optional<GroupKind> served_by(const World& world, GroupKind kind);

// Pipeline ranks that share one weight, in ascending order without repetition. nullopt: this rank is
// not among them, or there is but one.
std::optional<Group> tied_group(const World& world, const std::string& parameter,
                                const std::vector<int>& pipeline_ranks, int rank);

// "rank 2", "ranks 1, 3-5"; empty: "no rank".
std::string ranks_text(std::vector<int> ranks);

}  // namespace fastllm::distributed
