// Checks of a model's description, and its fingerprint. A description comes from a plugin: nothing
// in it is trusted. What validate() lets pass, layout, store and executor rely on without looking
// again.
#include "core/model/description.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/tensor.hpp"

namespace fastllm::model {
namespace {

template <typename... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(Status::kInternal, fmt::format(format, std::forward<Args>(args)...));
}

// What docs/plugin-authors calls an identifier: safe in file names, logs and dotted paths.
bool is_identifier(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '/';
  });
}

void check_name(const char* what, const std::string& name, const std::string& where) {
  if (!is_identifier(name))
    refuse("expected letters, digits and any of _.-/ in the name of {} of {}, found \"{}\"", what,
           where, name);
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// names: of the ports on this side of the layer until now.
void check_port(const Layer& layer, const Port& port, bool input, std::set<std::string>& names) {
  check_name(input ? "an input" : "an output", port.name, "layer " + layer.name);
  const char* side = input ? "input" : "output";
  if (!names.insert(port.name).second)
    refuse("layer {}: expected {}s of different names, found {} twice", layer.name, side,
           port.name);
  const std::string where = fmt::format("layer {}, {} {}", layer.name, side, port.name);
  const bool batch = port.flags & FASTLLM_PORT_BATCH;
  if (batch && !input)
    refuse("{}: expected no output taken from the batch, found the flag PORT_BATCH on one", where);
  for (int64_t dim : port.shape) {
    const bool symbolic =
        dim == FASTLLM_DIM_BATCH || dim == FASTLLM_DIM_SEQUENCE || dim == FASTLLM_DIM_TOKENS;
    if (dim >= 0 || symbolic || (dim == FASTLLM_DIM_ANY && batch)) continue;
    refuse(
        "{}: expected dimensions from 0, or BATCH, SEQUENCE, TOKENS (and ANY for batch entries), "
        "found shape {}",
        where, shape_text(port.shape));
  }
  const uint32_t scalar = port.flags & (FASTLLM_PORT_LOSS | FASTLLM_PORT_METRIC);
  if (scalar && input)
    refuse("{}: expected losses and metrics among the outputs, found an input flagged as one",
           where);
  if (scalar && !port.shape.empty())
    refuse("{}: expected a scalar (no dimensions) for a loss or metric, found shape {}", where,
           shape_text(port.shape));
  if (scalar && (port.flags & FASTLLM_PORT_OPTIONAL))
    refuse("{}: expected a loss or metric to be always made, found the flag PORT_OPTIONAL on it",
           where);
  if ((port.flags & FASTLLM_PORT_LOSS) && (port.flags & FASTLLM_PORT_NO_GRAD))
    refuse("{}: expected a loss to take a gradient, found the flag PORT_NO_GRAD on it", where);
  if ((port.flags & FASTLLM_PORT_SUM) && !scalar)
    refuse("{}: expected the flag PORT_SUM on losses and metrics, found it on another port", where);
}

void check_parameter(const Parameter& p) {
  const std::string where = fmt::format("parameter {}", p.name);
  check_name("a parameter", p.name, "the model");
  if (p.shape.empty()) refuse("{}: expected at least one dimension, found none", where);
  for (int64_t dim : p.shape)
    if (dim <= 0)
      refuse("{}: expected dimensions above 0, found shape {}", where, shape_text(p.shape));
  (void)p.elements();  // refuses what does not fit into 63 bits
  if (p.init < FASTLLM_INIT_ZEROS || p.init > FASTLLM_INIT_PLUGIN)
    refuse("{}: expected an initialisation between {} and {}, found {}", where,
           int(FASTLLM_INIT_ZEROS), int(FASTLLM_INIT_PLUGIN), p.init);
  if (!p.shard_group.empty() && p.shard_group != "tensor" && p.shard_group != "expert")
    refuse("{}: expected shard_group \"tensor\", \"expert\" or none, found \"{}\"", where,
           p.shard_group);
  if (!p.shard_group.empty()) {
    if (p.shard_dim < 0 || size_t(p.shard_dim) >= p.shape.size())
      refuse("{}: expected shard_dim to be a dimension of shape {}, found {}", where,
             shape_text(p.shape), p.shard_dim);
    const int64_t dim = p.shape[p.shard_dim];
    if (p.shard_blocks < 1 || dim % p.shard_blocks)
      refuse("{}: expected shard_blocks to divide dimension {} of size {}, found {}", where,
             p.shard_dim, dim, p.shard_blocks);
    if (p.shard_unit < 1 || dim / p.shard_blocks % p.shard_unit)
      refuse("{}: expected shard_unit to divide blocks of size {}, found {}", where,
             dim / p.shard_blocks, p.shard_unit);
  }
  if (!std::isfinite(p.weight_decay) || p.weight_decay < 0)
    refuse("{}: expected a weight-decay factor from 0, found {}", where, p.weight_decay);
  if (!p.lr_scales.empty() && p.shape[0] % int64_t(p.lr_scales.size()))
    refuse(
        "{}: expected the number of learning-rate scales to divide dimension 0 of size {}, found "
        "{}",
        where, p.shape[0], p.lr_scales.size());
  for (double scale : p.lr_scales)
    if (!(std::isnan(scale) || (std::isfinite(scale) && scale >= 0)))
      refuse("{}: expected learning-rate scales from 0, or NaN for the default, found {}", where,
             scale);
  if (p.init != FASTLLM_INIT_NORMAL && p.init != FASTLLM_INIT_UNIFORM) return;
  if (!std::isfinite(p.init_a) || !std::isfinite(p.init_b))
    refuse("{}: expected finite initialisation values, found {} and {}", where, p.init_a, p.init_b);
  if (p.init_min > p.init_max)
    refuse("{}: expected init_min to be at most init_max, found {} and {}", where, p.init_min,
           p.init_max);
}

}  // namespace

int64_t Parameter::elements() const {
  int64_t n = 1;
  for (int64_t dim : shape)
    if (__builtin_mul_overflow(n, dim, &n))
      refuse("parameter {}: expected a number of elements below 2^63, found shape {}", name,
             shape_text(shape));
  return n;
}

bool Parameter::frozen() const {
  return !lr_scales.empty() &&
         std::all_of(lr_scales.begin(), lr_scales.end(), [](double s) { return s == 0; });
}

int Description::declare(int layer, Parameter parameter) {
  std::vector<int>& own = layers.at(layer).parameters;
  if (by_name_.size() != parameters.size()) {  // parameters was filled or cut by hand
    by_name_.clear();
    for (size_t i = 0; i < parameters.size(); ++i) by_name_.emplace(parameters[i].name, int(i));
  }
  const auto [known, is_new] = by_name_.try_emplace(parameter.name, int(parameters.size()));
  const int index = known->second;
  const auto found = parameters.begin() + index;
  if (is_new) {
    parameter.first_layer = layer;
    parameters.push_back(std::move(parameter));
  } else if (found->shape != parameter.shape || !same_dtype(found->dtype, parameter.dtype)) {
    refuse(
        "layer {}: expected parameter {} to have shape {} and the type that layer {} declared, "
        "found shape {} ({}-bit type {})",
        layers[layer].name, parameter.name, shape_text(found->shape),
        layers[found->first_layer].name, shape_text(parameter.shape), int(parameter.dtype.bits),
        int(parameter.dtype.code));
  } else if (std::find(own.begin(), own.end(), index) != own.end()) {
    refuse("layer {}: expected each parameter once, found {} twice", layers[layer].name,
           parameter.name);
  }
  own.push_back(index);
  return index;
}

std::vector<std::vector<Wire>> wire(const Description& description) {
  std::vector<std::vector<Wire>> result(description.layers.size());
  std::map<std::string, Wire, std::less<>> latest;
  for (size_t l = 0; l < description.layers.size(); ++l) {
    const Layer& layer = description.layers[l];
    for (const Port& input : layer.inputs) {
      if (input.flags & FASTLLM_PORT_BATCH) {
        result[l].push_back({});
        continue;
      }
      const auto source = latest.find(input.name);
      if (source == latest.end())
        refuse(
            "layer {}: expected an earlier output named like its input {}, or the flag PORT_BATCH "
            "on it, found neither",
            layer.name, input.name);
      const Port& output = description.layers[source->second.layer].outputs[source->second.output];
      if (output.shape != input.shape || !same_dtype(output.dtype, input.dtype))
        refuse(
            "layer {}: expected input {} to have the shape and type of the output it is wired to, "
            "found {} after {} of layer {}",
            layer.name, input.name, shape_text(input.shape), shape_text(output.shape),
            description.layers[source->second.layer].name);
      result[l].push_back(source->second);
    }
    for (size_t o = 0; o < layer.outputs.size(); ++o)
      latest[layer.outputs[o].name] = {int(l), int(o)};
  }
  return result;
}

void Description::validate() const {
  if (layers.empty()) refuse("expected a model of at least one layer, found none");
  std::set<std::string> names;
  bool preprocessing = true;
  for (const Layer& layer : layers) {
    check_name("a layer", layer.name, "the model");
    if (!names.insert(layer.name).second)
      refuse("expected layers of different names, found {} twice", layer.name);
    if (!std::isfinite(layer.cost) || layer.cost < 0)
      refuse("layer {}: expected a cost from 0, found {}", layer.name, layer.cost);
    const bool every_stage = layer.flags & FASTLLM_LAYER_EVERY_STAGE;
    if (every_stage && !preprocessing)
      refuse(
          "layer {}: expected preprocessing layers (LAYER_EVERY_STAGE) before all others, found "
          "one after them",
          layer.name);
    preprocessing = every_stage;
    std::set<std::string> ports;
    for (const Port& port : layer.inputs) {
      check_port(layer, port, true, ports);
      if (every_stage && !(port.flags & FASTLLM_PORT_BATCH))
        refuse(
            "layer {}: expected a preprocessing layer to take batch entries alone, found input {}",
            layer.name, port.name);
    }
    ports.clear();
    for (const Port& port : layer.outputs) {
      check_port(layer, port, false, ports);
      if (every_stage && (port.flags & (FASTLLM_PORT_LOSS | FASTLLM_PORT_METRIC)))
        refuse("layer {}: expected no loss or metric of a preprocessing layer, found output {}",
               layer.name, port.name);
    }
    if (every_stage && !layer.parameters.empty())
      refuse("layer {}: expected a preprocessing layer to have no parameters, found {}", layer.name,
             layer.parameters.size());
  }
  if (preprocessing)
    refuse("expected a layer that belongs to a stage, found preprocessing layers alone");

  names.clear();
  std::vector<int> first(parameters.size(), -1);
  for (const Parameter& p : parameters) {
    check_parameter(p);
    if (!names.insert(p.name).second)
      refuse("expected parameters of different names, found {} twice", p.name);
  }
  for (size_t l = 0; l < layers.size(); ++l) {
    std::set<int> own;
    for (int index : layers[l].parameters) {
      if (index < 0 || size_t(index) >= parameters.size())
        refuse("layer {}: expected parameter numbers below {}, found {}", layers[l].name,
               parameters.size(), index);
      if (!own.insert(index).second)
        refuse("layer {}: expected each parameter once, found {} twice", layers[l].name,
               parameters[index].name);
      if (first[index] < 0) first[index] = int(l);
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i)
    if (first[i] < 0 || first[i] != parameters[i].first_layer)
      refuse("parameter {}: expected layer {} to be the first that uses it, found {}",
             parameters[i].name, parameters[i].first_layer, first[i]);
  (void)wire(*this);
}

std::string Description::fingerprint() const {
  std::string text;
  auto out = std::back_inserter(text);
  // Texts carry their length, so that no two descriptions run into the same line.
  auto put_text = [&](std::string_view s) { fmt::format_to(out, " {}:{}", s.size(), s); };
  auto put_dtype = [&](DLDataType t) {
    fmt::format_to(out, " {}/{}/{}", int(t.code), int(t.bits), int(t.lanes));
  };
  // Hexadecimal keeps every bit; a NaN is a NaN, whatever its sign.
  auto put_number = [&](double x) {
    std::isnan(x) ? fmt::format_to(out, " nan") : fmt::format_to(out, " {:a}", x);
  };
  put_text(type);
  for (const Layer& layer : layers) {
    fmt::format_to(out, "\nlayer");
    put_text(layer.name);
    put_number(layer.cost);
    fmt::format_to(out, " {} {}", layer.flags, fmt::join(layer.parameters, ","));
    for (const auto* ports : {&layer.inputs, &layer.outputs})
      for (const Port& port : *ports) {
        fmt::format_to(out, "\n {}", ports == &layer.inputs ? "input" : "output");
        put_text(port.name);
        put_dtype(port.dtype);
        fmt::format_to(out, " {} {}", port.flags, shape_text(port.shape));
      }
  }
  for (const Parameter& p : parameters) {
    fmt::format_to(out, "\nparameter");
    put_text(p.name);
    put_dtype(p.dtype);
    put_text(p.shard_group);
    fmt::format_to(out, " {} {} {} {} {} {}", p.flags, shape_text(p.shape), p.init, p.shard_dim,
                   p.shard_blocks, p.shard_unit);
    for (double x : {p.init_a, p.init_b, p.init_min, p.init_max, p.weight_decay}) put_number(x);
    fmt::format_to(out, " [");
    for (double scale : p.lr_scales) put_number(scale);
    fmt::format_to(out, " ] {}", p.first_layer);
  }
  return text;
}

}  // namespace fastllm::model
