// The host's stages/0 and shards/0 tables, driven through C as a plugin drives them.
#include "core/plugin/stage_tables.hpp"

#include <cstring>

#include "core/checkpoint/placement.hpp"
#include "core/plugin/config_services.hpp"
#include "core/plugin/context.hpp"
#include "tests/unit/checkpoint/support.hpp"

namespace fastllm::test {
namespace {

using plugin::ConfigTree;
using plugin::stages_table;
using ::testing::HasSubstr;

// Calls a host function and returns its status with the text it left, as the next failing plugin
// call would show it.
template <class F>
std::pair<fastllm_status, std::string> failing(F&& f) {
  static const auto identity = plugin::Identity::make("test", "1", "libtest.so");
  fastllm_status status = FASTLLM_OK;
  const std::string text = message_of([&] {
    plugin::CallScope scope(*identity, "test");
    status = f();
    if (status != FASTLLM_OK) plugin::throw_failed_call(status);
  });
  return {status, text};
}

fastllm_status describe(Node metadata, int32_t age, fastllm_world** out) {
  ConfigTree tree(metadata);
  return stages_table()->describe(tree.handle(), age, out);
}

std::string visited_text(const fastllm_world* world, int rank, const char* state) {
  checkpoint::LayoutText text;
  fastllm_stage_visitor visitor{};
  visitor.size = sizeof visitor;
  visitor.user = &text;
  visitor.stage = [](void* user, const fastllm_stage* s) {
    static_cast<checkpoint::LayoutText*>(user)->stage(s->index);
    return fastllm_status(FASTLLM_OK);
  };
  visitor.group = [](void* user, const fastllm_group* g) {
    static_cast<checkpoint::LayoutText*>(user)->group(g->name, g->shard_elements, g->shard_padding,
                                                      g->shard_begin);
    return fastllm_status(FASTLLM_OK);
  };
  visitor.piece = [](void* user, const fastllm_piece* p) {
    static_cast<checkpoint::LayoutText*>(user)->piece(p->parameter, {p->shape, p->shape + p->ndim});
    return fastllm_status(FASTLLM_OK);
  };
  visitor.run = [](void* user, const fastllm_box* box, int64_t flat) {
    static_cast<checkpoint::LayoutText*>(user)->run(*box, flat);
    return fastllm_status(FASTLLM_OK);
  };
  EXPECT_EQ(stages_table()->visit(world, rank, state, &visitor), FASTLLM_OK);
  return text.text();
}

TEST(StageTables, NothingRunsBeforeItIsSet) {
  plugin::set_running(nullptr, nullptr);
  EXPECT_EQ(stages_table()->running(), nullptr);
  EXPECT_EQ(plugin::shards_table()->state(0), nullptr);
  EXPECT_EQ(plugin::shards_table()->flat("weights"), nullptr);
}

TEST(StageTables, ShowTheRunningJob) {
  Job job(small_metadata("{transformer.mlp_lr_scale: [0.0]}", "{world_size: 2}"), 1);
  const fastllm_world* world = stages_table()->running();
  ASSERT_NE(world, nullptr);
  EXPECT_EQ(stages_table()->ranks(world), 2);
  EXPECT_EQ(stages_table()->rank(world), 1);
  for (const char* state : {"weights", "exp_avgs"}) {
    for (int rank : {0, 1})
      EXPECT_EQ(visited_text(world, rank, state), checkpoint::layout_text(job.layout, rank, state));
  }
}

TEST(StageTables, ShowTheRunningShardsInPlace) {
  Job job(small_metadata());
  std::vector<std::string> names;
  for (int32_t i = 0; plugin::shards_table()->state(i); ++i)
    names.emplace_back(plugin::shards_table()->state(i));
  EXPECT_EQ(names, job.store->states());
  EXPECT_EQ(plugin::shards_table()->flat("exp_avgs"), job.store->flat("exp_avgs"));
  EXPECT_EQ(plugin::shards_table()->flat("momentum"), nullptr);
  EXPECT_EQ(plugin::shards_table()->state(-1), nullptr);
}

TEST(StageTables, DescribeTheWorldOfAFixtureAsItsWriterLaidItOut) {
  (void)distributed();  // sets the describer
  for (const std::string name :
       {"E1-distributed-llama", "E1-distributed-llama-dp2", "E1-distributed-llama-tp2",
        "E1-distributed-llama-frozen-mlp", "E1-distributed-starcoder2-tied-pp2",
        "E0-distributed-llama-frozen-mlp", "E0-distributed-starcoder2-tied-pp2"}) {
    fastllm_world* world = nullptr;
    ASSERT_EQ(describe(metadata_of(name), name[1] - '0', &world), FASTLLM_OK);
    const auto expected = expected_of(name);
    EXPECT_EQ(stages_table()->ranks(world), expected["world_size"].get<int>());
    EXPECT_EQ(stages_table()->rank(world), 0);
    for (const auto& [rank_key, stages] : expected["layout"].items()) {
      struct Seen {
        nlohmann::json stages = nlohmann::json::array();
      } seen;
      fastllm_stage_visitor visitor{};
      visitor.size = sizeof visitor;
      visitor.user = &seen;
      visitor.stage = [](void* user, const fastllm_stage* s) {
        static_cast<Seen*>(user)->stages.push_back(
            {{"stage", s->index}, {"owned", true}, {"fsdp", nlohmann::json::array()}});
        return fastllm_status(FASTLLM_OK);
      };
      visitor.group = [](void* user, const fastllm_group* g) {
        auto& stage = static_cast<Seen*>(user)->stages.back();
        stage["owned"] = !(g->flags & FASTLLM_GROUP_COPY);
        stage["fsdp"].push_back({{"name", g->name},
                                 {"requires_grad", !(g->flags & FASTLLM_GROUP_FROZEN)},
                                 {"shard_size", g->shard_elements},
                                 {"shard_pad", g->shard_padding},
                                 {"parameters", nlohmann::json::array()}});
        return fastllm_status(FASTLLM_OK);
      };
      visitor.piece = [](void* user, const fastllm_piece* p) {
        static_cast<Seen*>(user)->stages.back()["fsdp"].back()["parameters"].push_back(
            {{"name", p->parameter},
             {"begin_in_buffer", p->begin},
             {"end_in_buffer", p->end},
             {"local_shape", std::vector(p->local, p->local + p->ndim)}});
        return fastllm_status(FASTLLM_OK);
      };
      ASSERT_EQ(stages_table()->visit(world, std::stoi(rank_key.substr(5)), "weights", &visitor),
                FASTLLM_OK);
      nlohmann::json theirs = stages;
      for (auto& stage : theirs) {
        for (auto& group : stage["fsdp"]) {
          group.erase("global_pad");
          group.emplace("requires_grad", true);  // not in files of age 0, which know no other
        }
      }
      EXPECT_EQ(seen.stages, theirs) << name << " " << rank_key;
    }
    stages_table()->release(world);
  }
}

TEST(StageTables, AVisitorMayBeShorterAndMayStop) {
  Job job(small_metadata());
  int stages = 0;
  fastllm_stage_visitor visitor{};
  visitor.size = offsetof(fastllm_stage_visitor, group);  // an older caller's
  visitor.user = &stages;
  visitor.stage = [](void* user, const fastllm_stage*) {
    return fastllm_status(++*static_cast<int*>(user) < 3 ? FASTLLM_OK : FASTLLM_CANCELLED);
  };
  // Beyond its size; never called.
  std::memset(static_cast<void*>(&visitor.group), 0x5a, sizeof visitor.group);
  EXPECT_EQ(stages_table()->visit(stages_table()->running(), 0, "weights", &visitor),
            FASTLLM_CANCELLED);
  EXPECT_EQ(stages, 3);
}

TEST(StageTables, RefusalsAreSentences) {
  (void)distributed();
  Job job(small_metadata());
  const fastllm_world* running = stages_table()->running();
  fastllm_stage_visitor visitor{};
  visitor.size = sizeof visitor;
  EXPECT_THAT(
      failing([&] { return stages_table()->visit(running, 1, "weights", &visitor); }).second,
      HasSubstr("expected a rank from 0 to 0, found 1"));
  EXPECT_THAT(
      failing([&] { return stages_table()->visit(nullptr, 0, "weights", &visitor); }).second,
      HasSubstr("found NULL"));
  visitor.size = 3;
  EXPECT_THAT(
      failing([&] { return stages_table()->visit(running, 0, "weights", &visitor); }).second,
      HasSubstr("found size 3"));

  fastllm_world* world = nullptr;
  const auto [status, text] = failing([&] { return describe(small_metadata(), 2, &world); });
  EXPECT_EQ(status, FASTLLM_UNSUPPORTED);
  EXPECT_THAT(text, HasSubstr("needs a converter to layout-2"));
  const auto told = [&](const char* distributed_yaml) {
    return failing([&] { return describe(small_metadata("", distributed_yaml), 1, &world); })
        .second;
  };
  EXPECT_THAT(
      told("{world_size: 3, tensor_parallel: 2}"),
      HasSubstr("expected a multiple of tensor_parallel times pipeline_parallel (2), found 3"));
  EXPECT_THAT(told("{tensor_parallel: 0}"), HasSubstr("expected a size from 1"));
  EXPECT_THAT(told("{world_size: 40, pipeline_parallel: 40}"),
              HasSubstr("at most one pipeline rank a stage"));
  EXPECT_THAT(failing([&] { return describe(Node::map(), 1, &world); }).second,
              HasSubstr("config.base_model"));
  EXPECT_EQ(world, nullptr);

  plugin::set_describer(nullptr);
  EXPECT_THAT(failing([&] { return describe(small_metadata(), 1, &world); }).second,
              HasSubstr("found none loaded"));
  plugin::set_describer(describe_gpt);
}

}  // namespace
}  // namespace fastllm::test
