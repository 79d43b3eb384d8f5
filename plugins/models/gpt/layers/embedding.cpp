// Rows of two tables, added. The gradient of a table is a sum over tokens in their order
// (kernels/embedding.hpp).
#include "layers/embedding.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>

#include "layers/dropout.hpp"

namespace fastllm::gpt {
namespace {

struct EmbeddingSaved : sdk::Saved {
  at::Tensor tokens, positions;  // the host's inputs
  Dropout dropout;
};

}  // namespace

sdk::Parameter vocabulary_weight(const GptConfig& config, const std::string& name,
                                 double lr_scale) {
  auto parameter =
      weight(name, {config.vocabulary, config.hidden}, config.init_embedding, lr_scale);
  parameter.flags = FASTLLM_PARAM_PARTIAL;
  if (config.parallel_embeddings) {
    parameter.shard_group = "tensor";
    parameter.flags |= FASTLLM_PARAM_WHOLE_AT_ONE;
  }
  return parameter;
}

sdk::Parameter word_embeddings(const GptConfig& config) {
  return vocabulary_weight(config, "layers.0.word_embeddings_weight", config.embeddings_scale);
}

Embedding::Embedding(const GptConfig& config) : config_(config) {
  words_ = parameters.add(word_embeddings(config));
  if (config.absolute_positions) {
    auto table = weight("layers.0.position_embeddings_weight", {config.positions, config.hidden},
                        config.init_embedding, config.embeddings_scale);
    // With a divided vocabulary every tensor rank sees all tokens here, so its gradient is whole.
    if (!config.parallel_embeddings) table.flags = FASTLLM_PARAM_PARTIAL;
    positions_ = parameters.add(std::move(table));
  }
}

void Embedding::describe_ports(const sdk::Sink& sink) const {
  sink.input(batch_port("tokens"));
  if (positions_ >= 0) sink.input(batch_port("positions"));
  sink.output(hidden_port(config_.hidden, config_.full_precision_residual));
}

sdk::SavedPointer Embedding::forward(const sdk::Call& call, const Tensors& inputs,
                                     const Tensors& outputs) {
  const TensorRegion region = tensor_region(call);
  const at::Tensor y = flat(outputs[0]);
  std::vector<at::Tensor> used;  // rows of a 16-bit table that become float32, not the whole of it
  const auto rows = [&](int table, const at::Tensor& indices) {
    const at::Tensor& stored = parameters.stored(table);
    if (stored.scalar_type() == at::kFloat)
      return TableRows{stored.const_data_ptr<float>(), indices.const_data_ptr<int64_t>()};
    used.push_back(widened(at::index_select(stored, 0, indices.reshape({-1}))));
    used.push_back(at::arange(indices.numel()));
    return TableRows{used[used.size() - 2].const_data_ptr<float>(),
                     used.back().const_data_ptr<int64_t>()};
  };
  check_indices(inputs[0], "tokens", config_.vocabulary, "vocab_size", 0);
  TableRows positions{};
  if (positions_ >= 0) {
    check_indices(inputs[1], "positions", config_.positions, "max_position_embeddings", 0);
    positions = rows(positions_, outside(region, inputs[1]));
  }
  const Dropout dropout = hidden_dropout(config_.hidden_dropout, call, RandomUse::kEmbedding,
                                         sample_part(call), config_.hidden);
  TableRows words{};
  if (divided_vocabulary()) {
    const at::Tensor parts = region.parts(y);
    gather_rows(own_words(inputs[0]), {}, parts.size(0), config_.hidden, {},
                parts.mutable_data_ptr<float>());
    region.leave(parts, y);
    used.push_back(at::arange(y.size(0)));
    words = {y.const_data_ptr<float>(), used.back().const_data_ptr<int64_t>()};
  } else {
    words = rows(words_, outside(region, inputs[0]));
  }
  gather_rows(words, positions, y.size(0), config_.hidden,
              dropout.from(region.first_token(y.size(0)) * config_.hidden),
              y.mutable_data_ptr<float>());
  if (!call.save()) return nullptr;
  auto saved = std::make_unique<EmbeddingSaved>();
  saved->tokens = inputs[0];
  if (positions_ >= 0) saved->positions = inputs[1];
  saved->dropout = dropout;
  return saved;
}

bool Embedding::divided_vocabulary() const {
  return config_.parallel_embeddings && !parallel().tensor.alone();
}

// Of all tokens: rows of words that this rank has.
TableRows Embedding::own_words(const at::Tensor& tokens) const {
  const at::Tensor& table = parameters[words_];
  const int64_t held = table.size(0);
  return {table.const_data_ptr<float>(), tokens.const_data_ptr<int64_t>(),
          held * parallel().tensor.rank(), held};
}

at::Tensor Embedding::outside(const TensorRegion& region, const at::Tensor& indices) const {
  return region.split() ? parallel().tensor.own_rows(indices.reshape({-1})) : indices;
}

void Embedding::backward(const sdk::Call& call, sdk::Saved& kept, const Tensors& d_outputs,
                         const Tensors&) {
  const auto& saved = static_cast<const EmbeddingSaved&>(kept);
  const Gradients gradients(parameters, call);
  const TensorRegion region = tensor_region(call);
  // With a divided vocabulary all tokens come together, else each rank adds for its own.
  const bool divided = divided_vocabulary();
  at::Tensor dy;
  if (d_outputs[0].defined() && (gradients.wanted(words_) || gradients.wanted(positions_)))
    dy = divided ? region.enter(flat(d_outputs[0])) : flat(d_outputs[0]);
  const Dropout dropout = divided || !dy.defined()
                              ? saved.dropout
                              : saved.dropout.from(region.first_token(dy.size(0)) * config_.hidden);
  const auto add = [&](int table, const at::Tensor& all, int64_t first, int64_t held) {
    gradients.none(table);  // zeros first where it is to be written: most rows get nothing
    if (!dy.defined() || !gradients.wanted(table)) return;
    const at::Tensor indices = divided ? all : outside(region, all);
    scatter_rows(dy.const_data_ptr<float>(), indices.const_data_ptr<int64_t>(), dy.size(0),
                 config_.hidden, dropout, gradients[table].mutable_data_ptr<float>(), first, held);
  };
  const int64_t words = parameters.stored(words_).size(0);
  add(words_, saved.tokens, divided ? words * parallel().tensor.rank() : 0, words);
  if (positions_ >= 0) add(positions_, saved.positions, 0, config_.positions);
}

}  // namespace fastllm::gpt
