// Memory of one rank: views in buffers, restore, reduce, the marks for untouched gradients, and what is refused.
#include "core/shard/store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/base/error.hpp"
#include "core/base/half.hpp"
#include "core/base/tensor.hpp"
#include "core/distributed/exchange.hpp"
#include "core/shard/elements.hpp"
#include "tests/support/described_store.hpp"
#include "tests/support/message_of.hpp"
#include "tests/unit/distributed/memory_network.hpp"

namespace fastllm::shard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

test::GptShape small_shape() { return test::small_gpt_shape(3, 12); }

struct Rig : test::DescribedStore {
  using DescribedStore::DescribedStore;

  int parameter(const std::string& name) const {
    for (size_t i = 0; i < description.parameters.size(); ++i)
      if (description.parameters[i].name == name) return int(i);
    ADD_FAILURE() << name;
    return -1;
  }
  float* weight(int p) { return static_cast<float*>(store.weight(p)->data); }
  float* gradient(int p) { return static_cast<float*>(store.gradient(p)->data); }
  // As a backward that touched everything would leave it.
  void touch(int stage, float value) {
    for (const Group& group : layout.stages()[stage].groups)
      for (const Piece& piece : group.pieces) {
        if (!store.gradient(piece.parameter)) continue;
        std::fill_n(gradient(piece.parameter), piece.end - piece.begin, value);
        store.overwrite_flags()[piece.parameter] = 0;
      }
  }
};

float number(const DLTensor* tensor, int64_t i) {
  if (tensor->dtype.bits == 32) return static_cast<const float*>(tensor->data)[i];
  const uint16_t stored = static_cast<const uint16_t*>(tensor->data)[i];
  return tensor->dtype.code == kDLBfloat ? from_bfloat16(stored) : from_float16(stored);
}

TEST(Store, ViewsLieInLayoutOrderWithRowMajorStrides) {
  Rig rig(small_shape());
  const int query = rig.parameter("layers.1.self_attn.query.weight"),
            key_value = rig.parameter("layers.1.self_attn.key_value.weight");
  EXPECT_EQ(rig.weight(query), rig.weight(key_value) + 2 * 3 * 12);
  EXPECT_EQ(rig.gradient(query), rig.gradient(key_value) + 2 * 3 * 12);
  const DLTensor* w = rig.store.weight(query);
  EXPECT_EQ(w->ndim, 2);
  EXPECT_EQ(w->shape[0], 12);
  EXPECT_EQ(w->strides[0], 12);
  EXPECT_EQ(w->strides[1], 1);
  EXPECT_EQ(w->device.device_type, kDLCPU);
  EXPECT_EQ(w->byte_offset, 0u);
}

TEST(Store, StatesInOrderWithTheirOwnSizes) {
  test::GptShape shape = small_shape();
  shape.scales["mlp"] = {0};
  Rig rig(shape);
  EXPECT_THAT(rig.store.states(), ElementsAre("weights", "exp_avgs", "exp_avgs_sq", "grads"));
  const int64_t weights = rig.store.flat("weights")->shape[0],
                averages = rig.store.flat("exp_avgs")->shape[0];
  EXPECT_EQ(weights, rig.layout.state_elements(0, "weights"));
  EXPECT_LT(averages, weights);
  EXPECT_EQ(rig.store.flat_data("exp_avgs"), rig.store.flat_data("weights") + weights);
  EXPECT_EQ(rig.store.flat_data("grads"), rig.store.flat_data("exp_avgs_sq") + averages);
  EXPECT_TRUE(rig.store.has_state("grads"));
  EXPECT_FALSE(rig.store.has_state("momentum"));
  EXPECT_THROW(rig.store.flat("momentum"), Error);
}

TEST(Store, RestoreCopiesOnceUntilInvalidated) {
  Rig rig(small_shape());
  float* shard = rig.store.flat_data("weights");
  std::iota(shard, shard + rig.store.flat("weights")->shape[0], 0.0f);
  const int query = rig.parameter("layers.2.self_attn.query.bias");  // first of its stage
  EXPECT_FALSE(rig.store.restored(2));
  rig.store.restore(2);
  EXPECT_TRUE(rig.store.restored(2));
  const int64_t begin = rig.layout.shard_begin(0, "weights", 2, 0);
  EXPECT_EQ(rig.weight(query)[0], float(begin));
  shard[begin] = -1;
  rig.store.restore(2);
  EXPECT_EQ(rig.weight(query)[0], float(begin));
  rig.store.invalidate();
  rig.store.restore(2);
  EXPECT_EQ(rig.weight(query)[0], -1);
}

TEST(Store, SharedBuffersHoldOneStageAtATime) {
  StoreOptions options;
  options.zero_stage = 3;
  Rig rig(small_shape(), options);  // stages 1, 3 share; 2, 4 share; 0 is tied and alone
  const int first = rig.parameter("layers.1.self_attn.query.bias"),
            third = rig.parameter("layers.3.self_attn.query.bias");
  EXPECT_EQ(rig.weight(first), rig.weight(third));
  EXPECT_EQ(rig.gradient(first), rig.gradient(third));
  rig.store.restore(0);
  rig.store.restore(1);
  rig.store.restore(3);
  EXPECT_TRUE(rig.store.restored(0));
  EXPECT_FALSE(rig.store.restored(1));
  EXPECT_TRUE(rig.store.restored(3));
}

TEST(Store, FrozenParametersHaveWeightsAndNoGradient) {
  test::GptShape shape = small_shape();
  shape.scales["mlp"] = {0};
  Rig rig(shape);
  const int frozen = rig.parameter("layers.1.mlp.layer_1.weight");
  EXPECT_EQ(rig.store.gradient(frozen), nullptr);
  float* shard = rig.store.flat_data("weights");
  std::iota(shard, shard + rig.store.flat("weights")->shape[0], 0.0f);
  rig.store.restore(1);
  const Group& group = rig.layout.stages()[1].groups[1];
  const Piece& piece = *std::find_if(group.pieces.begin(), group.pieces.end(),
                                     [&](const Piece& p) { return p.parameter == frozen; });
  EXPECT_EQ(rig.weight(frozen)[0], float(rig.layout.shard_begin(0, "weights", 1, 1) + piece.begin));
}

// An update leaves frozen weights as they are, so what layers see of them stays, too; not when the
// buffer held another stage in between, nor when shards were loaded.
TEST(Store, FrozenWeightsAreRestoredOnce) {
  test::GptShape shape = small_shape();
  shape.scales["mlp"] = {0};
  for (int zero : {1, 3}) {
    Rig rig(shape, {.zero_stage = zero});
    const int frozen = rig.parameter("layers.1.mlp.layer_1.weight"),
              trained = rig.parameter("layers.1.self_attn.query.weight");
    auto write = [&](float value) {
      std::fill_n(rig.store.flat_data("weights"), rig.store.flat("weights")->shape[0], value);
    };
    write(1);
    rig.store.restore(1);
    write(2);
    rig.store.invalidate_trainable();
    EXPECT_FALSE(rig.store.restored(1));
    if (zero == 3) rig.store.restore(3);  // in the same buffer
    rig.store.restore(1);
    EXPECT_TRUE(rig.store.restored(1));
    EXPECT_EQ(rig.weight(trained)[0], 2);
    EXPECT_EQ(rig.weight(frozen)[0], zero == 3 ? 2 : 1);
    rig.store.invalidate();
    rig.store.restore(1);
    EXPECT_EQ(rig.weight(frozen)[0], 2);
  }
}

// Without a float32 shard a frozen group lies in its buffer alone, or, where stages take turns in
// that, beside it in the training type.
TEST(Store, FrozenWeightsInTheTrainingType) {
  test::GptShape shape = small_shape();
  shape.scales["mlp"] = {0};
  for (const DLDataType type : {kFloat32, kBfloat16, kFloat16})
    for (const int zero : {1, 3}) {
      Rig rig(shape, {.training = type, .wide_frozen_weights = false, .zero_stage = zero});
      SCOPED_TRACE(dtype_text(type) + " ZeRO " + std::to_string(zero));
      EXPECT_EQ(rig.store.flat("weights"), nullptr);
      EXPECT_NE(rig.store.flat("exp_avgs"), nullptr);
      const std::vector<StatePart>& parts = rig.store.parts("weights");
      int64_t position = 0, bytes = 3 * 4 * rig.layout.state_elements(0, "grads");
      for (const Stage& stage : rig.layout.stages())
        for (const Group& group : stage.groups) {
          const StatePart& part = part_of(parts, position);
          EXPECT_EQ(part.begin, position);
          EXPECT_EQ(part.elements, group.shard_elements);
          EXPECT_TRUE(same_dtype(part.type, group.frozen ? type : kFloat32));
          const auto* const buffer =
              static_cast<std::byte*>(rig.store.weight(group.pieces[0].parameter)->data);
          const bool alone =
              zero == 1 ||
              rig.store.weight_buffers()
                      .contents[size_t(rig.store.weight_buffers().buffer_of(stage.index))]
                      .size() == 1;
          EXPECT_EQ(part.data == buffer, group.frozen && alone);
          if (part.data != buffer) bytes += group.shard_elements * (part.type.bits / 8);
          position += group.shard_elements;
        }
      EXPECT_EQ(position, rig.layout.state_elements(0, "weights"));
      EXPECT_EQ(allocation_table(rig.layout, 0, rig.store.options()).shard_bytes, bytes);

      // Restored from there, now and after an update of the rest.
      const int frozen = rig.parameter("layers.1.mlp.layer_1.weight");
      const Group& group = rig.layout.stages()[1].groups[1];
      const StatePart& part = part_of(parts, rig.layout.shard_begin(0, "weights", 1, 1));
      std::vector<float> values(size_t(group.shard_elements), 1.25f);
      copy(part.data, type, values.data(), kFloat32, group.shard_elements);
      rig.store.invalidate();
      for (int turn = 0; turn < 2; ++turn) {
        rig.store.restore(1);
        const DLTensor* const weight = rig.store.weight(frozen);
        for (int64_t i = 0; i < weight->shape[0] * weight->shape[1]; ++i)
          ASSERT_EQ(number(weight, i), 1.25f);
        rig.store.invalidate_trainable();
        rig.store.restore(3);  // in the same buffer when ZeRO is 3
      }
    }
}

// Nothing frozen: one tensor as ever.
TEST(Store, WithoutFrozenWeightsTheirTypeDoesNotMatter) {
  Rig rig(small_shape(), {.wide_frozen_weights = false});
  ASSERT_NE(rig.store.flat("weights"), nullptr);
  EXPECT_EQ(rig.store.flat("weights")->shape[0], rig.layout.state_elements(0, "weights"));
}

TEST(Store, ReduceSetsThenAccumulates) {
  test::GptShape shape = small_shape();
  shape.scales["mlp"] = {0};
  Rig rig(shape);
  const int64_t begin = rig.layout.shard_begin(0, "grads", 1, 0),
                count = rig.layout.stages()[1].groups[0].count;
  const float* grads = rig.store.flat_data("grads");
  rig.touch(1, 2);
  rig.store.reduce(1, false);
  EXPECT_EQ(std::count(grads + begin, grads + begin + count, 2.0f), count);
  EXPECT_THAT(rig.store.overwrite_flags(), testing::Each(1));  // reduced stages start anew
  rig.touch(1, 3);
  rig.store.reduce(1, true);
  EXPECT_EQ(std::count(grads + begin, grads + begin + count, 5.0f), count);
  EXPECT_EQ(grads[begin + count], 0.0f);  // padding
}

TEST(Store, UntouchedGradientIsZeroWhereAllowedAndAnErrorElsewhere) {
  Rig rig(small_shape());
  const int bias = rig.parameter("layers.1.norm_1.bias");
  rig.touch(1, 2);
  rig.store.overwrite_flags()[bias] = 1;
  EXPECT_THAT(
      test::message_of([&] { rig.store.reduce(1, false); }, Status::kInternal),
      HasSubstr("parameter layers.1.norm_1.bias: expected a gradient in every step, found none"));
  rig.description.parameters[bias].flags |= FASTLLM_PARAM_UNUSED;
  rig.store.reduce(1, false);
  EXPECT_EQ(rig.gradient(bias)[0], 0.0f);
  EXPECT_EQ(rig.gradient(bias)[11], 0.0f);
}

TEST(Store, InferenceHasNoGradients) {
  StoreOptions options;
  options.training_mode = false;
  Rig rig(small_shape(), options);
  EXPECT_THAT(rig.store.states(), ElementsAre("weights"));
  EXPECT_EQ(rig.store.gradient(0), nullptr);
  EXPECT_NO_THROW(rig.store.zero_optimizer_and_gradients());
}

TEST(Store, ZeroingKeepsWeights) {
  test::GptShape shape = small_shape();
  shape.hidden = 64;  // several pages
  Rig rig(shape);
  const int64_t weights = rig.store.flat("weights")->shape[0],
                states = rig.store.flat("grads")->shape[0];
  std::fill_n(rig.store.flat_data("weights"), weights + 3 * states, 1.0f);
  rig.store.zero_optimizer_and_gradients();
  const float* all = rig.store.flat_data("weights");
  EXPECT_EQ(std::count(all, all + weights, 1.0f), weights);
  EXPECT_EQ(std::count(all + weights, all + weights + 3 * states, 0.0f), 3 * states);
}

std::string refusal(const model::Description& d, const World& world, const StoreOptions& options,
                    Status status) {
  const Layout layout(d, world, {});
  return test::message_of([&] { Store store(layout, 0, options); }, status);
}

// Shards stay float32; what the layers see is their rounded copy, group by group, stage by stage.
TEST(Store, BuffersInTheTrainingTypeHoldRoundedShards) {
  for (const DLDataType type : {kBfloat16, kFloat16}) {
    test::GptShape shape = small_shape();
    shape.scales["norm"] = {0};  // a frozen group behind the trainable one
    StoreOptions options;
    options.training = type;
    Rig rig(shape, options);
    EXPECT_EQ(rig.store.flat("weights")->dtype.bits, 32);
    float* shard = rig.store.flat_data("weights");
    for (int64_t i = 0; i < rig.store.flat("weights")->shape[0]; ++i)
      shard[i] = 1 + float(i) * 0x1p-14f;
    int64_t compared = 0, changed = 0;
    for (const Stage& stage : rig.layout.stages()) {
      rig.store.restore(stage.index);
      for (size_t g = 0; g < stage.groups.size(); ++g) {
        const float* from = shard + rig.layout.shard_begin(0, "weights", stage.index, int(g));
        for (const Piece& piece : stage.groups[g].pieces) {
          const DLTensor* weight = rig.store.weight(piece.parameter);
          ASSERT_TRUE(same_dtype(weight->dtype, type));
          for (int64_t i = 0; i < piece.end - piece.begin; ++i) {
            const float value = from[piece.begin + i];
            const float rounded = type.code == kDLBfloat ? from_bfloat16(to_bfloat16(value))
                                                         : from_float16(to_float16(value));
            ASSERT_EQ(number(weight, i), rounded);
            ++compared;
            changed += rounded != value;
          }
        }
      }
    }
    EXPECT_EQ(compared, rig.layout.parameters_total());
    EXPECT_GT(changed, compared / 2);
  }
}

TEST(Store, ReduceWidensAndAddsInFloat32) {
  for (const bool full : {true, false}) {
    StoreOptions options;
    options.training = kBfloat16;
    options.full_precision_gradients = full;
    Rig rig(small_shape(), options);
    const DLDataType type = full ? kFloat32 : kBfloat16;
    const int bias = rig.parameter("layers.1.self_attn.query.bias");
    ASSERT_TRUE(same_dtype(rig.store.gradient(bias)->dtype, type));
    auto touch = [&](float value) {  // every gradient of the stage
      for (const Group& group : rig.layout.stages()[1].groups)
        for (const Piece& piece : group.pieces) {
          DLTensor* gradient = rig.store.gradient(piece.parameter);
          for (int64_t i = 0; i < piece.end - piece.begin; ++i) {
            if (full)
              static_cast<float*>(gradient->data)[i] = value;
            else
              static_cast<uint16_t*>(gradient->data)[i] = to_bfloat16(value);
          }
          rig.store.overwrite_flags()[piece.parameter] = 0;
        }
    };
    touch(256);
    rig.store.reduce(1, false);
    touch(1);
    rig.store.reduce(1, true);
    const float* shard = rig.store.flat_data("grads") + rig.layout.shard_begin(0, "grads", 1, 0);
    EXPECT_EQ(shard[0], 257) << "bfloat16 would have kept 256";
    EXPECT_EQ(shard[rig.layout.stages()[1].groups[0].count - 1], 257);
  }
}

TEST(Store, AnUntouchedGradientIsZeroInItsOwnType) {
  StoreOptions options;
  options.training = kFloat16;
  options.full_precision_gradients = false;
  model::Description d = test::gpt_description(small_shape());
  for (model::Parameter& p : d.parameters) p.flags |= FASTLLM_PARAM_UNUSED;
  const Layout layout(d, {}, {});
  Store store(layout, 0, options);
  const Group& group = layout.stages()[1].groups[0];
  auto* bits = static_cast<uint16_t*>(store.gradient(group.pieces[0].parameter)->data);
  std::fill_n(bits, group.count, uint16_t(0x7e00));  // NaN from an earlier step
  store.reduce(1, false);
  const float* shard = store.flat_data("grads") + layout.shard_begin(0, "grads", 1, 0);
  EXPECT_TRUE(std::all_of(shard, shard + group.count, [](float x) { return x == 0; }));
}

TEST(Store, RefusesWhatThisVersionDoesNotRun) {
  model::Description d = test::gpt_description(small_shape());
  StoreOptions options;
  options.training = {kDLFloat, 64, 1};
  EXPECT_EQ(refusal(d, {}, options, Status::kUnsupported),
            "expected float32, bfloat16 or float16 as training type, found float64; set "
            "model.distributed.training_dtype to one of them");
  options = {};
  options.optimization = kBfloat16;
  EXPECT_EQ(refusal(d, {}, options, Status::kUnsupported),
            "expected float32 as optimization type, found bfloat16; set "
            "model.distributed.optimization_dtype to float32");
}

TEST(Store, AModelMayFixTheTypeItComputesIn) {
  model::Description d = test::gpt_description(small_shape());
  d.parameters[2].dtype = kFloat32;
  EXPECT_EQ(refusal(d, {}, {}, Status::kUnsupported), "(no error)");
  StoreOptions brain;
  brain.training = kBfloat16;
  EXPECT_EQ(refusal(d, {}, brain, Status::kUnsupported),
            "parameter " + d.parameters[2].name +
                ": expected the training type, bfloat16, found that the model fixes float32 for "
                "it; set model.distributed.training_dtype to float32");
  d.parameters[2].dtype = kBfloat16;
  EXPECT_EQ(refusal(d, {}, brain, Status::kUnsupported), "(no error)");
}

TEST(Store, SaysHowMuchMemoryWasMissing) {
  test::GptShape shape = small_shape();
  shape.vocabulary = int64_t(1) << 42;  // 2^42 * 12 * 4 bytes do not fit into the address space
  EXPECT_THAT(
      refusal(test::gpt_description(shape), {}, {}, Status::kOutOfMemory),
      testing::AllOf(HasSubstr("bytes ("),
                     HasSubstr("GiB) of memory for the weight buffers, the system gave none")));
  shape.vocabulary = int64_t(1) << 58;
  EXPECT_THAT(refusal(test::gpt_description(shape), {}, {}, Status::kOutOfMemory),
              HasSubstr("expected less than 2^63 bytes of memory"));
}

// The first element of each parameter's reduced gradient on rank 0 of two tensor ranks, whose
// buffers are full of 1 and of 10.
std::map<std::string, float> over_tensor_ranks(bool sequence_tensor) {
  model::Description description = test::gpt_description(small_shape());
  for (model::Parameter& p : description.parameters)
    if (p.name == "layers.1.self_attn.key_value.weight") p.flags |= FASTLLM_PARAM_PARTIAL_ALWAYS;
  const Layout layout(description, {.tensor = 2}, {});
  distributed::testing::MemoryNetwork network;
  std::map<std::string, float> first;
  distributed::testing::run_ranks(2, [&](int rank) {
    const auto tensor = distributed::make_exchange({"tensor", "", rank, {0, 1}}, network.of(rank));
    Store store(layout, rank, {.sequence_tensor = sequence_tensor}, {.tensor = tensor.get()});
    const Group& group = layout.stages()[1].groups[0];
    store.reset_gradients(1);
    for (const Piece& piece : group.pieces) {
      std::fill_n(static_cast<float*>(store.gradient(piece.parameter)->data),
                  piece.end - piece.begin, rank == 0 ? 1.0f : 10.0f);
      store.overwrite_flags()[piece.parameter] = 0;
    }
    store.reduce(1, false);
    store.await_reductions();
    if (rank != 0) return;
    const auto* shard = static_cast<const float*>(store.flat("grads")->data);
    for (const Piece& piece : group.pieces) {
      const int64_t at = layout.shard_begin(0, "grads", 1, 0) + piece.begin;
      first[description.parameters[size_t(piece.parameter)].name] = shard[at];
      EXPECT_EQ(shard[at + piece.end - piece.begin - 1], shard[at]);  // all of it
    }
  });
  return first;
}

TEST(Store, SumsOverTensorRanksWhatEachHasAPartOf) {
  for (bool sequence : {false, true}) {
    const auto found = over_tensor_ranks(sequence);
    const float tokens = sequence ? 11 : 1;
    EXPECT_EQ(found.at("layers.1.norm_1.weight"), tokens);
    EXPECT_EQ(found.at("layers.1.mlp.layer_2.bias"), tokens);
    EXPECT_EQ(found.at("layers.1.self_attn.key_value.bias"), tokens);
    EXPECT_EQ(found.at("layers.1.self_attn.key_value.weight"), 11);
    EXPECT_EQ(found.at("layers.1.self_attn.query.weight"), 1);  // its own part
    EXPECT_EQ(found.at("layers.1.mlp.layer_1.bias"), 1);
  }
}

}  // namespace
}  // namespace fastllm::shard
