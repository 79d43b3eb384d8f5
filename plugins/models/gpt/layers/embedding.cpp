// Rows of two tables, added. The gradient of a table is a sum over tokens in their order
// (kernels/embedding.hpp).
#include "layers/embedding.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/index_select.h>

#include "kernels/embedding.hpp"
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
  TableRows words = rows(words_, inputs[0]), positions{};
  if (positions_ >= 0) {
    check_indices(inputs[1], "positions", config_.positions, "max_position_embeddings", 0);
    positions = rows(positions_, inputs[1]);
  }
  const Dropout dropout = hidden_dropout(config_.hidden_dropout, call, RandomUse::kEmbedding);
  gather_rows(words, positions, inputs[0].numel(), config_.hidden, dropout,
              outputs[0].mutable_data_ptr<float>());
  if (!call.save()) return nullptr;
  auto saved = std::make_unique<EmbeddingSaved>();
  saved->tokens = inputs[0];
  if (positions_ >= 0) saved->positions = inputs[1];
  saved->dropout = dropout;
  return saved;
}

void Embedding::backward(const sdk::Call& call, sdk::Saved& kept, const Tensors& d_outputs,
                         const Tensors&) {
  const auto& saved = static_cast<const EmbeddingSaved&>(kept);
  const Gradients gradients(parameters, call);
  const auto add = [&](int table, const at::Tensor& indices) {
    gradients.none(table);  // zeros first where it is to be written: most rows get nothing
    if (!d_outputs[0].defined() || !gradients.wanted(table)) return;
    scatter_rows(d_outputs[0].const_data_ptr<float>(), indices.const_data_ptr<int64_t>(),
                 indices.numel(), config_.hidden, saved.dropout,
                 gradients[table].mutable_data_ptr<float>());
  };
  add(words_, saved.tokens);
  if (positions_ >= 0) add(positions_, saved.positions);
}

}  // namespace fastllm::gpt
