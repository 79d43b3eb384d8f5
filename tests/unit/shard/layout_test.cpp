// Offsets, padding and placement against worked examples and against checkpoints that the reference wrote.
#include "core/shard/layout.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "tests/support/gpt_description.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::shard {
namespace {

using nlohmann::json;
using test::gpt_description;
using test::GptShape;
using testing::ElementsAre;
using testing::HasSubstr;

using Placement =
    std::vector<std::pair<std::string, int64_t>>;  // name below the layer, end in the buffer

Placement placement(const model::Description& d, const Group& group) {
  Placement result;
  int64_t end = 0;
  for (const Piece& piece : group.pieces) {
    EXPECT_EQ(piece.begin, end);  // back to back
    end = piece.end;
    const std::string& name = d.parameters[piece.parameter].name;
    result.emplace_back(name.substr(name.find('.', name.find('.') + 1) + 1), piece.end);
  }
  EXPECT_EQ(group.count, end);
  return result;
}

TEST(Layout, OrderAndOffsetsOfTheDefaultModel) {
  const model::Description d = gpt_description({});
  const Layout layout(d, {}, {});
  ASSERT_EQ(layout.stages().size(), 14u);
  EXPECT_EQ(placement(d, layout.stages()[1].groups.at(0)),
            (Placement{{"self_attn.query.bias", 1024},
                       {"mlp.layer_1.bias", 5120},
                       {"norm_1.weight", 6144},
                       {"norm_1.bias", 7168},
                       {"norm_2.weight", 8192},
                       {"norm_2.bias", 9216},
                       {"self_attn.key_value.bias", 9472},
                       {"self_attn.dense.bias", 10496},
                       {"mlp.layer_2.bias", 11520},
                       {"self_attn.key_value.weight", 273664},
                       {"self_attn.query.weight", 1322240},
                       {"self_attn.dense.weight", 2370816},
                       {"mlp.layer_1.weight", 6565120},
                       {"mlp.layer_2.weight", 10759424}}));
  EXPECT_EQ(
      placement(d, layout.stages()[0].groups.at(0)),
      (Placement{{"word_embeddings_weight", 50331648}, {"position_embeddings_weight", 52428800}}));
  EXPECT_EQ(layout.parameters_total(), 181543936);
  EXPECT_EQ(layout.lowest_trainable_stage(), 0);
  ASSERT_EQ(layout.tied().size(), 1u);
  EXPECT_EQ(layout.tied()[0].main_stage, 0);
  EXPECT_THAT(layout.tied()[0].stages, ElementsAre(0, 13));
}

TEST(Layout, FrozenParametersLieApart) {
  GptShape shape;
  shape.scales["mlp"] = {0};
  const model::Description d = gpt_description(shape);
  const Layout layout(d, {}, {});
  const Stage& block = layout.stages()[1];
  ASSERT_EQ(block.groups.size(), 2u);
  EXPECT_EQ(block.groups[0].name, "stage_1");
  EXPECT_EQ(block.groups[1].name, "stage_1_frozen");
  EXPECT_EQ(placement(d, block.groups[0]), (Placement{{"self_attn.query.bias", 1024},
                                                      {"norm_1.weight", 2048},
                                                      {"norm_1.bias", 3072},
                                                      {"norm_2.weight", 4096},
                                                      {"norm_2.bias", 5120},
                                                      {"self_attn.key_value.bias", 5376},
                                                      {"self_attn.dense.bias", 6400},
                                                      {"self_attn.key_value.weight", 268544},
                                                      {"self_attn.query.weight", 1317120},
                                                      {"self_attn.dense.weight", 2365696}}));
  EXPECT_EQ(placement(d, block.groups[1]), (Placement{{"mlp.layer_1.bias", 4096},
                                                      {"mlp.layer_2.bias", 5120},
                                                      {"mlp.layer_1.weight", 4199424},
                                                      {"mlp.layer_2.weight", 8393728}}));
  EXPECT_EQ(layout.state_elements(0, "weights"), 181543936);
  EXPECT_EQ(layout.state_elements(0, "exp_avgs"), 80819200);
  EXPECT_EQ(layout.shard_begin(0, "exp_avgs", 1, 1), -1);
  EXPECT_EQ(layout.shard_begin(0, "exp_avgs", 2, 0), 52428800 + 2365696);
  EXPECT_EQ(layout.shard_begin(0, "weights", 2, 0), 52428800 + 10759424);
}

TEST(Layout, LowestTrainableStage) {
  GptShape shape;
  shape.layers = 2;
  for (const char* kind : {"embeddings", "norm", "attention"}) shape.scales[kind] = {0};
  const model::Description partly = gpt_description(shape);
  EXPECT_EQ(Layout(partly, {}, {}).lowest_trainable_stage(), 1);
  shape.scales["mlp"] = {0};
  const model::Description frozen = gpt_description(shape);
  EXPECT_EQ(Layout(frozen, {}, {}).lowest_trainable_stage(), 4);
}

TEST(Layout, GreedySplit) {
  struct Case {
    int64_t blocks;
    double layers_per_stage;
    std::vector<int> first_layers;
  };
  for (const Case& c :
       {Case{12, 1, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}}, Case{2, 2, {0, 1, 3}},
        Case{3, 2, {0, 1, 3}}, Case{4, 0.5, {0, 1, 2, 3, 4, 5}}, Case{5, 1.5, {0, 1, 3, 5}},
        Case{5, 3, {0, 1, 4}}}) {
    GptShape shape;
    shape.layers = c.blocks;
    model::Description d = gpt_description(shape);
    // Preprocessing layers belong to no stage.
    d.layers.insert(d.layers.begin(), {"masks", FASTLLM_LAYER_EVERY_STAGE, 1, {}, {}, {}});
    for (model::Parameter& p : d.parameters) ++p.first_layer;
    d.validate();
    const Layout layout(d, {}, {c.layers_per_stage, 1});
    std::vector<int> found;
    for (const Stage& stage : layout.stages()) found.push_back(stage.first_layer - 1);
    EXPECT_EQ(found, c.first_layers) << c.blocks << " blocks, " << c.layers_per_stage;
    EXPECT_EQ(layout.stage_of_layer(0), -1);
    EXPECT_EQ(layout.stage_of_layer(1), 0);
    EXPECT_EQ(layout.stage_of_layer(int(d.layers.size()) - 1), layout.stages().back().index);
  }
}

TEST(Layout, PaddingOverRanks) {
  struct Case {
    int64_t count;
    int data;
    int64_t shard_elements;
    std::vector<int64_t> padding;
  };
  for (const Case& c :
       {Case{100, 1, 128, {28}}, Case{100, 2, 64, {0, 28}}, Case{10, 4, 32, {22, 32, 32, 32}},
        Case{2048, 8, 256, {0, 0, 0, 0, 0, 0, 0, 0}},
        Case{600, 8, 96, {0, 0, 0, 0, 0, 0, 72, 96}}}) {
    model::Description d;
    d.layers.push_back({"only", 0, 1, {}, {}, {}});
    model::Parameter p;
    p.name = "weight";
    p.shape = {c.count};
    d.declare(0, p);
    const Layout layout(d, {1, 1, c.data}, {});
    const Group& group = layout.stages()[0].groups[0];
    EXPECT_EQ(group.shard_elements, c.shard_elements);
    EXPECT_EQ(group.elements, c.shard_elements * c.data);
    int64_t held = 0;
    for (int rank = 0; rank < c.data; ++rank) {
      EXPECT_EQ(group.shard_padding(rank, c.data), c.padding[rank])
          << c.count << " over " << c.data << ", rank " << rank;
      EXPECT_EQ(group.to_shard(0, rank, c.data), 0);
      held += group.to_shard(c.count, rank, c.data);
    }
    EXPECT_EQ(held, c.count);
  }
}

TEST(Layout, BufferPlacement) {
  GptShape shape;
  const model::Description tied = gpt_description(shape);
  shape.tied = false;
  const model::Description untied = gpt_description(shape);
  const Layout with(tied, {}, {}), without(untied, {}, {});

  const BufferPlacement two = place_buffers(with, 0, BufferKind::kWeights, 2);
  EXPECT_THAT(two.contents, ElementsAre(ElementsAre(1, 3, 5, 7, 9, 11, 13),
                                        ElementsAre(2, 4, 6, 8, 10, 12), ElementsAre(0)));
  EXPECT_THAT(two.elements, ElementsAre(10759424, 10759424, 52428800));
  EXPECT_EQ(two.buffer_of(0), 2);
  EXPECT_EQ(two.buffer_of(12), 1);
  EXPECT_EQ(two.buffer_of(99), -1);

  const BufferPlacement all = place_buffers(with, 0, BufferKind::kWeights, 0);
  ASSERT_EQ(all.contents.size(), 14u);
  EXPECT_EQ(all.buffer_of(1), 0);
  EXPECT_EQ(all.buffer_of(0), 13);  // the tied one is last
  EXPECT_EQ(place_buffers(without, 0, BufferKind::kWeights, 0).buffer_of(0), 0);

  EXPECT_THAT(place_buffers(without, 0, BufferKind::kWeights, 1).contents,
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)));
  EXPECT_EQ(place_buffers(without, 0, BufferKind::kWeights, 3).contents.size(), 3u);
  EXPECT_EQ(place_buffers(without, 0, BufferKind::kWeights, 2000000000).contents.size(),
            14u);  // no more than stages
}

TEST(Layout, GradientBuffersHoldTrainableGroupsAlone) {
  GptShape shape;
  shape.scales["mlp"] = {0};
  const model::Description d = gpt_description(shape);
  const Layout layout(d, {}, {});
  EXPECT_EQ(place_buffers(layout, 0, BufferKind::kGradients, 0).elements[0], 2365696);
  EXPECT_EQ(place_buffers(layout, 0, BufferKind::kWeights, 0).elements[0], 10759424);
}

TEST(Layout, OrderOfEmbeddingsDependsOnTheTensorRanks) {
  GptShape shape;
  const model::Description d = gpt_description(shape);
  const Layout layout(d, {2, 1, 1}, {});
  EXPECT_EQ(placement(d, layout.stages()[0].groups.at(0)),
            (Placement{{"position_embeddings_weight", 2097152},
                       {"word_embeddings_weight", 2097152 + 25165824}}));
  shape.parallel_embeddings = false;
  const model::Description whole = gpt_description(shape);
  EXPECT_EQ(
      placement(whole, Layout(whole, {2, 1, 1}, {}).stages()[0].groups.at(0)),
      (Placement{{"word_embeddings_weight", 50331648}, {"position_embeddings_weight", 52428800}}));
}

TEST(World, RanksOfTheMesh) {
  World world{2, 2, 2};
  EXPECT_EQ(world.size(), 8);
  EXPECT_EQ(std::vector<int>({world.tensor_rank(5), world.data_rank(5), world.pipeline_rank(5)}),
            std::vector<int>({1, 0, 1}));
  world.pipeline_first = true;
  EXPECT_EQ(std::vector<int>({world.tensor_rank(5), world.data_rank(5), world.pipeline_rank(5)}),
            std::vector<int>({1, 1, 0}));
}

std::string refusal(const GptShape& shape, const World& world, const LayoutOptions& options) {
  const model::Description d = gpt_description(shape);
  return test::message_of([&] { Layout layout(d, world, options); }, Status::kInvalid);
}

TEST(Layout, RefusesWhatDoesNotDivide) {
  GptShape small;
  small.layers = 1;
  EXPECT_THAT(refusal(small, {1, 4, 1}, {}), HasSubstr("found 4 ranks for 3 stages"));
  EXPECT_THAT(
      refusal(small, {3, 1, 1}, {}),
      HasSubstr(
          "layers.1.self_attn.query.bias: expected its 8 parts of dimension 0 to be a multiple"));
  EXPECT_THAT(refusal(small, {0, 1, 1}, {}), HasSubstr("sizes from 1, found 0, 1 and 1"));
  EXPECT_THAT(refusal(small, {}, {0, 1}),
              HasSubstr("layers_per_stage: expected a number above 0, found 0"));
  EXPECT_THAT(refusal(small, {}, {1, 3}), HasSubstr("0, 1 or 2, found 3"));
  model::Description huge = gpt_description(small);
  for (model::Parameter& p : huge.parameters) p.shape[0] = int64_t(1) << 52;
  EXPECT_THROW(Layout(huge, {}, {100, 1}), Error);
}

// ---------------------------------------------------------------- checkpoints of the reference

class Fixture {
 public:
  explicit Fixture(const std::string& name)
      : folder(std::filesystem::path(FASTLLM_SOURCE_DIR) / "tests/fixtures" / name),
        expected(json::parse(read_file(folder / "expected.json"))) {
    const std::string era = expected["era"];
    options.age = era[1] - '0';
    options.layers_per_stage = expected["multi_stage"].value("layers_per_stage", 1.0);
    world.tensor = expected["distributed"].value("tensor_parallel", 1);
    world.pipeline = expected["distributed"].value("pipeline_parallel", 1);
    world.data = expected["world_size"].get<int>() / world.tensor / world.pipeline;
    description = gpt_description(era == "E2" ? new_shape(expected["base_model_overrides"])
                                              : old_shape(expected["base_model_overrides"]));
  }

  static GptShape old_shape(const json& base) {
    const json& t = base["transformer"];
    GptShape s;
    s.layers = t["num_layers"];
    s.hidden = t["hidden_size"];
    s.heads = t["num_attention_heads"];
    s.head_groups = t["head_groups"];
    s.kv_channels = t["kv_channels"];
    s.ffn = t["ffn_hidden_size"];
    s.gated = t["gated"];
    s.biases = t["add_linear_biases"];
    s.rms_norm = t["normalization"]["type"] == "rms_norm";
    s.rotary = t.contains("rotary");
    s.vocabulary = base["vocab_size"];
    s.tied = base["tie_word_embeddings"];
    if (t.contains("mlp_lr_scale")) s.scales["mlp"] = t["mlp_lr_scale"].get<std::vector<double>>();
    return s;
  }

  static GptShape new_shape(const json& base) {
    const json& block = base["decoder"]["block"];
    GptShape s;
    s.new_names = true;
    s.layers = base["decoder"]["num_blocks"];
    s.hidden = base["hidden_size"];
    s.heads = block["mixer"]["heads"];
    s.head_groups = block["mixer"]["head_groups"];
    s.kv_channels = block["mixer"]["head_size"];
    s.ffn = block["mlp"]["intermediate_size"];
    s.gated = block["mlp"]["gated"];
    s.biases = block["mlp"]["add_linear_biases"];
    s.rms_norm = block["normalization"]["type"] == "rms_norm";
    s.rotary = true;
    s.vocabulary = base["embeddings"]["vocab_size"];
    s.tied = base["tied_embedding_weight"];
    if (block["mlp"].contains("lr_scale"))
      s.scales["mlp"] = {block["mlp"]["lr_scale"].get<double>()};
    return s;
  }

  std::filesystem::path folder;
  json expected;
  LayoutOptions options;
  World world;
  model::Description description;
};

class LayoutOfCheckpoint : public testing::TestWithParam<const char*> {};

TEST_P(LayoutOfCheckpoint, EqualsTheReference) {
  const Fixture f(GetParam());
  f.description.validate();
  const Layout layout(f.description, f.world, f.options);
  for (int rank = 0; rank < f.world.size(); ++rank) {
    const json& expected = f.expected["layout"]["rank_" + std::to_string(rank)];
    json found = json::array();
    for (const Placed& placed : layout.on_device(rank)) {
      json groups = json::array();
      for (const Group& group : layout.stages()[placed.stage].groups) {
        json pieces = json::array();
        for (const Piece& piece : group.pieces)
          pieces.push_back({{"name", f.description.parameters[piece.parameter].name},
                            {"begin_in_buffer", piece.begin},
                            {"end_in_buffer", piece.end},
                            {"local_shape", piece.local}});
        json entry{{"name", group.name},
                   {"shard_size", group.shard_elements},
                   {"global_pad", group.elements - group.count},
                   {"shard_pad", group.shard_padding(f.world.data_rank(rank), f.world.data)},
                   {"parameters", pieces}};
        if (f.options.age > 0) entry["requires_grad"] = !group.frozen;
        groups.push_back(entry);
      }
      found.push_back({{"stage", placed.stage}, {"owned", !placed.copy}, {"fsdp", groups}});
    }
    EXPECT_EQ(found, expected) << "rank " << rank;
  }
}

// Rebuilds every shard from the formula that filled the checkpoint's tensors, through pieces, cuts and shards.
TEST_P(LayoutOfCheckpoint, FindsEveryElementInTheFiles) {
  const Fixture f(GetParam());
  const Layout layout(f.description, f.world, f.options);
  const std::pair<const char*, float> states[] = {
      {"weights", 1.0f}, {"exp_avgs", -0.5f}, {"exp_avgs_sq", 0.25f}};
  for (int rank = 0; rank < f.world.size(); ++rank) {
    const std::string bytes =
        read_file(f.folder / ("rank_" + std::to_string(rank) + ".safetensors"));
    uint64_t header_size;
    std::memcpy(&header_size, bytes.data(), 8);
    const json header = json::parse(bytes.substr(8, header_size));
    for (int s = 0; s < 3; ++s) {
      const auto [state, scale] = states[s];
      std::vector<float> built(layout.state_elements(rank, state), 0);
      const int data_rank = f.world.data_rank(rank);
      for (const Placed& placed : layout.on_device(rank)) {
        const std::vector<Group>& groups = layout.stages()[placed.stage].groups;
        for (int g = 0; g < int(groups.size()); ++g) {
          const int64_t at = layout.shard_begin(rank, state, placed.stage, g);
          if (at < 0) continue;
          for (const Piece& piece : groups[g].pieces) {
            const model::Parameter& p = f.description.parameters[piece.parameter];
            const double ordinal = f.expected["global_parameters"][p.name]["ordinal"];
            const Cut cut = cut_of(p, f.world, rank);
            const int64_t begin = groups[g].to_shard(piece.begin, data_rank, f.world.data);
            const int64_t end = groups[g].to_shard(piece.end, data_rank, f.world.data);
            for (int64_t k = begin; k < end; ++k) {
              const int64_t local = data_rank * groups[g].shard_elements + k - piece.begin;
              const int64_t global =
                  cut.offset + local / cut.chunk / cut.blocks * cut.outer_stride +
                  local / cut.chunk % cut.blocks * cut.block_stride + local % cut.chunk;
              built[at + k] = float(scale * (ordinal + double(global) / 4096));
            }
          }
        }
      }
      const bool legacy = header.contains("state_shard");
      const json& entry = header[legacy ? "state_shard" : std::string(state) + "_shard"];
      ASSERT_EQ(entry["dtype"], "F32");
      ASSERT_EQ(entry["shape"].back(), int64_t(built.size()));
      std::vector<float> stored(built.size());
      const uint64_t offset = 8 + header_size + entry["data_offsets"][0].get<uint64_t>() +
                              (legacy ? s * built.size() * 4 : 0);
      std::memcpy(stored.data(), bytes.data() + offset, built.size() * 4);
      EXPECT_EQ(built, stored) << state << " of rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    , LayoutOfCheckpoint,
    testing::Values("E0-distributed-llama", "E0-distributed-llama-dp2",
                    "E0-distributed-llama-frozen-mlp", "E0-distributed-starcoder2-tied-pp2",
                    "E1-distributed-llama", "E1-distributed-llama-dp2", "E1-distributed-llama-tp2",
                    "E1-distributed-llama-frozen-mlp", "E1-distributed-starcoder2-tied-pp2",
                    "E2-distributed-llama", "E2-distributed-llama-dp2-frozen-mlp",
                    "E2-distributed-llama-tp2-tied"),
    [](const auto& parameter) {
      std::string name = parameter.param;
      for (char& c : name)
        if (c == '-') c = '_';
      return name;
    });

}  // namespace
}  // namespace fastllm::shard
