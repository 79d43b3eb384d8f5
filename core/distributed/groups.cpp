#include "core/distributed/groups.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fastllm::distributed {
namespace {

// Where a rank is: the two or three coordinates that a group keeps fixed make its id.
struct Place {
  int tensor, data, pipeline, sequence_data, batch_data;
  Place(const World& world, int rank)
      : tensor(world.tensor_rank(rank)),
        data(world.data_rank(rank)),
        pipeline(world.pipeline_rank(rank)),
        sequence_data(world.sequence_data_rank(rank)),
        batch_data(world.batch_data_rank(rank)) {}
};

std::string group_id(GroupKind kind, const Place& at) {
  switch (kind) {
    case GroupKind::kWorld:
      return "";
    case GroupKind::kData:
      return fmt::format("x_{}_{}", at.pipeline, at.tensor);
    case GroupKind::kPipeline:
      return fmt::format("x_{}_{}", at.data, at.tensor);
    case GroupKind::kTensor:
      return fmt::format("x_{}_{}", at.data, at.pipeline);
    case GroupKind::kSequenceData:
      return fmt::format("{}_{}_{}", at.batch_data, at.pipeline, at.tensor);
    case GroupKind::kBatchData:
      return fmt::format("{}_{}_{}", at.sequence_data, at.pipeline, at.tensor);
    case GroupKind::kTensorAndSequenceData:
      return fmt::format("{}_{}", at.batch_data, at.pipeline);
  }
  return "";
}

int rank_inside(const World& world, GroupKind kind, int rank, const Place& at) {
  switch (kind) {
    case GroupKind::kWorld:
      return rank;
    case GroupKind::kData:
      return at.data;
    case GroupKind::kPipeline:
      return at.pipeline;
    case GroupKind::kTensor:
      return at.tensor;
    case GroupKind::kSequenceData:
      return at.sequence_data;
    case GroupKind::kBatchData:
      return at.batch_data;
    case GroupKind::kTensorAndSequenceData:
      return at.tensor + at.sequence_data * world.tensor;
  }
  return 0;
}

// The world rank that is number `inside` of the group in which `at` lies.
int member(const World& world, GroupKind kind, const Place& at, int inside) {
  auto data_rank = [&](int batch, int sequence) { return batch * world.sequence_data + sequence; };
  switch (kind) {
    case GroupKind::kWorld:
      return inside;
    case GroupKind::kData:
      return world.rank_at(at.tensor, inside, at.pipeline);
    case GroupKind::kPipeline:
      return world.rank_at(at.tensor, at.data, inside);
    case GroupKind::kTensor:
      return world.rank_at(inside, at.data, at.pipeline);
    case GroupKind::kSequenceData:
      return world.rank_at(at.tensor, data_rank(at.batch_data, inside), at.pipeline);
    case GroupKind::kBatchData:
      return world.rank_at(at.tensor, data_rank(inside, at.sequence_data), at.pipeline);
    case GroupKind::kTensorAndSequenceData:
      return world.rank_at(inside % world.tensor, data_rank(at.batch_data, inside / world.tensor),
                           at.pipeline);
  }
  return 0;
}

}  // namespace

const char* group_name(GroupKind kind) {
  switch (kind) {
    case GroupKind::kWorld:
      return "world";
    case GroupKind::kData:
      return "data";
    case GroupKind::kPipeline:
      return "pipeline";
    case GroupKind::kTensor:
      return "tensor";
    case GroupKind::kSequenceData:
      return "sequence_data";
    case GroupKind::kBatchData:
      return "batch_data";
    case GroupKind::kTensorAndSequenceData:
      return "tensor_and_sequence_data";
  }
  return "";
}

std::optional<GroupKind> group_of_name(std::string_view name) {
  for (GroupKind kind : kAllGroups) {
    if (name == group_name(kind)) return kind;
  }
  return std::nullopt;
}

int group_size(const World& world, GroupKind kind) {
  switch (kind) {
    case GroupKind::kWorld:
      return world.size();
    case GroupKind::kData:
      return world.data;
    case GroupKind::kPipeline:
      return world.pipeline;
    case GroupKind::kTensor:
      return world.tensor;
    case GroupKind::kSequenceData:
      return world.sequence_data;
    case GroupKind::kBatchData:
      return world.batch_data();
    case GroupKind::kTensorAndSequenceData:
      return world.tensor * world.sequence_data;
  }
  return 1;
}

Group group_of(const World& world, GroupKind kind, int rank) {
  const Place at(world, rank);
  Group group{group_name(kind), group_id(kind, at), rank_inside(world, kind, rank, at), {}};
  const int size = group_size(world, kind);
  for (int inside = 0; inside < size; ++inside)
    group.members.push_back(member(world, kind, at, inside));
  return group;
}

std::optional<GroupKind> parent_of(const World& world, GroupKind kind) {
  switch (kind) {
    case GroupKind::kWorld:
      return std::nullopt;
    case GroupKind::kData:
    case GroupKind::kPipeline:
    case GroupKind::kTensor:
      return GroupKind::kWorld;
    case GroupKind::kSequenceData:
    case GroupKind::kBatchData:
      return GroupKind::kData;
    case GroupKind::kTensorAndSequenceData:
      if (world.sequence_data == 1) return GroupKind::kTensor;
      if (world.tensor == 1) return GroupKind::kSequenceData;
      return GroupKind::kWorld;
  }
  return std::nullopt;
}

std::optional<GroupKind> served_by(const World& world, GroupKind kind) {
  if (group_size(world, kind) == 1) return std::nullopt;
  const auto parent = parent_of(world, kind);
  if (!parent || group_size(world, *parent) != group_size(world, kind)) return kind;
  return served_by(world, *parent);
}

std::optional<Group> tied_group(const World& world, const std::string& parameter,
                                const std::vector<int>& pipeline_ranks, int rank) {
  const Place at(world, rank);
  const auto own = std::find(pipeline_ranks.begin(), pipeline_ranks.end(), at.pipeline);
  if (pipeline_ranks.size() < 2 || own == pipeline_ranks.end()) return std::nullopt;
  Group group{parameter + "_tied_weight",
              fmt::format("{}_x_{}", at.data, at.tensor),
              int(own - pipeline_ranks.begin()),
              {}};
  for (int pipeline : pipeline_ranks)
    group.members.push_back(world.rank_at(at.tensor, at.data, pipeline));
  return group;
}

std::string ranks_text(std::vector<int> ranks) {
  if (ranks.empty()) return "no rank";
  std::sort(ranks.begin(), ranks.end());
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  std::string text = "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (i > 0) text += ", ";
    text +=
        end - i > 1 ? fmt::format("{}-{}", ranks[i], ranks[end - 1]) : fmt::format("{}", ranks[i]);
    i = end;
  }
  return text;
}

}  // namespace fastllm::distributed
