// The logits of all tokens would be the largest tensor of a step. They exist for one chunk of tokens
// at a time: product, losses, their gradient in place, and its two products while it is in cache.
// That needs the gradient of the losses before anyone gave one: it is taken as 1, and backward
// scales what was made. Where the gradient of all logits is smaller than a second gradient of the
// weight (few tokens), it is kept instead.
#include "layers/head.hpp"

#include <ATen/ops/mul.h>

#include <algorithm>

#include "layers/embedding.hpp"
#include "layers/product.hpp"

namespace fastllm::gpt {
namespace {

// Of a chunk's logits: within the last cache, and enough rows for products at full speed. Measured
// with one thread (2048 tokens, hidden 384, vocabulary 8192): 256 and 1024 rows take 3 % longer than
// 350 to 500, all rows at once 5 %; with a vocabulary of 49,152, 128 rows 2 % and 64 15 % more than
// 256.
constexpr int64_t kChunkBytes = int64_t{12} << 20;
constexpr int64_t kLeastRows = 256;

struct HeadSaved : sdk::Saved {
  at::Tensor x, labels;  // the host's inputs, x in its type
  NormSaved norm;
  // Of losses with gradient 1 each: the first two, or those of the last two that are needed.
  at::Tensor normed, d_logits;
  at::Tensor d_weight, d_normed;
};

// Declared so; what is bound may freeze more.
bool frozen_below(const GptConfig& c) {
  const bool experts = c.experts == 1 || c.router_scale == 0;
  const bool mlp = std::ranges::all_of(c.mlp_scales, [](double scale) { return scale == 0; });
  const bool blocks = c.attention_scale == 0 && mlp && experts;
  return c.embeddings_scale == 0 && c.norm_scale == 0 && (c.layers == 0 || blocks);
}

std::string numbered(const std::string& name, int64_t distance) {
  return distance == 1 ? name : name + "_" + std::to_string(distance - 1);
}

}  // namespace

Head::Head(const GptConfig& config, const std::string& prefix, int64_t distance,
           const std::string& input, const std::string& weights)
    : config_(config),
      vocabulary_(config.vocabulary),
      distance_(distance),
      input_(input),
      coefficient_(config.prediction_coefficient(distance)),
      weight_(parameters.add(config.tied
                                 ? word_embeddings(config)
                                 : vocabulary_weight(config, weights, config.output_scale))),
      norm_(parameters, config, prefix + ".final_norm") {}

void Head::describe_ports(const sdk::Sink& sink) const {
  auto hidden = hidden_port(config_.hidden, config_.full_precision_residual);
  hidden.name = input_;
  sink.input(hidden);
  sink.input(batch_port(distance_ == 1 ? "labels" : "labels_" + std::to_string(distance_)));
  const auto loss = [&](const std::string& name) {
    sink.output({.name = numbered(name, distance_),
                 .shape = {},
                 .flags = FASTLLM_PORT_LOSS | FASTLLM_PORT_SUM,
                 .dtype = sdk::kFloat32});
  };
  loss("language_model_loss");
  if (has_z_loss()) loss("logit_z_loss");
  sink.output({.name = "logits",
               .shape = {FASTLLM_DIM_BATCH, FASTLLM_DIM_SEQUENCE, config_.vocabulary},
               .flags = FASTLLM_PORT_NO_GRAD | FASTLLM_PORT_OPTIONAL});
}

void Head::join(const Parallel& parallel) {
  Layer::join(parallel);
  vocabulary_ = config_.vocabulary;
  if (config_.parallel_embeddings) vocabulary_ /= parallel.tensor.count();
}

at::Tensor Head::inside(const TensorRegion& region, const at::Tensor& normed) const {
  return divided() ? region.enter(normed) : normed;
}

at::Tensor Head::labels_inside(const TensorRegion& region, const at::Tensor& labels) const {
  return divided() || !region.split() ? labels : parallel().tensor.own_rows(labels.reshape({-1}));
}

void Head::spread_logits(const TensorRegion& region, const at::Tensor& own,
                         const at::Tensor& all) const {
  const at::Tensor gathered = parallel().tensor.gathered(own);
  at::Tensor out = all;
  if (!divided()) {
    out.copy_(region.split() ? gathered : own);
    return;
  }
  const int64_t ranks = parallel().tensor.count();
  out.view({-1, ranks, vocabulary_}).copy_(gathered.view({ranks, -1, vocabulary_}).transpose(0, 1));
}

int64_t Head::chunk(int64_t tokens) const {
  const int64_t automatic =
      std::max(kChunkBytes / (vocabulary_ * int64_t{sizeof(float)}), kLeastRows);
  const int64_t chunks = config_.cross_entropy_splits > 0 ? config_.cross_entropy_splits
                                                          : (tokens + automatic - 1) / automatic;
  return std::max<int64_t>((tokens + chunks - 1) / chunks, 1);  // of equal length
}

LossSums Head::losses(const at::Tensor& logits, const int64_t* labels, const LossFactors& factors,
                      const at::Tensor& gradient) const {
  float* const to = gradient.defined() ? gradient.mutable_data_ptr<float>() : nullptr;
  const float* const from = logits.const_data_ptr<float>();
  const int64_t rows = logits.size(0);
  if (!divided()) return cross_entropy(from, labels, rows, vocabulary_, factors, to);
  const RankGroup& ranks = parallel().tensor;
  const OwnColumns own{rows, vocabulary_, vocabulary_ * ranks.rank()};
  const at::Tensor maximum = empty({rows}), sums = empty({rows, 2});
  row_maxima(from, own, maximum.mutable_data_ptr<float>());
  ranks.maximum(maximum);
  row_sums(from, labels, own, maximum.const_data_ptr<float>(), to, sums.mutable_data_ptr<float>());
  ranks.sum(sums);
  return cross_entropy_of_sums(labels, own, maximum.const_data_ptr<float>(),
                               sums.const_data_ptr<float>(), factors, to);
}

LossSums Head::walk(const at::Tensor& normed, const at::Tensor& labels, const LossFactors& factors,
                    const Walk& wanted) const {
  const int64_t tokens = normed.size(0), rows = chunk(tokens);
  const at::Tensor& weight = parameters[weight_];
  // Logits and their gradient share memory, unless the host wants to see the logits.
  const at::Tensor scratch =
      wanted.d_logits.defined() || (wanted.logits.defined() && !wanted.gradient())
          ? at::Tensor()
          : empty({std::min(rows, tokens), vocabulary_});
  LossSums sums;
  for (int64_t begin = 0; begin < tokens; begin += rows) {
    const int64_t count = std::min(rows, tokens - begin);
    const at::Tensor x = normed.narrow(0, begin, count);
    const at::Tensor gradient = wanted.d_logits.defined() ? wanted.d_logits.narrow(0, begin, count)
                                : scratch.defined()       ? scratch.narrow(0, 0, count)
                                                          : at::Tensor();
    at::Tensor logits = wanted.logits.defined() ? wanted.logits.narrow(0, begin, count) : gradient;
    product(x, weight.t(), false, logits, config_.logits_scale);
    const LossSums some = losses(logits, labels.const_data_ptr<int64_t>() + begin, factors,
                                 wanted.gradient() ? gradient : at::Tensor());
    sums.cross_entropy += some.cross_entropy;
    sums.z += some.z;
    if (wanted.d_normed.defined()) {
      product(gradient, weight, false, wanted.d_normed.narrow(0, begin, count));
    }
    if (wanted.d_weight.defined()) {
      product(gradient.t(), x, begin > 0, wanted.d_weight);
    }
  }
  return sums;
}

LossFactors Head::factors(double cross_entropy, double z) const {
  return {.cross_entropy = coefficient_ * cross_entropy, .z = config_.z_loss * z};
}

sdk::SavedPointer Head::forward(const sdk::Call& call, const Tensors& inputs,
                                const Tensors& outputs) {
  check_indices(inputs[1], distance_ == 1 ? "labels" : "labels_" + std::to_string(distance_),
                config_.vocabulary, "vocab_size", kNoLabel);
  const at::Tensor x = in_float32(flat(inputs[0])), normed = empty_as(x);
  auto saved = call.save() ? std::make_unique<HeadSaved>() : nullptr;
  norm_.forward(x, normed, saved ? &saved->norm : nullptr);

  const TensorRegion region = tensor_region(call);
  const at::Tensor rows = inside(region, normed), labels = labels_inside(region, inputs[1]);
  const int64_t tokens = rows.size(0);
  Walk walked;
  const bool shows = outputs.back().defined();
  if (shows) walked.logits = region.divided() ? empty({tokens, vocabulary_}) : flat(outputs.back());
  if (saved) {
    saved->x = flat(inputs[0]);
    saved->labels = labels;
    const bool weight = parameters.trainable(weight_);
    if (weight && tokens <= config_.hidden) {
      saved->normed = rows;
      saved->d_logits = walked.d_logits = empty({tokens, vocabulary_});
    } else {
      if (weight) saved->d_weight = walked.d_weight = empty({vocabulary_, config_.hidden});
      if (norm_.trainable() || !frozen_below(config_))
        saved->d_normed = walked.d_normed = empty_as(rows);
    }
  }
  LossSums sums = walk(rows, labels, factors(1, 1), walked);
  if (shows && region.divided()) spread_logits(region, walked.logits, flat(outputs.back()));
  if (region.split() && !divided())
    sums = {parallel().tensor.sum(sums.cross_entropy), parallel().tensor.sum(sums.z)};
  *outputs[0].mutable_data_ptr<float>() = float(sums.cross_entropy);
  if (has_z_loss()) *outputs[1].mutable_data_ptr<float>() = float(sums.z);
  return saved;
}

void Head::backward(const sdk::Call& call, sdk::Saved& kept, const Tensors& d_outputs,
                    const Tensors& d_inputs) {
  auto& saved = static_cast<HeadSaved&>(kept);
  const Gradients gradients(parameters, call);
  const auto value = [](const at::Tensor& loss) {
    return loss.defined() ? double(*loss.const_data_ptr<float>()) : 0;
  };
  const double d_loss = value(d_outputs[0]), d_z = has_z_loss() ? value(d_outputs[1]) : d_loss;
  const bool need_x = d_inputs[0].defined();
  if (d_loss == 0 && d_z == 0) {
    if (need_x) d_inputs[0].zero_();
    gradients.none(weight_);
    norm_.no_gradient(gradients);
    return;
  }
  const TensorRegion region = tensor_region(call);
  const int64_t tokens = saved.labels.numel();
  const bool need_normed = need_x || norm_.trainable();
  double scale = d_loss * config_.logits_scale;
  const bool made = saved.d_logits.defined() || saved.d_normed.defined() || !need_normed;
  if (!made || d_loss != d_z) {
    // A host with other ideas: weights of its own for the losses, or a gradient below frozen parts.
    const at::Tensor normed = empty_as(saved.x);
    norm_.forward(in_float32(saved.x), normed, nullptr);
    saved.d_logits.reset();
    const at::Tensor rows = inside(region, normed);
    Walk walked;
    if (gradients.wanted(weight_))
      saved.d_weight = walked.d_weight = empty({vocabulary_, config_.hidden});
    if (need_normed) saved.d_normed = walked.d_normed = empty_as(rows);
    if (walked.gradient()) walk(rows, saved.labels, factors(d_loss, d_z), walked);
    scale = config_.logits_scale;
  }
  at::Tensor d_normed = saved.d_normed;
  if (saved.d_logits.defined()) {
    gradients.product(weight_, saved.d_logits, saved.normed, scale);
    if (need_normed) {
      d_normed = empty({tokens, config_.hidden});
      // By chunks, as with a frozen weight: to the same bits.
      const int64_t rows = chunk(tokens);
      for (int64_t begin = 0; begin < tokens; begin += rows) {
        const int64_t count = std::min(rows, tokens - begin);
        product(saved.d_logits.narrow(0, begin, count), parameters[weight_], false,
                d_normed.narrow(0, begin, count));
      }
    }
  } else {
    gradients.scaled(weight_, saved.d_weight, scale);
  }
  if (!need_normed) return;
  if (divided()) {
    const at::Tensor outside = region.split() ? empty_as(saved.x) : d_normed;
    region.leave(d_normed, outside);
    d_normed = outside;
  }
  d_normed.mul_(scale);
  norm_.backward(gradients, in_float32(saved.x), saved.norm, d_normed, {},
                 need_x ? flat(d_inputs[0]) : at::Tensor());
}

sdk::Flops Head::flops(int64_t batch, int64_t sequence) const {
  return {.forward = 2 * double(batch) * double(sequence) * double(config_.hidden) *
                     double(config_.vocabulary)};
}

}  // namespace fastllm::gpt
