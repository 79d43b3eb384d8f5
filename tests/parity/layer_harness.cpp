// The smallest host that can run one layer. It is written against the layer classes, not the C
// table: tests/parity/transformers_parity.py covers the table.
#include "tests/parity/layer_harness.hpp"

#include <cmath>
#include <limits>

namespace fastllm::gpt::testing {
namespace {

// What a layer pushes, recorded.
struct Recorder {
  Declared declared;
  static Declared& of(fastllm_sink* sink) { return reinterpret_cast<Recorder*>(sink)->declared; }
};

fastllm_emit recording() {
  fastllm_emit emit{};
  emit.size = sizeof emit;
  emit.input = [](fastllm_sink*, const fastllm_port*) -> fastllm_status { return FASTLLM_OK; };
  emit.output = [](fastllm_sink* sink, const fastllm_port* port) -> fastllm_status {
    Recorder::of(sink).outputs.push_back({port->name,
                                          {port->shape, port->shape + port->ndim},
                                          (port->flags & FASTLLM_PORT_OPTIONAL) != 0});
    return FASTLLM_OK;
  };
  emit.param = [](fastllm_sink* sink, const fastllm_param* param) -> fastllm_status {
    Recorder::of(sink).parameters.emplace_back(
        param->name, std::vector<int64_t>(param->shape, param->shape + param->ndim));
    return FASTLLM_OK;
  };
  return emit;
}

at::Tensor not_a_number(at::IntArrayRef sizes) {
  return at::full(sizes, std::numeric_limits<double>::quiet_NaN(), at::kFloat);
}

std::vector<at::Tensor> make_outputs(const Declared& declared,
                                     const std::vector<at::Tensor>& inputs, bool logits) {
  std::vector<at::Tensor> outputs;
  for (const auto& output : declared.outputs) {
    auto shape = output.shape;
    for (auto& size : shape) {
      if (size == FASTLLM_DIM_BATCH) size = inputs[0].size(0);
      if (size == FASTLLM_DIM_SEQUENCE) size = inputs[0].size(1);
    }
    outputs.push_back(output.optional && !logits ? at::Tensor() : not_a_number(shape));
  }
  return outputs;
}

fastllm_call make_call(uint32_t flags, const std::vector<at::Tensor>& inputs,
                       const std::vector<uint8_t>& overwrite, const RunOptions& options) {
  fastllm_call call{};
  call.size = sizeof call;
  call.flags = flags | (options.evaluation ? FASTLLM_EVAL : 0);
  call.seed = options.seed;
  call.device = {kDLCPU, 0};
  call.length = inputs[0].size(1);
  call.overwrite = overwrite.data();
  return call;
}

void bind_layer(Layer& layer, const Named& weights, const Named& gradients) {
  std::vector<Lent> lent;
  std::vector<const DLTensor*> weight_pointers;
  std::vector<DLTensor*> gradient_pointers;
  const Declared names = declared(layer);
  lent.reserve(2 * names.parameters.size());
  for (const auto& [name, shape] : names.parameters) {
    weight_pointers.push_back(lent.emplace_back(weights.at(name)).get());
    const auto found = gradients.find(name);
    gradient_pointers.push_back(found == gradients.end() ? nullptr
                                                         : lent.emplace_back(found->second).get());
  }
  layer.parameters.bind(weight_pointers.data(), gradient_pointers.data());
}

}  // namespace

GptConfig small_config() {
  GptConfig c;
  c.layers = 2;
  c.hidden = 24;
  c.heads = 4;
  c.groups = 2;
  c.head_width = 6;
  c.ffn = 40;
  c.softmax_scale = std::pow(6.0, -0.5);
  c.vocabulary = 37;
  c.positions = 96;
  c.absolute_positions = false;
  c.router_scale = c.attention_scale = c.embeddings_scale = c.output_scale = c.norm_scale =
      std::nan("");
  return c;
}

Declared declared(const Layer& layer) {
  Recorder recorder;
  const fastllm_emit emit = recording();
  const sdk::Sink sink(&emit, reinterpret_cast<fastllm_sink*>(&recorder));
  layer.describe_ports(sink);
  layer.parameters.describe(sink);
  return recorder.declared;
}

Named random_weights(const Layer& layer) {
  Named weights;
  for (const auto& [name, shape] : declared(layer).parameters) {
    const bool norm_weight = shape.size() == 1 && name.ends_with(".weight");
    weights[name] =
        at::randn(shape, at::kFloat) * (shape.size() == 1 ? 0.2 : 0.15) + (norm_weight ? 1.0 : 0.0);
  }
  return weights;
}

RunResult run(Layer& layer, const Named& weights, const std::vector<at::Tensor>& inputs,
              const std::vector<at::Tensor>& d_outputs, const RunOptions& options) {
  const Declared names = declared(layer);
  RunResult result;
  for (const auto& [name, shape] : names.parameters) {
    if (options.frozen.contains(name)) continue;
    result.gradients[name] =
        options.overwrite ? not_a_number(shape) : at::full(shape, 0.5, at::kFloat);
  }
  const sdk::ComputeGuard guard;
  bind_layer(layer, weights, result.gradients);
  const std::vector<uint8_t> overwrite(names.parameters.size(), options.overwrite);
  const fastllm_call call = make_call(FASTLLM_SAVE, inputs, overwrite, options);
  result.outputs = make_outputs(names, inputs, options.logits);
  sdk::SavedPointer saved = layer.forward(sdk::Call(&call), inputs, result.outputs);

  std::vector<at::Tensor> d_inputs(inputs.size());
  if (options.input_gradient && inputs[0].is_floating_point()) {
    result.d_input = d_inputs[0] = not_a_number(inputs[0].sizes());
  }
  auto d_given = d_outputs;
  d_given.resize(result.outputs.size());  // those not given: null
  if (!options.output_gradient) d_given.assign(d_given.size(), {});
  layer.backward(sdk::Call(&call), *saved, d_given, d_inputs);
  return result;
}

std::vector<at::Tensor> run_forward(Layer& layer, const Named& weights,
                                    const std::vector<at::Tensor>& inputs, bool logits,
                                    const RunOptions& options) {
  const Declared names = declared(layer);
  const sdk::ComputeGuard guard;
  bind_layer(layer, weights, {});
  const std::vector<uint8_t> overwrite(names.parameters.size(), 0);
  const fastllm_call call = make_call(0, inputs, overwrite, options);
  auto outputs = make_outputs(names, inputs, logits);
  if (layer.forward(sdk::Call(&call), inputs, outputs))
    throw std::runtime_error("kept something without SAVE");
  return outputs;
}

double distance(const at::Tensor& actual, const at::Tensor& expected) {
  const auto wide = expected.detach().to(at::kDouble);
  const double norm = wide.norm().item<double>();
  return (actual.to(at::kDouble) - wide).norm().item<double>() / (norm > 0 ? norm : 1);
}

}  // namespace fastllm::gpt::testing
