#include "core/data/prepare/splits.hpp"

#include <gmock/gmock.h>

#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Shards {
  std::vector<std::vector<int32_t>> sizes;
  std::vector<ShardSizes> all;
  explicit Shards(std::vector<std::vector<int32_t>> s) : sizes(std::move(s)) {
    for (size_t i = 0; i < sizes.size(); ++i)
      all.push_back({"shard_0_" + std::to_string(i), sizes[i]});
  }
};

std::vector<int32_t> documents(size_t count, int32_t tokens) {
  return std::vector<int32_t>(count, tokens);
}

std::string memmap(int shard, int documents, int tokens, const std::string& indent = "") {
  return indent + "type: memmap\n" + indent + "path: shard_0_" + std::to_string(shard) + "\n" +
         indent + "num_documents: " + std::to_string(documents) + "\n" + indent +
         "num_tokens: " + std::to_string(tokens) + "\n";
}

TEST(Splits, FollowTheTable) {
  {
    Shards shards({documents(500, 300)});
    auto splits = split_shards(shards.all, {3, 1});
    EXPECT_EQ(dataset_yaml(shards.all, splits[0]),
              "type: slice\ndataset:\n" + memmap(0, 500, 150000, "  ") + "begin: 0.0\nend: 0.75\n");
    EXPECT_EQ(dataset_yaml(shards.all, splits[1]),
              "type: slice\ndataset:\n" + memmap(0, 500, 150000, "  ") + "begin: 0.75\nend: 1.0\n");
  }
  Shards shards({documents(500, 300), documents(1500, 100)});
  {
    auto splits = split_shards(shards.all, {1, 1});
    EXPECT_EQ(dataset_yaml(shards.all, splits[0]), memmap(0, 500, 150000));
    EXPECT_EQ(dataset_yaml(shards.all, splits[1]), memmap(1, 1500, 150000));
  }
  {
    auto splits = split_shards(shards.all, {3, 1});
    EXPECT_EQ(dataset_yaml(shards.all, splits[0]),
              "type: blended\ndatasets:\n"
              "- type: memmap\n  path: shard_0_0\n  num_documents: 500\n  num_tokens: 150000\n"
              "- type: slice\n  dataset:\n" +
                  memmap(1, 1500, 150000, "    ") +
                  "  begin: 0.0\n  end: 0.5\n"
                  "weights:\n- 0.6666666666666666\n- 0.3333333333333333\n");
    EXPECT_EQ(dataset_yaml(shards.all, splits[1]),
              "type: slice\ndataset:\n" + memmap(1, 1500, 150000, "  ") + "begin: 0.5\nend: 1.0\n");
  }
}

TEST(Splits, CutAtTheNearestDocument) {
  std::vector<int32_t> sizes{10, 10, 0, 10};
  auto at = [&](double tokens) { return nearest_boundary(sizes, tokens); };
  EXPECT_EQ(at(0), 0);
  EXPECT_EQ(at(4), 0);
  EXPECT_EQ(at(5), 0);  // a tie goes down
  EXPECT_EQ(at(5.5), 1);
  EXPECT_EQ(at(10), 1);
  EXPECT_EQ(at(24), 3);  // the empty document stays before
  EXPECT_EQ(at(29), 4);  // in the last document, where one rule of the reference reads out of range
  EXPECT_EQ(at(31), 4);
}

TEST(Splits, GiveEveryDocumentToOneShare) {
  Shards shards({{7, 1, 3}, {0, 0}, {100}, {5, 5, 5, 5}});
  for (const std::vector<double>& ratios :
       {std::vector<double>{1, 1}, {0.9, 0.1}, {1, 1, 1}, {0, 1}, {1, 0}, {1e-9, 1}}) {
    std::vector<int> seen(10, 0);
    for (const auto& share : split_shards(shards.all, ratios)) {
      for (const SplitPiece& piece : share) {
        for (int64_t i = piece.first; i < piece.last; ++i)
          ++seen[piece.shard * 3 + size_t(i) - (piece.shard > 1 ? 1 : 0) -
                 (piece.shard > 2 ? 2 : 0)];
      }
    }
    EXPECT_THAT(seen, ::testing::Each(1));
  }
  EXPECT_TRUE(split_shards(shards.all, {1, 0})[1].empty());
  EXPECT_THAT(message_of(
                  [&] {
                    split_shards(shards.all, {0, 0});
                  },
                  Status::kInvalid),
              HasSubstr("split ratios"));
  EXPECT_THAT(message_of(
                  [&] {
                    split_shards(shards.all, {2, -1});
                  },
                  Status::kInvalid),
              HasSubstr("split ratios"));
}

TEST(Splits, WriteFloatsThatEveryYamlReaderTakesForFloats) {
  Shards shards({documents(10'000'000, 1)});
  EXPECT_THAT(dataset_yaml(shards.all, {{0, 1, 10'000'000, 9'999'999}}),
              HasSubstr("begin: 1.0e-07\n"));
}

}  // namespace
}  // namespace fastllm::data
