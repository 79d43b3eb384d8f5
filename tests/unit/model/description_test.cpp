// Every sentence that a wrong description gets, wiring, tied parameters and the fingerprint.
#include "core/model/description.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "core/base/error.hpp"
#include "tests/support/gpt_description.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::model {
namespace {

using testing::HasSubstr;

Description small() { return test::gpt_description(test::small_gpt_shape(2, 12)); }

std::string refusal(const Description& d) {
  return test::message_of([&] { d.validate(); }, Status::kInternal);
}

TEST(Description, AcceptsAGpt) { EXPECT_NO_THROW(small().validate()); }

TEST(Description, RefusesEachMistakeByName) {
  struct Case {
    std::function<void(Description&)> spoil;
    const char* text;
  };
  const Layer preprocessing{
      "masks", FASTLLM_LAYER_EVERY_STAGE, 1, {}, {{"mask", FASTLLM_PORT_NO_GRAD, {0, 0, 1}, {4}}},
      {}};
  const std::vector<Case> cases{
      {[](Description& d) { d.layers.clear(); }, "a model of at least one layer"},
      {[](Description& d) { d.layers[1].name = "layers 1"; }, "found \"layers 1\""},
      {[](Description& d) { d.layers[2].name = d.layers[1].name; },
       "layers of different names, found layers.1 twice"},
      {[](Description& d) { d.layers[1].cost = -1; },
       "layer layers.1: expected a cost from 0, found -1"},
      {[&](Description& d) { d.layers.insert(d.layers.begin() + 1, preprocessing); },
       "before all others"},
      {[&](Description& d) {
         d.layers = {preprocessing};
         d.parameters.clear();
       },
       "preprocessing layers alone"},
      {[&](Description& d) {
         d.layers.insert(d.layers.begin(), preprocessing);
         d.layers[0].inputs.push_back(d.layers[2].inputs[0]);
       },
       "batch entries alone, found input hidden"},
      {[&](Description& d) {
         d.layers.insert(d.layers.begin(), preprocessing);
         d.layers[0].parameters = {0};
       },
       "to have no parameters, found 1"},
      {[&](Description& d) {
         d.layers.insert(d.layers.begin(), preprocessing);
         d.layers[0].outputs.push_back({"loss", FASTLLM_PORT_LOSS, {0, 0, 1}, {}});
       },
       "no loss or metric of a preprocessing layer, found output loss"},
      {[](Description& d) { d.layers[1].inputs[0].name = ""; },
       "name of an input of layer layers.1"},
      {[](Description& d) { d.layers[1].outputs[0].name = "a b"; },
       "name of an output of layer layers.1"},
      {[](Description& d) { d.layers[1].inputs.push_back(d.layers[1].inputs[0]); },
       "inputs of different names, found hidden twice"},
      {[](Description& d) { d.layers[1].outputs.push_back(d.layers[1].outputs[0]); },
       "outputs of different names, found hidden twice"},
      {[](Description& d) { d.layers[1].inputs[0].name = "hiden"; },
       "layers.1: expected an earlier output named like its input hiden"},
      {[](Description& d) { d.layers[1].inputs[0].shape[1] = 13; },
       "found [-3, 13] after [-3, 12] of layer layers.0"},
      {[](Description& d) {
         d.layers[1].inputs[0].dtype = {kDLInt, 64, 1};
       },
       "the shape and type of the output"},
      {[](Description& d) { d.layers[1].outputs[0].shape[0] = FASTLLM_DIM_ANY; },
       "found shape [-4, 12]"},
      {[](Description& d) { d.layers[1].outputs[0].shape[0] = -9; }, "found shape [-9, 12]"},
      {[](Description& d) { d.layers[1].outputs[0].flags = FASTLLM_PORT_BATCH; },
       "expected no output taken from the batch"},
      {[](Description& d) { d.layers[3].outputs[0].shape = {1}; },
       "expected a scalar (no dimensions) for a loss or metric, found shape [1]"},
      {[](Description& d) { d.layers[3].outputs[0].flags |= FASTLLM_PORT_OPTIONAL; },
       "to be always made"},
      {[](Description& d) { d.layers[3].outputs[0].flags |= FASTLLM_PORT_NO_GRAD; },
       "expected a loss to take a gradient"},
      {[](Description& d) { d.layers[1].inputs[0].flags = FASTLLM_PORT_LOSS; },
       "among the outputs"},
      {[](Description& d) { d.layers[1].outputs[0].flags = FASTLLM_PORT_SUM; },
       "PORT_SUM on losses and metrics"},
      {[](Description& d) { d.parameters[0].name = "a:b"; }, "found \"a:b\""},
      {[](Description& d) { d.parameters[1].name = d.parameters[0].name; },
       "parameters of different names"},
      {[](Description& d) { d.parameters[0].shape.clear(); }, "at least one dimension"},
      {[](Description& d) { d.parameters[0].shape[0] = 0; },
       "dimensions above 0, found shape [0, 12]"},
      {[](Description& d) {
         d.parameters[0].shape = {int64_t(1) << 40, int64_t(1) << 40};
       },
       "number of elements below 2^63"},
      {[](Description& d) { d.parameters[0].init = 9; }, "initialisation between 0 and 4, found 9"},
      {[](Description& d) { d.parameters[0].shard_group = "row"; }, "found \"row\""},
      {[](Description& d) { d.parameters[0].shard_dim = 2; },
       "shard_dim to be a dimension of shape [50, 12], found 2"},
      {[](Description& d) { d.parameters[0].shard_blocks = 3; },
       "shard_blocks to divide dimension 0 of size 50, found 3"},
      {[](Description& d) { d.parameters[0].shard_unit = 4; },
       "shard_unit to divide blocks of size 50, found 4"},
      {[](Description& d) { d.parameters[0].weight_decay = -1; },
       "weight-decay factor from 0, found -1"},
      {[](Description& d) {
         d.parameters[0].lr_scales = {1, 1, 1};
       },
       "scales to divide dimension 0 of size 50, found 3"},
      {[](Description& d) { d.parameters[0].lr_scales = {-1}; },
       "scales from 0, or NaN for the default, found -1"},
      {[](Description& d) { d.parameters[0].init_b = INFINITY; },
       "finite initialisation values, found 0 and inf"},
      {[](Description& d) {
         d.parameters[0].init_min = 1;
         d.parameters[0].init_max = 0;
       },
       "init_min to be at most init_max, found 1 and 0"},
      {[](Description& d) { d.layers[1].parameters[0] = 999; }, "found 999"},
      {[](Description& d) { d.layers[1].parameters.push_back(d.layers[1].parameters[0]); },
       "each parameter once"},
      {[](Description& d) { d.parameters[0].first_layer = 1; },
       "expected layer 1 to be the first that uses it, found 0"},
  };
  for (const Case& c : cases) {
    Description d = small();
    c.spoil(d);
    EXPECT_THAT(refusal(d), HasSubstr(c.text));
  }
}

TEST(Description, WiresToTheLatestOutputOfThatName) {
  const auto wires = wire(small());
  EXPECT_TRUE(wires[0][0].from_batch());
  EXPECT_EQ(wires[2][0].layer, 1);
  EXPECT_EQ(wires[3][0].layer, 2);
  EXPECT_TRUE(wires[3][1].from_batch());
}

TEST(Description, TiesByNameAndRefusesAnotherShape) {
  Description d = small();
  EXPECT_EQ(d.layers[3].parameters[0], 0);  // the head's output weights are the embedding's
  Parameter again = d.parameters[0];
  again.shape = {49, 12};
  EXPECT_THAT(test::message_of([&] { d.declare(2, again); }),
              testing::AllOf(HasSubstr("layer layers.2: expected parameter "
                                       "layers.0.word_embeddings_weight to have shape [50, 12]"),
                             HasSubstr("found shape [49, 12]")));
  EXPECT_THAT(test::message_of([&] { d.declare(3, d.parameters[0]); }),
              HasSubstr("found layers.0.word_embeddings_weight twice"));
}

TEST(Description, DeclaresAfterItsListWasCut) {
  Description d = small();
  const size_t count = d.parameters.size();
  Parameter last = d.parameters.back();
  d.parameters.pop_back();
  d.layers.back().parameters.clear();
  EXPECT_EQ(d.declare(int(d.layers.size()) - 1, last), int(count) - 1);
  EXPECT_EQ(d.parameters.size(), count);
  EXPECT_EQ(d.declare(int(d.layers.size()) - 1, d.parameters[0]), 0);  // tied
  EXPECT_EQ(d.parameters.size(), count);
}

TEST(Description, FrozenNeedsEveryScaleToBeZero) {
  Parameter p;
  EXPECT_FALSE(p.frozen());
  p.lr_scales = {0, 0};
  EXPECT_TRUE(p.frozen());
  p.lr_scales = {0, 1e-12};
  EXPECT_FALSE(p.frozen());
  p.lr_scales = {std::nan("")};
  EXPECT_FALSE(p.frozen());
}

TEST(Description, FingerprintTellsApartWhatDiffers) {
  const std::string base = small().fingerprint();
  EXPECT_EQ(base, small().fingerprint());
  const std::vector<std::function<void(Description&)>> changes{
      [](Description& d) { d.type = "gpt2"; },
      [](Description& d) { d.layers[1].cost = std::nextafter(1.0, 2.0); },
      [](Description& d) { d.layers[1].flags = FASTLLM_LAYER_CAPTURABLE; },
      [](Description& d) { d.layers[1].outputs[0].flags = FASTLLM_PORT_KEEP; },
      [](Description& d) { d.layers[1].outputs[0].shape[0] = 7; },
      [](Description& d) { d.layers[0].inputs[0].dtype.bits = 32; },
      [](Description& d) { d.parameters[3].init_b = 0.021; },
      [](Description& d) { d.parameters[3].lr_scales = {0}; },
      [](Description& d) { d.parameters[3].weight_decay = 0.5; },
      [](Description& d) { d.parameters[3].shard_unit = 3; },
      [](Description& d) { std::swap(d.layers[1].parameters[0], d.layers[1].parameters[1]); },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Description d = small();
    changes[i](d);
    EXPECT_NE(d.fingerprint(), base) << i;
  }
  Description negative = small();  // a NaN is a NaN
  negative.parameters[0].init_min = -negative.parameters[0].init_min;
  EXPECT_EQ(negative.fingerprint(), base);
}

}  // namespace
}  // namespace fastllm::model
