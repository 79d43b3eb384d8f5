// gpt in bfloat16 and float16, layer by layer through the host's proxies: a call is the float32 one
// on the widened inputs and weights, with its results rounded once. So to the last bit, for every
// output, input gradient and parameter gradient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/base/tensor.hpp"
#include "core/shard/elements.hpp"
#include "tests/parity/gpt_model.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm {
namespace {

using testing::make_gpt;
using testing::Overrides;

constexpr int64_t kBatch = 2, kSequence = 8, kVocabulary = 37;

const Overrides kShape{"vocab_size=37",
                       "max_position_embeddings=16",
                       "transformer.num_layers=1",
                       "transformer.hidden_size=16",
                       "transformer.num_attention_heads=4",
                       "transformer.head_groups=2"};

// A tensor of floats in one of the types; null data where a call gets none.
class Array {
 public:
  Array(DLDataType type, std::vector<int64_t> shape)
      : shape_(std::move(shape)), strides_(row_major_strides(shape_)) {
    for (int64_t size : shape_) count_ *= size;
    bytes_.resize(size_t(count_) * type.bits / 8, std::byte{0xff});  // NaN: what is not written
    tensor_ = {bytes_.data(),
               {kDLCPU, 0},
               int32_t(shape_.size()),
               type,
               shape_.data(),
               strides_.data(),
               0};
  }
  Array(Array&& other) : Array(other.tensor_.dtype, other.shape_) {
    bytes_.swap(other.bytes_);
    tensor_.data = bytes_.data();
  }

  void set(const std::vector<float>& values) {
    if (!is_compute_dtype(tensor_.dtype)) return;  // what is in them is never read
    shard::copy(tensor_.data, tensor_.dtype, values.data(), kFloat32, count_);
  }
  std::vector<float> values() const {
    std::vector<float> values(static_cast<size_t>(count_));
    shard::copy(values.data(), kFloat32, tensor_.data, tensor_.dtype, count_);
    return values;
  }
  int64_t count() const { return count_; }
  DLTensor* tensor() { return &tensor_; }

 private:
  std::vector<int64_t> shape_, strides_;
  int64_t count_ = 1;
  std::vector<std::byte> bytes_;
  DLTensor tensor_{};
};

std::vector<float> random_values(int64_t count, DLDataType rounded_to, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(float(int32_t(random())) * 0x1p-31f);
  Array array(rounded_to, {count});
  array.set(values);
  return array.values();
}

std::vector<float> rounded(const std::vector<float>& values, DLDataType type) {
  Array array(type, {int64_t(values.size())});
  array.set(values);
  return array.values();
}

std::vector<int64_t> shape_of(const model::Port& port) {
  std::vector<int64_t> shape = port.shape;
  for (int64_t& size : shape) {
    if (size == FASTLLM_DIM_BATCH) size = kBatch;
    if (size == FASTLLM_DIM_SEQUENCE) size = kSequence;
  }
  return shape;
}

struct Types {
  DLDataType compute, gradients;  // the second: of parameters
};

struct Outcome {
  std::vector<DLDataType> output_types;
  std::vector<std::vector<float>> outputs, d_inputs, gradients;
};

// One layer: bind, forward with SAVE, backward. Values of inputs, weights and output gradients are
// the same in all types, rounded to `values`.
Outcome run(model::Model& model, int layer, const Types& types, DLDataType values, bool overwrite) {
  const model::Description& d = model.description();
  const model::Layer& l = d.layers[size_t(layer)];
  uint32_t seed = uint32_t(layer) * 100;
  std::vector<Array> arrays;
  arrays.reserve(100);
  auto make = [&](DLDataType type, const std::vector<int64_t>& shape) -> Array& {
    return arrays.emplace_back(type, shape);
  };
  auto type_of = [&](const model::Port& port) {
    if (port.dtype.bits) return port.dtype;
    return port.flags & (FASTLLM_PORT_LOSS | FASTLLM_PORT_METRIC) ? kFloat32 : types.compute;
  };

  std::vector<const DLTensor*> weights;
  std::vector<DLTensor*> gradients;
  std::vector<Array*> gradient_arrays;
  for (int p : l.parameters) {
    Array& weight = make(types.compute, d.parameters[size_t(p)].shape);
    weight.set(random_values(weight.count(), values, ++seed));
    weights.push_back(weight.tensor());
    Array& gradient = make(types.gradients, d.parameters[size_t(p)].shape);
    if (!overwrite) gradient.set(random_values(gradient.count(), values, ++seed));
    gradients.push_back(gradient.tensor());
    gradient_arrays.push_back(&gradient);
  }
  model.bind(layer, weights, gradients);

  std::vector<std::vector<int64_t>> integers;
  std::vector<int32_t> ends{0, kSequence, 2 * kSequence};
  std::vector<std::vector<int64_t>> shapes;
  std::vector<DLTensor> lent;
  integers.reserve(8);
  shapes.reserve(16);
  lent.reserve(8);
  std::vector<const DLTensor*> in;
  std::vector<Array*> d_in_arrays;
  std::vector<DLTensor*> d_in;
  for (const model::Port& port : l.inputs) {
    if (!(port.flags & FASTLLM_PORT_BATCH)) {
      Array& input = make(type_of(port), shape_of(port));
      input.set(random_values(input.count(), values, ++seed));
      in.push_back(input.tensor());
      d_in_arrays.push_back(&make(type_of(port), shape_of(port)));
      d_in.push_back(d_in_arrays.back()->tensor());
      continue;
    }
    d_in.push_back(nullptr);
    if (port.name == "cu_seqlens") {
      shapes.push_back({3});
      shapes.push_back({1});
      lent.push_back({ends.data(),
                      {kDLCPU, 0},
                      1,
                      {kDLInt, 32, 1},
                      shapes[shapes.size() - 2].data(),
                      shapes.back().data(),
                      0});
    } else {
      std::vector<int64_t>& ids = integers.emplace_back();
      for (int64_t i = 0; i < kBatch * kSequence; ++i)
        ids.push_back(port.name == "positions" ? i % kSequence : (i * 7 + 3) % kVocabulary);
      shapes.push_back({kBatch, kSequence});
      shapes.push_back({kSequence, 1});
      lent.push_back({ids.data(),
                      {kDLCPU, 0},
                      2,
                      {kDLInt, 64, 1},
                      shapes[shapes.size() - 2].data(),
                      shapes.back().data(),
                      0});
    }
    in.push_back(&lent.back());
  }

  Outcome outcome;
  std::vector<DLTensor*> out;
  std::vector<const DLTensor*> d_out;
  std::vector<Array*> out_arrays;
  for (const model::Port& port : l.outputs) {
    out_arrays.push_back(&make(type_of(port), shape_of(port)));
    out.push_back(out_arrays.back()->tensor());
    outcome.output_types.push_back(type_of(port));
    if (port.flags & FASTLLM_PORT_NO_GRAD) {
      d_out.push_back(nullptr);
      continue;
    }
    Array& gradient = make(type_of(port), shape_of(port));
    const bool loss = port.flags & FASTLLM_PORT_LOSS;
    gradient.set(loss ? std::vector<float>{0.125f}
                      : random_values(gradient.count(), values, ++seed));
    d_out.push_back(gradient.tensor());
  }
  fastllm_call call{};
  call.size = sizeof call;
  call.flags = FASTLLM_SAVE;
  call.device = {kDLCPU, 0};
  call.seed = 5;
  call.length = kSequence;
  const std::vector<uint8_t> flags(l.parameters.size(), overwrite);
  call.overwrite = flags.data();
  model::Saved saved = model.forward(layer, call, in, out);
  model.backward(layer, call, std::move(saved), d_out, d_in);
  for (Array* array : out_arrays) outcome.outputs.push_back(array->values());
  for (Array* array : d_in_arrays) outcome.d_inputs.push_back(array->values());
  for (Array* array : gradient_arrays) outcome.gradients.push_back(array->values());
  return outcome;
}

const Overrides kLlamaLike{"transformer.gated=true", "transformer.add_linear_biases=false",
                           "transformer.normalization.type=rms_norm",
                           "transformer.rotary.type=default", "tie_word_embeddings=false"};

TEST(GptTypes, ACallIsTheFloat32OneBetweenRoundings) {
  for (const Overrides& overrides : {Overrides{}, kLlamaLike})
    for (const DLDataType type : {kBfloat16, kFloat16})
      for (const bool full : {true, false})
        for (const bool overwrite : {true, false}) {
          const auto model = make_gpt(kShape, overrides);
          for (int l = 0; l < int(model->description().layers.size()); ++l) {
            SCOPED_TRACE(dtype_text(type) + (full ? ", full gradients, " : ", own gradients, ") +
                         (overwrite ? "written, " : "added, ") +
                         model->description().layers[size_t(l)].name);
            const Outcome exact = run(*model, l, {kFloat32, kFloat32}, type, overwrite);
            const Outcome found = run(*model, l, {type, full ? kFloat32 : type}, type, overwrite);
            ASSERT_EQ(found.outputs.size(), exact.outputs.size());
            for (size_t i = 0; i < exact.outputs.size(); ++i)
              EXPECT_EQ(found.outputs[i], rounded(exact.outputs[i], found.output_types[i])) << i;
            ASSERT_EQ(found.d_inputs.size(), exact.d_inputs.size());
            for (size_t i = 0; i < exact.d_inputs.size(); ++i)
              EXPECT_EQ(found.d_inputs[i], rounded(exact.d_inputs[i], type)) << i;
            for (size_t i = 0; i < exact.gradients.size(); ++i) {
              EXPECT_EQ(found.gradients[i],
                        full ? exact.gradients[i] : rounded(exact.gradients[i], type))
                  << i;
              for (float value : found.gradients[i]) ASSERT_TRUE(std::isfinite(value));
            }
          }
        }
}

// The stream between blocks is float32 then, its gradient too; the logits stay in the type.
TEST(GptTypes, AFullPrecisionResidualIsFloat32) {
  Overrides overrides = kLlamaLike;
  overrides.push_back("transformer.full_precision_residual=true");
  const auto model = make_gpt(kShape, overrides);
  int ports = 0;
  for (const model::Layer& layer : model->description().layers) {
    for (const auto* side : {&layer.inputs, &layer.outputs})
      for (const model::Port& port : *side) {
        if (port.name.find("hidden") == std::string::npos) continue;
        EXPECT_TRUE(is_float32(port.dtype)) << layer.name;
        ++ports;
      }
  }
  EXPECT_EQ(ports, 4);  // embedding out, block in and out, head in
  const Outcome exact = run(*model, 1, {kFloat32, kFloat32}, kBfloat16, true);
  const Outcome found = run(*model, 1, {kBfloat16, kFloat32}, kBfloat16, true);
  EXPECT_EQ(found.outputs, exact.outputs);
  EXPECT_NE(found.outputs[0], rounded(exact.outputs[0], kBfloat16));
  EXPECT_EQ(found.d_inputs, exact.d_inputs);
  EXPECT_EQ(found.gradients, exact.gradients);
}

TEST(GptTypes, RefusesATypeItCannotComputeIn) {
  const auto model = make_gpt(kShape, {});
  EXPECT_THAT(test::message_of([&] {
                run(*model, 0, {{kDLFloat, 64, 1}, kFloat32}, kFloat32, true);
              }),
              ::testing::HasSubstr("layers.0.word_embeddings_weight: expected a float32, bfloat16 "
                                   "or float16 weight, found float64; set "
                                   "model.distributed.training_dtype to one of them"));
}

}  // namespace
}  // namespace fastllm
