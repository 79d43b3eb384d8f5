// From the calls of the C table to layers: views of the host's tensors in, and nothing copied in
// float32. Layers compute in float32 alone: in a 16-bit training type weights and gradients are
// widened before the call and outputs rounded after it, so a value is rounded once on its way
// from layer to layer; hidden states a layer widens itself, and keeps only as the host has them. Every call runs without autograd: layers write their own gradients.
#include "model.hpp"

#include "fields.hpp"
#include "layers/block.hpp"
#include "layers/embedding.hpp"
#include "layers/head.hpp"

namespace fastllm::gpt {
namespace {

Tensors views(const DLTensor* const* tensors, int count) {
  Tensors result;
  result.reserve(size_t(count));
  for (int i = 0; i < count; ++i)
    result.push_back(sdk::view_or_undefined(tensors ? tensors[i] : nullptr));
  return result;
}

bool narrow(const at::Tensor& tensor) { return tensor.defined() && is_narrow(tensor); }

Tensors all_widened(Tensors tensors) {
  for (at::Tensor& tensor : tensors)
    if (narrow(tensor)) tensor = widened(tensor);
  return tensors;
}

// What a layer writes: the host's tensors, or float32 ones in place of those of 16 bits.
class Written {
 public:
  explicit Written(Tensors host) : host_(std::move(host)), wide_(host_) {
    for (at::Tensor& tensor : wide_)
      if (narrow(tensor)) tensor = empty_as(tensor);
  }
  const Tensors& tensors() const { return wide_; }
  void round() {
    for (size_t i = 0; i < host_.size(); ++i)
      if (narrow(host_[i])) host_[i].copy_(wide_[i]);
  }

 private:
  Tensors host_, wide_;
};

// Copies of 16-bit parameters live as long as a call, also when it fails.
class CopiesOfCall {
 public:
  explicit CopiesOfCall(Parameters& parameters) : parameters_(parameters) {}
  ~CopiesOfCall() { parameters_.drop_copies(); }

 private:
  Parameters& parameters_;
};

std::string layer_name(size_t index) { return "layers." + std::to_string(index); }

}  // namespace

void GptModel::fields(const sdk::Sink& sink) { declare_fields(sink); }

// With several predictions the trunk ends before the last block: that block and one more for each
// further head read its output, "hidden", and give each head hidden states of its own.
GptModel::GptModel(const GptConfig& config) : rotary_(config) {
  const bool several = config.prediction_heads > 1;
  const char* const own = several ? "head_hidden" : "hidden";
  layers_.push_back(std::make_unique<Embedding>(config));
  int64_t blocks = 0;
  const auto add_block = [&](const char* output) {
    layers_.push_back(
        std::make_unique<Block>(config, layer_name(layers_.size()), ++blocks, rotary_, output));
  };
  for (int64_t i = 1; i <= config.layers; ++i) add_block(i == config.layers ? own : "hidden");
  const std::string weights = layer_name(layers_.size()) + ".output_weights";
  for (int64_t distance = 1; distance <= config.prediction_heads; ++distance) {
    if (distance > 1) add_block(own);
    layers_.push_back(std::make_unique<Head>(config, layer_name(layers_.size()), distance,
                                             config.layers == 0 && distance == 1 ? "hidden" : own,
                                             weights));
  }
}

void GptModel::describe(const sdk::Sink& sink) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    sink.layer(layer_name(i), layers_[i]->cost());
    layers_[i]->describe_ports(sink);
    layers_[i]->parameters.describe(sink);
  }
}

Layer& GptModel::layer(int index) const {
  if (index < 0 || size_t(index) >= layers_.size()) {
    sdk::fail(FASTLLM_INTERNAL, "expected a layer below " + std::to_string(layers_.size()) +
                                    ", found " + std::to_string(index));
  }
  return *layers_[size_t(index)];
}

void GptModel::bind(int index, const DLTensor* const* weights, DLTensor* const* gradients) {
  const sdk::ComputeGuard guard;
  parallel_.meet();
  Layer& l = layer(index);
  l.join(parallel_);
  l.parameters.bind(weights, gradients, parallel_.tensor.count());
}

sdk::SavedPointer GptModel::forward(int index, const sdk::Call& call, const DLTensor* const* inputs,
                                    DLTensor* const* outputs) {
  const sdk::ComputeGuard guard;
  Layer& l = layer(index);
  const CopiesOfCall copies(l.parameters);
  Written written(views(outputs, l.outputs()));
  auto saved = l.forward(call, views(inputs, l.inputs()), written.tensors());
  written.round();
  return saved;
}

void GptModel::backward(int index, const sdk::Call& call, sdk::SavedPointer saved,
                        const DLTensor* const* d_outputs, DLTensor* const* d_inputs) {
  const sdk::ComputeGuard guard;
  Layer& l = layer(index);
  const CopiesOfCall copies(l.parameters);
  Written written(views(d_inputs, l.inputs()));
  l.parameters.open_gradients(call);
  l.backward(call, *saved, all_widened(views(d_outputs, l.outputs())), written.tensors());
  l.parameters.close_gradients();
  written.round();
}

sdk::Flops GptModel::flops(int index, int64_t batch, int64_t sequence) const {
  return layer(index).flops(batch, sequence);
}

}  // namespace fastllm::gpt
