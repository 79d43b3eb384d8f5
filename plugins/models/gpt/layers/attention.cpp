// Projections around the causal attention, and which of them are divided over tensor ranks.
// key_value holds the keys of all groups, then their values; rotary embedding turns queries and
// keys where they lie.
#include "layers/attention.hpp"

namespace fastllm::gpt {
namespace {

// Heads are divided over "tensor": whole groups, or the heads of the only group.
void divide_heads(sdk::Parameter& parameter, const GptConfig& config, int dim) {
  parameter.shard_group = "tensor";
  parameter.shard_dim = dim;
  parameter.shard_unit = config.head_width * (config.groups > 1 ? config.heads / config.groups : 1);
}
void divide_groups(sdk::Parameter& parameter, const GptConfig& config) {
  if (config.groups == 1) {  // each rank has the gradient of its queries' part
    parameter.flags |= FASTLLM_PARAM_PARTIAL | FASTLLM_PARAM_PARTIAL_ALWAYS;
    return;
  }
  parameter.shard_group = "tensor";
  parameter.shard_blocks = 2;  // keys, values
  parameter.shard_unit = config.head_width;
}

Linear make_query(Parameters& parameters, const GptConfig& c, const std::string& prefix) {
  auto matrix =
      weight(prefix + ".weight", {c.query_width(), c.hidden}, c.init_qkv, c.attention_scale);
  divide_heads(matrix, c, 0);
  std::optional<sdk::Parameter> offset;
  if (c.bias_qkv) {
    offset = bias(prefix + ".bias", c.query_width(), c.init_qkv, c.random_bias, c.attention_scale);
    divide_heads(*offset, c, 0);
  }
  return Linear(parameters, std::move(matrix), std::move(offset));
}
Linear make_key_value(Parameters& parameters, const GptConfig& c, const std::string& prefix) {
  auto matrix =
      weight(prefix + ".weight", {c.key_value_width(), c.hidden}, c.init_qkv, c.attention_scale);
  divide_groups(matrix, c);
  std::optional<sdk::Parameter> offset;
  if (c.bias_qkv) {
    offset =
        bias(prefix + ".bias", c.key_value_width(), c.init_qkv, c.random_bias, c.attention_scale);
    divide_groups(*offset, c);
  }
  return Linear(parameters, std::move(matrix), std::move(offset));
}
Linear make_dense(Parameters& parameters, const GptConfig& c, const std::string& prefix) {
  auto matrix = weight(prefix + ".weight", {c.hidden, c.query_width()}, c.init_attention_output,
                       c.attention_scale);
  divide_heads(matrix, c, 1);
  std::optional<sdk::Parameter> offset;
  if (c.bias_dense) {
    offset =
        bias(prefix + ".bias", c.hidden, c.init_attention_output, c.random_bias, c.attention_scale);
    offset->flags |= FASTLLM_PARAM_PARTIAL;
  }
  return Linear(parameters, std::move(matrix), std::move(offset));
}

std::optional<HeadNorm> make_norm(Parameters& parameters, const GptConfig& c,
                                  const std::string& name, int64_t heads) {
  if (!c.query_key_norm) return std::nullopt;
  return std::optional<HeadNorm>(std::in_place, parameters, c, name, heads);
}

}  // namespace

Attention::Attention(Parameters& parameters, const GptConfig& config, const std::string& prefix,
                     int64_t window, Rotary& rotary)
    : whole_heads_(config.heads),
      whole_groups_(config.groups),
      shape_{config.heads, config.groups, config.head_width, config.softmax_scale, window},
      rotary_(rotary),
      query_(make_query(parameters, config, prefix + ".query")),
      key_value_(make_key_value(parameters, config, prefix + ".key_value")),
      query_norm_(make_norm(parameters, config, prefix + ".query_norm", config.heads)),
      key_norm_(make_norm(parameters, config, prefix + ".key_norm", config.groups)),
      dense_(make_dense(parameters, config, prefix + ".dense")) {}

void Attention::join(const Parallel& parallel) {
  const RankGroup& tensor = parallel.tensor;
  sequence_data_ = &parallel.sequence_data;
  shape_.heads = whole_heads_ / tensor.count();
  shape_.groups = whole_groups_ == 1 ? 1 : whole_groups_ / tensor.count();
  first_head_ = shape_.heads * tensor.rank();
  if (query_norm_) query_norm_->set_heads(shape_.heads);
  if (key_norm_) key_norm_->set_heads(shape_.groups);
}

bool Attention::input_trainable() const {
  const auto norm = [](const std::optional<HeadNorm>& n) { return n && n->trainable(); };
  return query_.trainable() || key_value_.trainable() || norm(query_norm_) || norm(key_norm_);
}

void Attention::rotate(const AttentionContext& context, const at::Tensor& query,
                       const at::Tensor& key_value, bool backward) {
  if (!rotary_.enabled()) return;
  rotary_.apply(query, shape_.heads, context.positions, context.length, backward);
  // The keys come first in a row.
  rotary_.apply(key_value, shape_.groups, context.positions, context.length, backward);
}

// A gather for each sample: its tokens then come in order, with nothing to copy.
at::Tensor Attention::of_samples(const SamplePart& part, const at::Tensor& key_value) const {
  if (part.all()) return key_value;
  const int64_t samples = key_value.size(0) / part.length;
  const at::Tensor all = empty({samples * part.tokens, key_value.size(1)});
  for (int64_t i = 0; i < samples; ++i)
    sequence_data_->gather(key_value.narrow(0, i * part.length, part.length),
                           all.narrow(0, i * part.tokens, part.tokens));
  return all;
}

at::Tensor Attention::of_tokens(const SamplePart& part, const at::Tensor& d_key_value) const {
  if (part.all()) return d_key_value;
  const int64_t samples = d_key_value.size(0) / part.tokens;
  const at::Tensor own = empty({samples * part.length, d_key_value.size(1)});
  for (int64_t i = 0; i < samples; ++i)
    sequence_data_->scatter_sum(d_key_value.narrow(0, i * part.tokens, part.tokens),
                                own.narrow(0, i * part.length, part.length));
  return own;
}

void Attention::forward(const TensorRegion& region, const AttentionContext& outer,
                        const at::Tensor& x, const at::Tensor& residual, const Dropout& dropout,
                        const at::Tensor& y, AttentionSaved* saved) {
  const at::Tensor all = region.enter(x);
  const int64_t tokens = all.size(0);
  const at::Tensor query = empty({tokens, shape_.heads * shape_.head_width});
  at::Tensor key_value = empty({tokens, 2 * shape_.groups * shape_.head_width});
  query_.forward(all, query);
  key_value_.forward(all, key_value);
  HeadNormSaved query_norm, key_norm;
  if (query_norm_) query_norm_->forward(query, saved ? &query_norm : nullptr);
  if (key_norm_) key_norm_->forward(key_value, saved ? &key_norm : nullptr);
  rotate(outer, query, key_value, false);
  key_value = of_samples(outer.part, key_value);
  const int64_t keys = key_value.size(0);
  AttentionContext context = outer;
  context.dropout = outer.dropout.from(first_head_ * keys * keys);
  const at::Tensor out = empty_as(query);
  const at::Tensor softmax = attention_forward(shape_, context.ranges, context.part,
                                               context.dropout, query, key_value, out);
  dense_.forward_add(region, out, residual, dropout, y);
  if (!saved) return;
  *saved = {.context = context,
            .input = query_.weight_trainable() || key_value_.weight_trainable() ? x : at::Tensor(),
            .query_norm = std::move(query_norm),
            .key_norm = std::move(key_norm),
            .query = query,
            .key_value = key_value,
            .out = dense_.weight_trainable() ? out : at::Tensor(),
            .softmax = softmax,
            .dropout = dropout};
}

void Attention::backward(const TensorRegion& region, const Gradients& gradients,
                         const AttentionSaved& saved, const at::Tensor& dy, const at::Tensor& dx) {
  const at::Tensor d_outside = branch_gradient(saved.dropout, dy);
  dense_.backward_bias(gradients, d_outside);
  const bool below = dx.defined() || input_trainable();
  if (!below && !dense_.weight_trainable()) return;
  const at::Tensor d_branch = region.enter(d_outside);
  dense_.backward_weight(gradients, d_branch, saved.out);
  if (!below) return;
  const at::Tensor d_out = empty_as(saved.query), d_query = empty_as(saved.query);
  at::Tensor d_key_value = empty_as(saved.key_value);
  dense_.backward_input(d_branch, d_out);
  attention_backward(shape_, saved.context.ranges, saved.context.part, saved.context.dropout,
                     saved.query, saved.key_value, saved.softmax, d_out, d_query, d_key_value);
  d_key_value = of_tokens(saved.context.part, d_key_value);
  rotate(saved.context, d_query, d_key_value, true);
  if (query_norm_) query_norm_->backward(gradients, saved.query_norm, d_query);
  if (key_norm_) key_norm_->backward(gradients, saved.key_norm, d_key_value);
  const at::Tensor input = saved.input.defined() ? region.enter(saved.input) : saved.input;
  query_.backward_parameters(gradients, d_query, input);
  key_value_.backward_parameters(gradients, d_key_value, input);
  if (!dx.defined()) return;
  const at::Tensor parts = region.parts(dx);
  query_.backward_input(d_query, parts);
  key_value_.backward_input(d_key_value, parts, true);
  region.leave(parts, dx);
}

void Attention::no_gradient(const Gradients& gradients) const {
  query_.no_gradient(gradients);
  key_value_.no_gradient(gradients);
  if (query_norm_) query_norm_->no_gradient(gradients);
  if (key_norm_) key_norm_->no_gradient(gradients);
  dense_.no_gradient(gradients);
}

}  // namespace fastllm::gpt
