// Loading into worlds other than the one that saved, other frozen sets, other types; and what is
// refused.
#include "core/checkpoint/loader.hpp"

#include <cmath>

#include "core/base/cancel.hpp"
#include "core/base/half.hpp"
#include "core/checkpoint/manifest.hpp"
#include "core/checkpoint/saver.hpp"
#include "core/plugin/stage_tables.hpp"
#include "tests/unit/checkpoint/formats.hpp"

namespace fastllm::test {
namespace {

using namespace checkpoint;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

LoadResult load_into(Job& job, const fs::path& path, bool optimizer_state = true) {
  return load({.format = distributed(),
               .path = path,
               .states = job.flat_states(optimizer_state),
               .model = job.identity,
               .stages = plugin::stages_table()});
}

void expect_fixture_values(Job& job, const std::string& name, bool with_frozen_state = false) {
  const auto expected = expected_of(name);
  for (const model::Parameter& p : job.description.parameters) {
    const int ordinal = expected["global_parameters"][p.name]["ordinal"];
    for (const std::string& state : states()) {
      if (state != "weights" && p.frozen() && !with_frozen_state) continue;
      const std::vector<float> values = job.gather(state, p.name);
      for (size_t i = 0; i < values.size(); ++i) {
        if (!std::isnan(values[i])) {
          ASSERT_EQ(values[i], fixture_value(state, ordinal, int64_t(i)))
              << state << " of " << p.name << " at " << i;
        }
      }
    }
  }
}

struct Case {
  const char* fixture;
  const char* base_model;   // changes to the fixture's
  const char* distributed;  // of the loading job
  bool whole_shards;
};
class Resharding : public ::testing::TestWithParam<Case> {};

TEST_P(Resharding, EveryElementArrivesAndPaddingIsZero) {
  const Case& c = GetParam();
  Node metadata = metadata_of(c.fixture);
  Node changed = config::parse_yaml(c.distributed, "test");
  metadata.set("config.distributed", changed);
  const Node base = config::parse_yaml(c.base_model, "test");
  for (size_t i = 0; i < base.size(); ++i)
    metadata.set("config.base_model." + base.key(i), base.at(i));
  const shard::World world = plugin::layout_of_metadata(metadata, 1).world;
  (void)distributed();
  for (int rank = 0; rank < world.size(); ++rank) {
    Job job(metadata, rank);
    job.fill(1000);
    const LoadResult result = load_into(job, fixture(c.fixture));
    EXPECT_EQ(result.whole_shards, c.whole_shards);
    EXPECT_TRUE(result.started_at_zero.empty());
    expect_fixture_values(job, c.fixture);
    // The sum over all elements that hold something leaves nothing for the padding.
    for (const std::string& state : states()) {
      double held = 0, all = 0;
      for (const model::Parameter& p : job.description.parameters) {
        for (float v : job.gather(state, p.name)) held += std::isnan(v) ? 0 : v;
      }
      for (float v : job.flat(state)) all += v;
      EXPECT_NEAR(all, held, 1e-6 * std::abs(held)) << state;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Worlds, Resharding,
    ::testing::Values(
        Case{"E1-distributed-llama", "{}", "{world_size: 1}", true},
        Case{"E1-distributed-llama", "{}", "{world_size: 3}", false},
        Case{"E1-distributed-llama-dp2", "{}", "{world_size: 2}", true},
        Case{"E1-distributed-llama-dp2", "{}", "{world_size: 1}", false},
        Case{"E1-distributed-llama-tp2", "{}", "{world_size: 1}", false},
        Case{"E1-distributed-llama-tp2", "{}", "{world_size: 4, tensor_parallel: 2}", false},
        Case{"E1-distributed-llama", "{}", "{world_size: 2, tensor_parallel: 2}", false},
        Case{"E1-distributed-starcoder2-tied-pp2", "{}", "{world_size: 2, pipeline_parallel: 2}",
             true},
        Case{"E1-distributed-starcoder2-tied-pp2", "{}", "{world_size: 1}", false},
        Case{"E0-distributed-starcoder2-tied-pp2", "{}", "{world_size: 1}", false},
        Case{"E0-distributed-llama", "{}", "{world_size: 1}", true},
        Case{"E0-distributed-llama-dp2", "{}", "{world_size: 1}", false},
        Case{"E0-distributed-llama-frozen-mlp", "{}", "{world_size: 1}", false},
        Case{"E1-distributed-llama-frozen-mlp", "{}", "{world_size: 1}", true},
        Case{"E1-distributed-llama-frozen-mlp", "{}", "{world_size: 2, pipeline_parallel: 2}",
             false},
        // trainable when saved, frozen now: its optimizer state is dropped
        Case{"E1-distributed-llama", "{transformer.mlp_lr_scale: [0.0]}", "{world_size: 1}",
             false}),
    [](const auto& tested) {
      std::string name = std::string(tested.param.fixture) + "_into_" + tested.param.distributed +
                         tested.param.base_model;
      std::erase_if(name, [](unsigned char ch) { return !std::isalnum(ch) && ch != '_'; });
      return name;
    });

TEST(Loader, ThawedParametersStartWithZeroStateAndAreNamed) {  // C35
  Node metadata = metadata_of("E1-distributed-llama-frozen-mlp");
  metadata.set("config.base_model.transformer.mlp_lr_scale", config::parse_yaml("[null]", "test"));
  (void)distributed();
  Job job(metadata);
  job.fill(1000);
  const LoadResult result = load_into(job, fixture("E1-distributed-llama-frozen-mlp"));
  EXPECT_THAT(result.started_at_zero,
              ElementsAre("layers.1.mlp.layer_1.weight", "layers.1.mlp.layer_2.weight",
                          "layers.2.mlp.layer_1.weight", "layers.2.mlp.layer_2.weight"));
  const auto expected = expected_of("E1-distributed-llama-frozen-mlp");
  for (const model::Parameter& p : job.description.parameters) {
    const bool thawed = p.name.find(".mlp.") != std::string::npos;
    const int ordinal = expected["global_parameters"][p.name]["ordinal"];
    EXPECT_EQ(job.gather("weights", p.name).back(),
              fixture_value("weights", ordinal, p.elements() - 1))
        << p.name;
    EXPECT_EQ(job.gather("exp_avgs", p.name).back(),
              thawed ? 0 : fixture_value("exp_avgs", ordinal, p.elements() - 1))
        << p.name;
  }
}

TEST(Loader, FrozenNowIsReportedAsDropped) {
  (void)distributed();
  Job job(small_metadata("{transformer.mlp_lr_scale: [0.0]}"));
  const LoadResult result = load_into(job, fixture("E1-distributed-llama"));
  EXPECT_EQ(result.dropped.size(), 4u);
  EXPECT_FALSE(result.whole_shards);
}

TEST(Loader, WeightsAloneLeaveOtherStatesAlone) {
  (void)distributed();
  Job job(small_metadata());
  job.fill(5);
  const auto moments = job.flat("exp_avgs");
  load_into(job, fixture("E1-distributed-llama"), false);
  EXPECT_EQ(job.flat("exp_avgs"), moments);
  EXPECT_EQ(job.gather("weights", "layers.0.word_embeddings_weight")[0], 1.0f);
}

TEST(Loader, WithoutTheStagesTableItGoesByName) {
  (void)distributed();
  Job job(small_metadata());
  const LoadResult result = load({.format = distributed(),
                                  .path = fixture("E1-distributed-llama"),
                                  .states = job.flat_states(),
                                  .model = job.identity});
  EXPECT_FALSE(result.whole_shards);
  expect_fixture_values(job, "E1-distributed-llama");
}

TEST(Loader, AnotherArchitectureIsRefusedBeforeAnyWeight) {
  (void)distributed();
  Job job(small_metadata("{transformer.num_layers: 3, tie_word_embeddings: true}"));
  job.fill();
  const std::vector<float> before = job.flat("weights");
  EXPECT_THAT(message_of([&] { load_into(job, fixture("E1-distributed-llama")); }),
              AllOf(HasSubstr("transformer.num_layers is 2 in the checkpoint and 3 here"),
                    HasSubstr("tie_word_embeddings is false in the checkpoint and true here"),
                    HasSubstr("set these keys")));
  EXPECT_EQ(job.flat("weights"), before);
}

TEST(Loader, ArchitectureCountsDefaultsThatAreNotWritten) {
  ModelIdentity model{
      .type = "gpt",
      .base_model = config::parse_yaml("{epsilon: 1.0e-05, size: 4, theta: 10}", "test"),
      .fields = {}};
  for (const auto& [path, type] :
       {std::pair("epsilon", config::Type::kReal), std::pair("size", config::Type::kInt),
        std::pair("theta", config::Type::kReal)}) {
    config::Field field;
    field.path = path;
    field.type = type;
    field.architecture = true;
    model.fields.push_back(field);
  }
  model.resolve = [](const Node& written) {
    Node full = written;
    if (!full.has("epsilon")) full.set("epsilon", Node::real(1e-5));
    return full;
  };
  EXPECT_TRUE(architecture_differences(model, config::parse_yaml("{size: 4, theta: 10.0}", "test"))
                  .empty());
  EXPECT_THAT(architecture_differences(
                  model, config::parse_yaml("{size: 4, theta: 10.0, epsilon: 1.0e-06}", "test")),
              ElementsAre("epsilon is 1.0e-06 in the checkpoint and 1.0e-05 here"));
  EXPECT_THAT(architecture_differences(model, config::parse_yaml("{theta: 10.0}", "test")),
              ElementsAre("size is absent in the checkpoint and 4 here"));
}

TEST(Loader, AnotherModelIsRefused) {
  (void)distributed();
  Job job(small_metadata());
  job.identity.type = "custom";
  EXPECT_THAT(message_of([&] { load_into(job, fixture("E1-distributed-llama")); }),
              HasSubstr("expected a checkpoint of model custom"));
}

// A save of our own in a folder, to be damaged.
class Saved : public ::testing::Test {
 protected:
  Saved() : job(small_metadata()) {
    job.fill();
    path = save({.format = distributed(),
                 .states = job.flat_states(),
                 .metadata = job.metadata,
                 .base = folder_.path() / "checkpoint",
                 .iteration = 4,
                 .aside = folder_.path() / "a"});
  }
  TemporaryDirectory folder_;
  Job job;
  fs::path path;
};

TEST_F(Saved, ComesBackBitForBit) {
  const auto weights = job.flat("weights"), moments = job.flat("exp_avgs_sq");
  job.fill(77);
  EXPECT_TRUE(load_into(job, path).whole_shards);
  EXPECT_EQ(job.flat("weights"), weights);
  EXPECT_EQ(job.flat("exp_avgs_sq"), moments);
}

TEST_F(Saved, OneFlippedBitIsFound) {
  std::string file = read_file(path / "rank_0.safetensors");
  file[file.size() / 2] ^= 1;
  write_file(path / "rank_0.safetensors", file);
  EXPECT_THAT(message_of([&] { load_into(job, path); }),
              AllOf(HasSubstr("expected SHA-256"), HasSubstr("rank_0.safetensors"),
                    HasSubstr("go on from an older one")));
}

TEST_F(Saved, NanIsRefusedAndNamed) {
  job.data("exp_avgs")[3] = std::numeric_limits<float>::quiet_NaN();
  path = save({.format = distributed(),
               .states = job.flat_states(),
               .metadata = job.metadata,
               .base = folder_.path() / "checkpoint",
               .iteration = 5,
               .aside = folder_.path() / "a"});
  EXPECT_THAT(
      message_of([&] { load_into(job, path); }),
      AllOf(HasSubstr("expected numbers in exp_avgs of layers.0.word_embeddings_weight"),
            HasSubstr("found 1 NaN; move this checkpoint away to go on from an older one")));
}

// Weights in two types: saved as float32, read and looked at in the type they are kept in.
TEST_F(Saved, FrozenWeightsInTheTrainingTypeComeBackRoundedOnce) {
  const Node metadata = small_metadata("{transformer.mlp_lr_scale: [0.0]}");
  const std::string frozen = "layers.1.mlp.layer_1.weight";
  for (const int zero : {1, 3}) {
    Job wide(metadata),
        narrow(metadata, 0,
               {.training = kBfloat16, .wide_frozen_weights = false, .zero_stage = zero});
    wide.fill();
    const auto save_as = [&](Job& of, FlatStates states, int64_t iteration) {
      of.run();
      return save({.format = distributed(),
                   .states = std::move(states),
                   .metadata = metadata,
                   .base = folder_.path() / ("zero-" + std::to_string(zero)),
                   .iteration = iteration,
                   .aside = folder_.path() / "a"});
    };
    const auto load_from = [&](Job& into, FlatStates states, const fs::path& from) {
      into.run();
      return load({.format = distributed(),
                   .path = from,
                   .states = std::move(states),
                   .model = into.identity,
                   .stages = plugin::stages_table()});
    };
    const fs::path full = save_as(wide, wide.flat_states(), 1);
    EXPECT_FALSE(load_from(narrow, states_of(*narrow.store), full).whole_shards);
    const fs::path rounded = save_as(narrow, states_of(*narrow.store), 2);
    Job again(metadata);
    EXPECT_TRUE(load_from(again, again.flat_states(), rounded).whole_shards);
    int64_t changed = 0;
    for (const model::Parameter& p : again.description.parameters) {
      const std::vector<float> found = again.gather("weights", p.name),
                               expected = wide.gather("weights", p.name);
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i], p.frozen() ? from_bfloat16(to_bfloat16(expected[i])) : expected[i])
            << p.name << " at " << i;
        changed += found[i] != expected[i];
      }
    }
    EXPECT_GT(changed, 0);
    EXPECT_EQ(again.flat("exp_avgs"), wide.flat("exp_avgs"));

    // The first element of the first frozen matrix in memory.
    const shard::Group& group = narrow.layout.stages()[1].groups[1];
    ASSERT_EQ(narrow.description.parameters[size_t(group.pieces[0].parameter)].name, frozen);
    auto* const data =
        reinterpret_cast<uint16_t*>(shard::part_of(narrow.store->parts("weights"),
                                                   narrow.layout.shard_begin(0, "weights", 1, 1))
                                        .data);
    data[0] = to_bfloat16(std::numeric_limits<float>::quiet_NaN());
    const fs::path bad = save_as(narrow, states_of(*narrow.store), 3);
    for (Job* into : {&narrow, &again})
      EXPECT_THAT(message_of([&] { load_from(*into, states_of(*into->store), bad); }),
                  HasSubstr("expected numbers in weights of " + frozen));
  }
}

TEST_F(Saved, MissingOptimizerStateIsNamed) {  // C40
  path = save({.format = distributed(),
               .states = job.flat_states(false),
               .metadata = job.metadata,
               .base = folder_.path() / "checkpoint",
               .iteration = 5,
               .aside = folder_.path() / "a"});
  EXPECT_THAT(message_of([&] { load_into(job, path); }),
              AllOf(HasSubstr("expected exp_avgs in"), HasSubstr("found only weights"),
                    HasSubstr("move this checkpoint away to go on from an older one, or start "
                              "anew in another run.experiment_dir")));
}

TEST_F(Saved, AStopWhileLoadingByNameEndsIt) {
  Job other(small_metadata("{transformer.mlp_lr_scale: [0.0]}"));
  stop_signal() = 15;
  const std::string text = message_of([&] { load_into(other, path); });
  stop_signal() = 0;
  EXPECT_THAT(text, HasSubstr("stopped while loading a checkpoint"));
}

// ------------------------------------------------------------- formats that know parameters only

class ByName : public ::testing::TestWithParam<uint32_t> {
 protected:
  ByName() : job(small_metadata("", "{world_size: 2}"), 1) {
    format.abilities |= GetParam();
    format.metadata = metadata_of("E1-distributed-llama");
    for (const model::Parameter& p : job.description.parameters) {
      for (const std::string& state : states()) {
        MemoryFormat::Tensor tensor{
            {kDLFloat, 32, 1}, p.shape, std::vector<char>(size_t(p.elements()) * 4)};
        for (int64_t i = 0; i < p.elements(); ++i) {
          const float value = fixture_value(state, 3, i);
          std::memcpy(tensor.bytes.data() + i * 4, &value, 4);
        }
        format.tensors[{state, p.name}] = std::move(tensor);
      }
    }
  }
  LoadResult run() {
    return load(
        {.format = format, .path = "memory", .states = job.flat_states(), .model = job.identity});
  }
  MemoryFormat format;
  Job job;
  const std::string name_ = "layers.1.self_attn.query.weight";
};
INSTANTIATE_TEST_SUITE_P(WithAndWithoutSlices, ByName,
                         ::testing::Values(0u, uint32_t(FASTLLM_CAN_SLICE)));

TEST_P(ByName, FillsEveryShard) {
  run();
  for (const model::Parameter& p : job.description.parameters) {
    const auto values = job.gather("exp_avgs", p.name);
    for (size_t i = 0; i < values.size(); ++i) {
      if (!std::isnan(values[i])) {
        ASSERT_EQ(values[i], fixture_value("exp_avgs", 3, int64_t(i)));
      }
    }
  }
}

TEST_P(ByName, WidensSixteenBitWeightsAndNarrowsDoubles) {
  auto& tensor = format.tensors[{"weights", name_}];
  tensor.dtype = {kDLBfloat, 16, 1};
  tensor.bytes.assign(tensor.bytes.size() / 2, 0);
  for (size_t i = 0; i < tensor.bytes.size(); i += 2) tensor.bytes[i + 1] = 0x3f;  // 0.5
  auto& wide = format.tensors[{"exp_avgs", name_}];
  wide.dtype = {kDLFloat, 64, 1};
  wide.bytes.assign(wide.bytes.size() * 2, 0);
  const double tenth = 0.1;
  for (size_t i = 0; i < wide.bytes.size(); i += 8) std::memcpy(wide.bytes.data() + i, &tenth, 8);
  run();
  for (float v : job.gather("weights", name_)) EXPECT_TRUE(std::isnan(v) || v == 0.5f);
  for (float v : job.gather("exp_avgs", name_)) EXPECT_TRUE(std::isnan(v) || v == 0.1f);
}

TEST_P(ByName, AllThatDoesNotFitIsToldBeforeAnythingIsRead) {
  job.fill(9);
  const auto before = job.flat("weights");
  auto& turned = format.tensors[{"weights", name_}];
  std::swap(turned.shape[0], turned.shape[1]);
  format.tensors[{"exp_avgs", "layers.0.word_embeddings_weight"}].dtype = {kDLInt, 32, 1};
  format.tensors.erase({"weights", "layers.3.output_weights"});
  format.tensors[{"weights", "layers.9.mlp.bias"}] = {{kDLFloat, 32, 1}, {1}, std::vector<char>(4)};
  EXPECT_THAT(message_of([&] { run(); }),
              AllOf(HasSubstr("expected the parameters of this model in memory"),
                    HasSubstr(name_ + " has shape [12, 16] there and [16, 12] here"),
                    HasSubstr("layers.0.word_embeddings_weight is none of float64, float32, "
                              "float16 and bfloat16 (type code 0, 32 bits)"),
                    HasSubstr("layers.3.output_weights is missing"),
                    HasSubstr("layers.9.mlp.bias is no parameter of this model")));
  EXPECT_EQ(job.flat("weights"), before);
}

}  // namespace
}  // namespace fastllm::test
