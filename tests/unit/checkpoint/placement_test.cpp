// Runs against a naive walk over every element, in worlds of tensor, pipeline and data ranks.
#include "core/checkpoint/placement.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/unit/checkpoint/support.hpp"

namespace fastllm::test {
namespace {

using checkpoint::runs_of;

// Which global element is element `local` of a tensor-parallel rank's part, written down naively.
int64_t global_of(const model::Parameter& p, const shard::World& world, int rank,
                  const std::vector<int64_t>& local_shape, int64_t local) {
  std::vector<int64_t> index(p.shape.size());
  for (size_t d = p.shape.size(); d-- > 0;) {
    index[d] = local % local_shape[d];
    local /= local_shape[d];
  }
  if (local_shape != p.shape) {
    const auto d = size_t(p.shard_dim);
    const int64_t block = p.shape[d] / p.shard_blocks,
                  local_block = local_shape[d] / p.shard_blocks;
    index[d] = index[d] / local_block * block + world.tensor_rank(rank) * local_block +
               index[d] % local_block;
  }
  int64_t global = 0;
  for (size_t d = 0; d < p.shape.size(); ++d) global = global * p.shape[d] + index[d];
  return global;
}

class Placement : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

// Every element of every rank's shard, one by one, for many worlds; the frozen and the biased
// model.
TEST_P(Placement, RunsHoldExactlyTheElementsOfTheShardInOrder) {
  const auto [tensor, pipeline, data] = GetParam();
  for (const char* base : {"{transformer.mlp_lr_scale: [0.0]}",
                           "{transformer.add_linear_biases: true, tie_word_embeddings: true}"}) {
    const Job job(small_metadata(base, "{world_size: " + std::to_string(tensor * pipeline * data) +
                                           ", tensor_parallel: " + std::to_string(tensor) +
                                           ", pipeline_parallel: " + std::to_string(pipeline) +
                                           "}"));
    const shard::World& world = job.layout.world();
    std::map<std::string, std::vector<int>> times;  // by parameter: how often each element was seen
    for (int rank = 0; rank < world.size(); ++rank) {
      for (const shard::Placed& placed : job.layout.on_device(rank)) {
        const auto& groups = job.layout.stages()[size_t(placed.stage)].groups;
        for (int g = 0; g < int(groups.size()); ++g) {
          const int64_t first = world.data_rank(rank) * groups[size_t(g)].shard_elements;
          const int64_t begin = job.layout.shard_begin(rank, "weights", placed.stage, g);
          for (int p = 0; p < int(groups[size_t(g)].pieces.size()); ++p) {
            const shard::Piece& piece = groups[size_t(g)].pieces[size_t(p)];
            const model::Parameter& parameter = job.description.parameters[size_t(piece.parameter)];
            std::vector<std::pair<int64_t, int64_t>> expected, found;  // (flat, global)
            for (int64_t at = std::max(piece.begin, first);
                 at < std::min(piece.end, first + groups[size_t(g)].shard_elements); ++at) {
              expected.emplace_back(begin + at - first, global_of(parameter, world, rank,
                                                                  piece.local, at - piece.begin));
            }
            const auto runs = runs_of(job.layout, rank, "weights", placed.stage, g, p);
            EXPECT_LE(runs.size(), 3u);
            for (const auto& run : runs) {
              for (int64_t i = 0; i < run.count(); ++i) {
                int64_t global = run.offset, rest = i;
                for (size_t d = run.shape.size(); d-- > 0;) {
                  global += rest % run.shape[d] * run.strides[d];
                  rest /= run.shape[d];
                }
                found.emplace_back(run.flat + i, global);
              }
            }
            ASSERT_EQ(found, expected) << parameter.name << " on rank " << rank;
            auto& seen = times[parameter.name];
            seen.resize(size_t(parameter.elements()));
            if (!placed.copy) {
              for (const auto& [flat, global] : found) ++seen[size_t(global)];
            }
          }
        }
      }
    }
    EXPECT_EQ(times.size(), job.description.parameters.size());
    for (const auto& [name, seen] : times) {
      const auto& ps = job.description.parameters;
      const auto& p =
          *std::find_if(ps.begin(), ps.end(), [&, n = name](const auto& q) { return q.name == n; });
      const int copies = tensor > 1 && p.shard_group.empty() ? tensor : 1;
      EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [&](int n) { return n == copies; }))
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Placement,
                         ::testing::Values(std::tuple(1, 1, 1), std::tuple(1, 1, 2),
                                           std::tuple(1, 1, 7), std::tuple(2, 1, 1),
                                           std::tuple(2, 1, 3), std::tuple(1, 2, 2),
                                           std::tuple(2, 2, 5), std::tuple(1, 4, 1)));

TEST(LayoutText, TellsLayoutsApartByWhatTheyHold) {
  const Job one(small_metadata()), same(small_metadata());
  const Job frozen(small_metadata("{transformer.mlp_lr_scale: [0.0]}"));
  EXPECT_EQ(checkpoint::layout_text(one.layout, 0, "weights"),
            checkpoint::layout_text(same.layout, 0, "weights"));
  EXPECT_NE(checkpoint::layout_text(one.layout, 0, "weights"),
            checkpoint::layout_text(frozen.layout, 0, "weights"));
}

}  // namespace
}  // namespace fastllm::test
