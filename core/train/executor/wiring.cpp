// Names to numbers, readers, and the two walks that decide which layers run backward:
// upwards from trainable parameters, downwards from losses. A layer needs both.
#include "core/train/executor/wiring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/base/error.hpp"
#include "core/base/tensor.hpp"
#include "core/train/metrics/metrics.hpp"

namespace fastllm::train {
namespace {

bool is_type(const DLDataType& t, int code, int bits) {
  return t.code == code && t.bits == bits && t.lanes == 1;
}
constexpr const char* kNames[kFurtherLabels] = {"tokens", "labels", "positions", "documents",
                                                "cu_seqlens"};
constexpr int kMostPredictedTokens = 64;  // each is a copy of the labels

// 2 from "labels_2"; 0: no such name.
int further_label(const std::string& name) {
  for (int k = 2; k <= kMostPredictedTokens; ++k)
    if (name == fmt::format("labels_{}", k)) return k;
  return 0;
}
// Of the labels that an entry holds; 0: others.
int predicted_by(int entry) {
  return entry == kLabels ? 1 : entry >= kFurtherLabels ? entry - kFurtherLabels + 2 : 0;
}

// bits 0 stands for the compute type; of a loss or metric, for float32.
bool is_scalar_type(const DLDataType& t) { return t.bits == 0 || is_float32(t); }
bool takes_gradient_type(const DLDataType& t) { return t.bits == 0 || is_compute_dtype(t); }

int batch_entry(const model::Layer& layer, const model::Port& port) {
  const auto found = std::find(std::begin(kNames), std::end(kNames), port.name);
  const int further = further_label(port.name);
  if (found == std::end(kNames) && !further)
    throw Error(Status::kUnsupported,
                fmt::format("layer {}: expected batch entries among {}, labels_2 .. labels_{}, "
                            "found {}, which this host cannot deliver",
                            layer.name, fmt::join(kNames, ", "), kMostPredictedTokens, port.name));
  const int entry = further ? kFurtherLabels + further - 2 : int(found - std::begin(kNames));
  const bool flat = entry == kCuSeqlens;
  const std::vector<int64_t> shape =
      flat ? std::vector<int64_t>{FASTLLM_DIM_ANY}
           : std::vector<int64_t>{FASTLLM_DIM_BATCH, FASTLLM_DIM_SEQUENCE};
  if (!is_type(port.dtype, kDLInt, flat ? 32 : 64) || port.shape != shape)
    throw Error(
        Status::kInternal,
        fmt::format("layer {}: expected batch entry {} as {}, found another type or shape",
                    layer.name, port.name, flat ? "int32 [ANY]" : "int64 [BATCH, SEQUENCE]"));
  return entry;
}

int report(std::vector<Reported>& list, const std::vector<Reported>& others,
           const model::Layer& layer, const model::Port& port, int predicted) {
  if (is_common_metric(port.name))
    throw Error(
        Status::kInvalid,
        fmt::format("layer {}: expected losses and metrics with names of their own, found {}, "
                    "which the host's own numbers have; the plugin must name it otherwise",
                    layer.name, port.name));
  if (std::any_of(others.begin(), others.end(),
                  [&](const Reported& r) { return r.name == port.name; }))
    throw Error(
        Status::kInvalid,
        fmt::format("layer {}: expected one loss or one metric of a name, found both for {}; "
                    "the plugin must name one of them otherwise",
                    layer.name, port.name));
  const bool sum = port.flags & FASTLLM_PORT_SUM;
  auto found = std::find_if(list.begin(), list.end(),
                            [&](const Reported& r) { return r.name == port.name; });
  if (found == list.end()) found = list.insert(list.end(), Reported{port.name, sum, 0, predicted});
  if (found->sum != sum)
    throw Error(
        Status::kInternal,
        fmt::format(
            "layer {}: expected output {} to have or lack the flag PORT_SUM in all layers alike",
            layer.name, port.name));
  if (sum && found->predicted != predicted)
    throw Error(Status::kInternal,
                fmt::format("layer {}: expected output {} to be a sum over the same labels in all "
                            "layers, found labels {} and {} tokens away",
                            layer.name, port.name, found->predicted, predicted));
  ++found->layers;
  return int(found - list.begin());
}

void check_value_type(const model::Layer& layer, const model::Port& port) {
  const bool scalar = port.flags & (FASTLLM_PORT_LOSS | FASTLLM_PORT_METRIC);
  if (scalar && !is_scalar_type(port.dtype))
    throw Error(
        Status::kUnsupported,
        fmt::format("layer {}: expected losses and metrics in float32, found {} bits for {}",
                    layer.name, int(port.dtype.bits), port.name));
  if (!scalar && (port.dtype.bits % 8 || (port.dtype.bits && port.dtype.lanes != 1)))
    throw Error(
        Status::kUnsupported,
        fmt::format("layer {}: expected outputs of whole bytes and one lane, found {} with {} bits",
                    layer.name, port.name, int(port.dtype.bits)));
}

bool takes_gradient(const model::Port& port) {
  return !(port.flags & (FASTLLM_PORT_NO_GRAD | FASTLLM_PORT_BATCH));
}

}  // namespace

std::string batch_entry_name(int entry) {
  return entry < kFurtherLabels ? kNames[entry]
                                : fmt::format("labels_{}", entry - kFurtherLabels + 2);
}

int predicted_tokens(const model::Description& d) {
  int most = 1;
  for (const model::Layer& layer : d.layers)
    for (const model::Port& port : layer.inputs)
      if (port.flags & FASTLLM_PORT_BATCH)
        most = std::max(most, predicted_by(batch_entry(layer, port)));
  return most;
}

Wiring make_wiring(const model::Description& d) {
  Wiring w;
  const auto wires = model::wire(d);
  const int layers = int(d.layers.size());
  w.layers.resize(layers);

  for (int l = 0; l < layers; ++l) {
    const model::Layer& layer = d.layers[l];
    WiredLayer& own = w.layers[l];
    own.every_stage = layer.flags & FASTLLM_LAYER_EVERY_STAGE;
    own.first_value = int(w.values.size());
    own.values = int(layer.outputs.size());
    int predicted = 0;
    for (size_t i = 0; i < layer.inputs.size(); ++i) {
      Input input;
      if (wires[l][i].from_batch()) {
        input.entry = batch_entry(layer, layer.inputs[i]);
        predicted = std::max(predicted, predicted_by(input.entry));
      } else {
        input.value = w.layers[wires[l][i].layer].first_value + wires[l][i].output;
        ++w.values[input.value].readers;
      }
      own.inputs.push_back(input);
    }
    w.predicted_tokens = std::max(w.predicted_tokens, predicted);
    for (int o = 0; o < own.values; ++o) {
      const model::Port& port = layer.outputs[o];
      check_value_type(layer, port);
      Value value;
      value.layer = l;
      value.output = o;
      value.port = &port;
      value.name = layer.name + "." + port.name;
      if (port.flags & FASTLLM_PORT_LOSS)
        value.loss = report(w.losses, w.metrics, layer, port, std::max(predicted, 1));
      if (port.flags & FASTLLM_PORT_METRIC)
        value.metric = report(w.metrics, w.losses, layer, port, std::max(predicted, 1));
      w.values.push_back(std::move(value));
    }
  }
  for (Value& value : w.values)
    value.asked = value.readers > 0 || !(value.port->flags & FASTLLM_PORT_OPTIONAL);

  // Upwards: layers with a trainable parameter, or with an input that depends on one.
  std::vector<char> depends(layers, 0);
  for (int l = 0; l < layers; ++l) {
    for (int p : d.layers[l].parameters) depends[l] |= !d.parameters[p].frozen();
    for (size_t i = 0; i < w.layers[l].inputs.size(); ++i) {
      const int v = w.layers[l].inputs[i].value;
      depends[l] |= v >= 0 && takes_gradient(d.layers[l].inputs[i]) &&
                    takes_gradient(*w.values[v].port) && depends[w.values[v].layer];
    }
  }
  // Downwards: of those, layers that a loss depends on. Readers come after what they read.
  std::vector<int> gradients(w.values.size(), 0);  // how many readers give one
  for (int l = layers - 1; l >= 0; --l) {
    WiredLayer& own = w.layers[l];
    for (int v = own.first_value; v < own.first_value + own.values; ++v) {
      w.values[v].gradient = depends[l] && takes_gradient(*w.values[v].port) &&
                             (w.values[v].loss >= 0 || gradients[v] > 0);
      own.backward |= w.values[v].gradient;
    }
    if (!own.backward) continue;
    for (size_t i = 0; i < own.inputs.size(); ++i) {
      Input& input = own.inputs[i];
      if (input.value < 0) continue;
      const Value& source = w.values[input.value];
      input.gradient = takes_gradient(d.layers[l].inputs[i]) && takes_gradient(*source.port) &&
                       depends[source.layer];
      gradients[input.value] += input.gradient;
    }
  }
  for (size_t v = 0; v < w.values.size(); ++v)
    if (w.values[v].gradient && !takes_gradient_type(w.values[v].port->dtype))
      throw Error(Status::kUnsupported,
                  fmt::format("output {}: expected float32, bfloat16 or float16 where a gradient "
                              "flows, found {}; flag it PORT_NO_GRAD if none should",
                              w.values[v].name, dtype_text(w.values[v].port->dtype)));
  return w;
}

}  // namespace fastllm::train
