// The plain-C model plugin, driven as the host drives any model: its gradients equal finite
// differences, it writes or adds as told, skips what is frozen, and gives back what it saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>

#include "core/base/error.hpp"
#include "core/config/node.hpp"
#include "core/plugin/host_memory.hpp"
#include "core/plugin/registry.hpp"
#include "tests/support/tensor.hpp"

namespace fastllm {
namespace {

using ::testing::HasSubstr;
using testing::Tensor;

constexpr int64_t kBatch = 2, kSequence = 3, kVocabulary = 7, kWidth = 4, kInner = 5;

// The model with random weights, its batch, and all tensors between its layers.
class CModel : public ::testing::Test {
 protected:
  void SetUp() override {
    registry_ =
        std::make_unique<plugin::Registry>(plugin::SearchOptions{{FASTLLM_TEST_PLUGINS}, false});
    base_model_.set("vocab_size", config::Node::integer(kVocabulary));
    base_model_.set("hidden_size", config::Node::integer(kWidth));
    base_model_.set("inner_size", config::Node::integer(kInner));
    base_model_.set("init_std", config::Node::real(0.5));
    registry_->load("cmlp");
    model_ = registry_->model("cmlp").create(base_model_);

    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 0.5f);
    for (const auto& parameter : model_->description().parameters) {
      auto& weight = weights_.emplace_back(std::make_unique<Tensor<float>>(parameter.shape));
      for (float& value : weight->values()) value = normal(random);
      gradients_.push_back(std::make_unique<Tensor<float>>(parameter.shape));
    }
    std::generate(tokens_.values().begin(), tokens_.values().end(),
                  [&] { return int64_t(random() % kVocabulary); });
    std::generate(labels_.values().begin(), labels_.values().end(),
                  [&] { return int64_t(random() % kVocabulary); });
    labels_[1] = -100;  // no label there
    bind_all();
  }

  void bind_all() {
    for (size_t layer = 0; layer < model_->description().layers.size(); ++layer) {
      std::vector<const DLTensor*> weights;
      std::vector<DLTensor*> gradients;
      for (int index : model_->description().layers[layer].parameters) {
        weights.push_back(weights_[size_t(index)]->view());
        gradients.push_back(frozen_.count(index) ? nullptr : gradients_[size_t(index)]->view());
      }
      model_->bind(int(layer), weights, gradients);
    }
  }

  std::vector<const DLTensor*> inputs(int layer) {
    if (layer == 0) return {tokens_.view()};
    if (layer == 1) return {hidden_.view()};
    return {features_.view(), labels_.view()};
  }
  std::vector<DLTensor*> outputs(int layer) {
    if (layer == 0) return {hidden_.view()};
    if (layer == 1) return {features_.view()};
    return {loss_.view(), want_logits_ ? logits_.view() : nullptr};
  }

  fastllm_call call(uint32_t flags, const uint8_t* overwrite = nullptr) {
    fastllm_call result{};
    result.size = sizeof result;
    result.flags = flags;
    result.device = {kDLCPU, 0};
    result.length = kSequence;
    result.overwrite = overwrite;
    return result;
  }

  double loss() {
    for (int layer = 0; layer < 3; ++layer)
      model_->forward(layer, call(0), inputs(layer), outputs(layer));
    return loss_[0];
  }

  // Forward and backward of all layers; the loss has the gradient d_loss.
  void train_step(float d_loss, bool overwrite) {
    std::vector<model::Saved> saved;
    for (int layer = 0; layer < 3; ++layer)
      saved.push_back(model_->forward(layer, call(FASTLLM_SAVE), inputs(layer), outputs(layer)));
    std::vector<uint8_t> flags(2, overwrite);
    d_loss_[0] = d_loss;
    auto state = call(FASTLLM_SAVE, flags.data());
    model_->backward(2, state, std::move(saved[2]),
                     std::vector<const DLTensor*>{d_loss_.view(), nullptr},
                     std::vector<DLTensor*>{d_features_.view(), nullptr});
    model_->backward(1, state, std::move(saved[1]),
                     std::vector<const DLTensor*>{d_features_.view()},
                     std::vector<DLTensor*>{d_hidden_.view()});
    model_->backward(0, state, std::move(saved[0]), std::vector<const DLTensor*>{d_hidden_.view()},
                     std::vector<DLTensor*>{nullptr});
  }

  void fill_gradients(float value) {
    for (auto& gradient : gradients_)
      std::fill(gradient->values().begin(), gradient->values().end(), value);
  }
  std::vector<std::vector<float>> gradient_values() {
    std::vector<std::vector<float>> values;
    for (auto& gradient : gradients_) values.push_back(gradient->values());
    return values;
  }

  std::unique_ptr<plugin::Registry> registry_;
  config::Node base_model_ = config::Node::map();
  std::unique_ptr<model::Model> model_;
  std::vector<std::unique_ptr<Tensor<float>>> weights_, gradients_;
  std::map<int, bool> frozen_;
  bool want_logits_ = false;
  Tensor<int64_t> tokens_{{kBatch, kSequence}}, labels_{{kBatch, kSequence}};
  Tensor<float> hidden_{{kBatch, kSequence, kWidth}}, d_hidden_{{kBatch, kSequence, kWidth}};
  Tensor<float> features_{{kBatch, kSequence, kInner}}, d_features_{{kBatch, kSequence, kInner}};
  Tensor<float> logits_{{kBatch, kSequence, kVocabulary}};
  Tensor<float> loss_{{}}, d_loss_{{}};
};

TEST_F(CModel, DescribesItself) {
  const auto& description = model_->description();
  ASSERT_EQ(description.layers.size(), 3u);
  EXPECT_EQ(description.layers[2].inputs[1].name, "labels");
  EXPECT_EQ(description.layers[2].outputs[0].flags, uint32_t(FASTLLM_PORT_LOSS | FASTLLM_PORT_SUM));
  ASSERT_EQ(description.parameters.size(), 5u);
  EXPECT_EQ(description.parameters[3].shape, (std::vector<int64_t>{kVocabulary, kInner}));
  auto& factory = registry_->model("cmlp");
  ASSERT_EQ(factory.fields().size(), 4u);
  EXPECT_EQ(factory.fields()[0].path, "vocab_size");
  EXPECT_TRUE(factory.fields()[0].architecture);
}

TEST_F(CModel, LossIsTheSumOfNegativeLogProbabilities) {
  want_logits_ = true;
  double found = loss(), expected = 0;
  for (int64_t row = 0; row < kBatch * kSequence; ++row) {
    if (labels_[size_t(row)] < 0) continue;
    const float* x = &logits_[size_t(row * kVocabulary)];
    double sum = 0;
    for (int64_t v = 0; v < kVocabulary; ++v) sum += std::exp(double(x[v]));
    expected += std::log(sum) - x[labels_[size_t(row)]];
  }
  EXPECT_NEAR(found, expected, 1e-5);
}

// Central differences in float32 are good to about (epsilon of the loss) / step + step^2.
TEST_F(CModel, GradientsEqualFiniteDifferences) {
  constexpr float kStep = 1e-2f;
  fill_gradients(123);  // must be overwritten
  train_step(1, true);
  for (size_t i = 0; i < weights_.size(); ++i) {
    double error = 0, norm = 0;
    for (size_t k = 0; k < weights_[i]->size(); ++k) {
      float& weight = (*weights_[i])[k];
      float before = weight;
      weight = before + kStep;
      double above = loss();
      weight = before - kStep;
      double below = loss();
      weight = before;
      double expected = (above - below) / (2 * kStep), found = (*gradients_[i])[k];
      error += (expected - found) * (expected - found);
      norm += expected * expected;
    }
    ASSERT_GT(norm, 0) << model_->description().parameters[i].name;
    EXPECT_LT(std::sqrt(error / norm), 1e-3) << model_->description().parameters[i].name;
  }
}

TEST_F(CModel, WritesOrAddsAsTold) {
  fill_gradients(NAN);  // an overwritten gradient must not be read
  train_step(1, true);
  auto once = gradient_values();
  train_step(1, false);
  auto twice = gradient_values();
  for (size_t i = 0; i < once.size(); ++i) {
    for (size_t k = 0; k < once[i].size(); ++k) ASSERT_NEAR(twice[i][k], 2 * once[i][k], 1e-5);
  }
  train_step(1, true);
  EXPECT_EQ(gradient_values(), once);  // to the bit
}

TEST_F(CModel, GradientOfTheLossScalesTheOthers) {
  train_step(1, true);
  auto once = gradient_values();
  train_step(0.5f, true);
  for (size_t i = 0; i < once.size(); ++i) {
    for (size_t k = 0; k < once[i].size(); ++k)
      ASSERT_NEAR((*gradients_[i])[k], 0.5f * once[i][k], 1e-6);
  }
}

TEST_F(CModel, FrozenParametersGetNoGradientAndOthersTheSame) {
  train_step(1, true);
  auto all = gradient_values();
  frozen_ = {{1, true}, {4, true}};
  bind_all();
  fill_gradients(7);
  train_step(1, true);
  for (size_t i = 0; i < all.size(); ++i) {
    if (frozen_.count(int(i))) {
      EXPECT_THAT(gradients_[i]->values(), ::testing::Each(7));
    } else {
      EXPECT_EQ(gradients_[i]->values(), all[i]);
    }
  }
}

TEST_F(CModel, NoGradientOfTheOutputMeansZero) {
  auto saved = model_->forward(1, call(FASTLLM_SAVE), inputs(1), outputs(1));
  fill_gradients(3);
  std::fill(d_hidden_.values().begin(), d_hidden_.values().end(), 3.f);
  std::vector<uint8_t> overwrite = {1, 0};
  model_->backward(1, call(FASTLLM_SAVE, overwrite.data()), std::move(saved),
                   std::vector<const DLTensor*>{nullptr}, std::vector<DLTensor*>{d_hidden_.view()});
  EXPECT_THAT(gradients_[1]->values(), ::testing::Each(0));
  EXPECT_THAT(gradients_[2]->values(), ::testing::Each(3));
  EXPECT_THAT(d_hidden_.values(), ::testing::Each(0));
}

// The head keeps host memory; whether it came back is seen in the host's cache.
TEST_F(CModel, DiscardGivesBackWhatForwardKept) {
  plugin::release_cached_memory();
  {
    auto saved = model_->forward(2, call(FASTLLM_SAVE), inputs(2), outputs(2));
    ASSERT_TRUE(saved);
    EXPECT_EQ(plugin::cached_bytes(), 0u);
  }
  EXPECT_GE(plugin::cached_bytes(), uint64_t(kBatch * kSequence * kVocabulary) * sizeof(float));
}

TEST_F(CModel, KeepsNothingWithoutSave) {
  EXPECT_FALSE(model_->forward(2, call(0), inputs(2), outputs(2)));
}

TEST_F(CModel, SaysHowManyFlopsAForwardTakes) {
  EXPECT_EQ(model_->flops(2, kBatch, kSequence).forward,
            2. * kBatch * kSequence * kInner * kVocabulary);
}

TEST_F(CModel, NamesATokenOutsideTheVocabulary) {
  tokens_[4] = kVocabulary;
  try {
    loss();
    FAIL() << "the token was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.status(), Status::kInvalid);
    EXPECT_STREQ(e.what(),
                 "plugin cmlp (libfastllm_cmlp.so 0.1.0), layer 0 forward: expected token ids from "
                 "0 to 6, found 7");
  }
}

TEST_F(CModel, RefusesOtherTypesThanFloat32) {
  Tensor<double> weight({kVocabulary, kWidth});
  EXPECT_THAT(
      [&] {
        model_->bind(0, std::vector<const DLTensor*>{weight.view()},
                     std::vector<DLTensor*>{nullptr});
      },
      ::testing::Throws<Error>(::testing::Property(
          &Error::what,
          HasSubstr("layer 0 bind: expected float32 on the CPU for weights and gradients, found "
                    "another type or device; set model.distributed.training_dtype to float32"))));
}

TEST_F(CModel, RefusesASizeItCannotCount) {
  base_model_.set("vocab_size", config::Node::integer(int64_t(1) << 40));
  EXPECT_THAT([&] { registry_->model("cmlp").create(base_model_); },
              ::testing::Throws<Error>(::testing::Property(
                  &Error::what, ::testing::StartsWith("vocab_size: expected"))));
}

}  // namespace
}  // namespace fastllm
