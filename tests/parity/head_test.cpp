// The head: its losses and their gradients against autograd in double precision, for every way it has
// of making them (by chunks with the loss's gradient assumed, kept as a whole, made again), and the
// memory it takes.
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layers/head.hpp"
#include "tests/parity/layer_harness.hpp"

namespace fastllm::gpt {
namespace {

using namespace testing;

constexpr double kTolerance = 2e-6;  // of the norm, per tensor: float32 against double

struct Rig {
  GptConfig config;
  int64_t sequence;
  Head head;
  at::Tensor x = at::randn({2, sequence, config.hidden}, at::kFloat) * 2;
  at::Tensor labels = at::randint(0, config.vocabulary, {2, sequence}, at::kLong);
  at::Tensor d_loss = at::full({}, 0.37, at::kFloat), d_z = at::full({}, 0.37, at::kFloat);
  Named weights = random_weights(head);

  explicit Rig(const GptConfig& c, int64_t length = 70, int64_t distance = 1)
      : config(c),
        sequence(length),
        head(c, "layers.3", distance, "hidden", "layers.3.output_weights") {
    labels.view({-1}).narrow(0, 3, 9).fill_(-100);
  }
  std::vector<at::Tensor> d_outputs() const {
    if (config.z_loss > 0) return {d_loss, d_z};
    return {d_loss};
  }
  std::string weight_name() const {
    return config.tied ? "layers.0.word_embeddings_weight" : "layers.3.output_weights";
  }
  RunResult run(const RunOptions& options = {}) {
    return testing::run(head, weights, {x, labels}, d_outputs(), options);
  }
};

// d of d_loss * coefficient * cross entropy + d_z * z_loss * z loss, plainly.
void expect_like_autograd(Rig& rig, const RunOptions& options = {}, double coefficient = 1) {
  const GptConfig& c = rig.config;
  const auto actual = rig.run(options);
  Named w;
  for (const auto& [name, tensor] : rig.weights)
    w[name] = tensor.to(at::kDouble).requires_grad_(true);
  const auto x = rig.x.to(at::kDouble).requires_grad_(true);
  const auto normed = at::layer_norm(x, {c.hidden}, w.at("layers.3.final_norm.weight"),
                                     w.at("layers.3.final_norm.bias"), c.norm.epsilon);
  const auto logits = normed.matmul(w.at(rig.weight_name()).t()) * c.logits_scale;
  const auto loss = at::cross_entropy_loss(logits.flatten(0, 1), rig.labels.flatten(), {},
                                           at::Reduction::Sum, -100);
  const auto z = (logits.logsumexp(-1).pow(2) * rig.labels.ne(-100)).sum();
  (loss * rig.d_loss.to(at::kDouble) * coefficient + z * rig.d_z.to(at::kDouble) * c.z_loss)
      .backward();
  EXPECT_LT(distance(actual.outputs[0], loss), kTolerance);
  if (c.z_loss > 0) {
    EXPECT_LT(distance(actual.outputs[1], z), kTolerance);  // reported without its weight
  }
  if (options.logits) {
    EXPECT_LT(distance(actual.outputs.back(), logits), kTolerance);
  }
  if (options.input_gradient) {
    EXPECT_LT(distance(actual.d_input, x.grad()), kTolerance);
  }
  for (const auto& [name, gradient] : actual.gradients) {
    EXPECT_LT(distance(gradient, w.at(name).grad()), kTolerance) << name;
  }
}

TEST(GptHead, IsLikeAutogradWithZLossInEveryWayOfKeeping) {
  for (double z_loss : {0.0, 0.01}) {
    for (int64_t length : {70, 9}) {  // 18 tokens are fewer than the 24 of hidden: kept as a whole
      for (bool tied : {true, false}) {
        for (bool logits : {false, true}) {
          SCOPED_TRACE(::testing::Message() << z_loss << " " << length << tied << logits);
          at::manual_seed(11);
          auto config = small_config();
          config.tied = tied;
          config.logits_scale = 0.5;
          config.z_loss = z_loss;
          Rig rig(config, length);
          expect_like_autograd(rig, {.logits = logits});
        }
      }
    }
  }
}

// Not what this host does, but what the contract allows.
TEST(GptHead, IsLikeAutogradWhenTheHostWeighsItsLossesDifferently) {
  for (int64_t length : {70, 9}) {
    at::manual_seed(12);
    auto config = small_config();
    config.z_loss = 0.02;
    Rig rig(config, length);
    rig.d_z.fill_(-1.5);
    expect_like_autograd(rig);
    rig.d_z.fill_(0);
    expect_like_autograd(rig);
  }
}

TEST(GptHead, GivesAnInputGradientBelowPartsThatAreAllFrozen) {
  at::manual_seed(13);
  auto config = small_config();
  config.tied = false;
  config.mlp_scales = {0};
  config.attention_scale = config.embeddings_scale = config.norm_scale = 0;
  Rig rig(config);
  const std::set<std::string> norms{"layers.3.final_norm.weight", "layers.3.final_norm.bias"};
  expect_like_autograd(rig, {.frozen = norms, .input_gradient = false});
  expect_like_autograd(rig, {.frozen = norms, .input_gradient = true});
}

TEST(GptHead, WeighsAFurtherPredictionAndReadsItsLabels) {
  at::manual_seed(14);
  auto config = small_config();
  config.prediction_heads = 2;
  config.prediction_coefficients = {1, 0.3};
  config.z_loss = 0.01;
  Rig rig(config, 70, 2);
  expect_like_autograd(rig, {}, 0.3);
  EXPECT_EQ(declared(rig.head).outputs[0].name, "language_model_loss_1");
  EXPECT_EQ(declared(rig.head).outputs[1].name, "logit_z_loss_1");
}

TEST(GptHead, CutsTokensIntoPiecesThatChangeNothingButRounding) {
  at::manual_seed(15);
  auto config = small_config();
  config.z_loss = 0.01;
  const auto whole = Rig(config).run();
  for (int64_t splits : {1, 3, 140, 1000}) {
    SCOPED_TRACE(splits);
    at::manual_seed(15);
    config.cross_entropy_splits = splits;
    Rig rig(config);
    EXPECT_EQ(rig.head.chunk(140), splits == 1 ? 140 : splits == 3 ? 47 : 1);
    const auto cut = rig.run();
    EXPECT_LT(distance(cut.outputs[0], whole.outputs[0]), 1e-6);
    EXPECT_LT(distance(cut.d_input, whole.d_input), kTolerance);
    for (const auto& [name, gradient] : cut.gradients)
      EXPECT_LT(distance(gradient, whole.gradients.at(name)), kTolerance) << name;
  }
}

TEST(GptHead, CutsTokensIntoEqualPiecesOfABoundedSize) {
  auto config = small_config();
  config.vocabulary = 8192;
  Rig rig(config);
  EXPECT_EQ(rig.head.chunk(100), 100);
  EXPECT_EQ(rig.head.chunk(384), 384);   // 12 MiB
  EXPECT_EQ(rig.head.chunk(385), 193);   // 2 pieces
  EXPECT_EQ(rig.head.chunk(2048), 342);  // 6 pieces
  config.vocabulary = 1 << 20;
  EXPECT_EQ(Head(config, "layers.3", 1, "hidden", "w").chunk(4096), 256);
}

// Of the losses and their gradient; the products' bits are the library's affair.
TEST(GptHead, LossesHaveTheSameBitsWithAnyNumberOfThreads) {
  at::manual_seed(16);
  const auto logits = at::randn({37, 5000}, at::kFloat) * 3;
  const auto labels = at::randint(0, 5000, {37}, at::kLong);
  const auto with_threads = [&](int threads, const at::Tensor& gradient) {
    at::set_num_threads(threads);
    return cross_entropy(logits.const_data_ptr<float>(), labels.const_data_ptr<int64_t>(), 37, 5000,
                         {.cross_entropy = 1, .z = 0.01}, gradient.mutable_data_ptr<float>());
  };
  const int threads = at::get_num_threads();
  const auto one = at::empty_like(logits), three = at::empty_like(logits);
  const LossSums a = with_threads(1, one), b = with_threads(3, three);
  at::set_num_threads(threads);
  EXPECT_EQ(a.cross_entropy, b.cross_entropy);
  EXPECT_EQ(a.z, b.z);
  EXPECT_TRUE(one.equal(three));
}

TEST(GptHead, HasTheSameLossBitsWithAndWithoutAGradient) {
  at::manual_seed(17);
  auto config = small_config();
  config.z_loss = 0.01;
  Rig rig(config);
  const auto kept = rig.run();
  const auto plain = run_forward(rig.head, rig.weights, {rig.x, rig.labels});
  for (int i : {0, 1}) EXPECT_TRUE(kept.outputs[size_t(i)].equal(plain[size_t(i)]));
}

// Counts the bytes of tensors that are alive. Not for tensors of other threads.
class CountingAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    alive += int64_t(bytes);
    peak = std::max(peak, alive);
    auto* block = new Block{c10::alloc_cpu(bytes), bytes};
    return {block->data, block, &CountingAllocator::free, at::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
  static inline int64_t alive = 0, peak = 0;

 private:
  struct Block {
    void* data;
    size_t bytes;
  };
  static void free(void* pointer) {
    auto* block = static_cast<Block*>(pointer);
    alive -= int64_t(block->bytes);
    c10::free_cpu(block->data);
    delete block;
  }
};

// 4 Mi bytes of logits for all 1024 tokens; a chunk of a quarter, a gradient of the weight, and a
// few tensors of tokens x hidden are what it may take.
TEST(GptHead, NeverHoldsMoreLogitsThanAChunk) {
  static CountingAllocator counting;
  auto config = small_config();
  config.vocabulary = 1024;
  config.cross_entropy_splits = 4;
  Rig rig(config, 512);
  const std::set<std::string> weight{rig.weight_name()};
  const auto peak = [&](const RunOptions& options) {
    c10::Allocator* const before = c10::GetCPUAllocator();
    c10::SetCPUAllocator(&counting, 255);
    const int64_t alive = CountingAllocator::alive;
    CountingAllocator::peak = alive;
    rig.run(options);
    c10::SetCPUAllocator(before, 255);
    return CountingAllocator::peak - alive;
  };
  const int64_t chunk = 256 * 1024 * 4, d_weight = 1024 * 24 * 4, states = 1024 * 24 * 4;
  // The harness itself makes the gradients and d_input.
  EXPECT_LT(peak({}), chunk + 2 * d_weight + 5 * states);
  EXPECT_LT(peak({.frozen = weight}), chunk + 5 * states);
}

}  // namespace
}  // namespace fastllm::gpt
