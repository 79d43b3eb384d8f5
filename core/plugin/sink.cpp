#include "core/plugin/sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "core/plugin/host_services.hpp"
#include "core/plugin/manifest.hpp"
#include "core/plugin/normalise.hpp"

namespace fastllm::plugin {
namespace {

// Bounds that no real plugin meets, so that one that pushes for ever ends with a sentence.
constexpr size_t kMaxItems = 1 << 20;
constexpr size_t kMaxListEntries = 1 << 16;
constexpr int32_t kMaxDims = 16;
constexpr size_t kMaxTextBytes = 64 << 10;

[[noreturn]] void refuse(const std::string& text) { throw Error(Status::kInternal, text); }

// Runs one push; the first error stays in the sink.
template <class Body>
fastllm_status push(fastllm_sink* sink, Describing wanted, const char* what, Body&& body) noexcept {
  return host_function([&] {
    if (!sink) refuse(fmt::format("expected a sink in emit->{}, found NULL", what));
    try {
      if (sink->describing != wanted)
        refuse(fmt::format("expected other things than emit->{} from this function", what));
      body();
    } catch (const Error& e) {
      if (!sink->error) sink->error = e;
      throw;
    }
  });
}

std::string identifier(const char* text, const std::string& what) {
  if (!text) refuse(fmt::format("expected {} to have a name, found NULL", what));
  std::string name(text, strnlen(text, 1024));
  if (!is_identifier(name)) {
    refuse(fmt::format(
        "expected the name of {} to be 1 to 512 letters, digits and _ . - /, found \"{}\"", what,
        name.substr(0, 64)));
  }
  return name;
}

std::string sentence(const char* text, const std::string& what) {
  if (!text) refuse(fmt::format("expected {}, found NULL", what));
  size_t length = strnlen(text, kMaxTextBytes + 1);
  if (length > kMaxTextBytes)
    refuse(fmt::format("expected at most {} bytes in {}, found more", kMaxTextBytes, what));
  return {text, length};
}

std::vector<std::string> texts(const char* const* list, const std::string& what) {
  std::vector<std::string> result;
  for (; list && *list; ++list) {
    result.push_back(sentence(*list, what));
    if (result.size() > kMaxListEntries)
      refuse(fmt::format("expected {} to end with NULL, found no end", what));
  }
  return result;
}

template <class T>
void check_room(const std::vector<T>& items, const char* what) {
  if (items.size() >= kMaxItems)
    refuse(fmt::format("expected at most {} {}, found more", kMaxItems, what));
}

// ---------------------------------------------------------------- fields

// FASTLLM_I64 .. FASTLLM_STR_LIST are numbered as config::Type.
static_assert(int(config::Type::kInt) == FASTLLM_I64 && int(config::Type::kReal) == FASTLLM_F64 &&
              int(config::Type::kBool) == FASTLLM_BOOL && int(config::Type::kText) == FASTLLM_STR &&
              int(config::Type::kNode) == FASTLLM_NODE &&
              int(config::Type::kIntList) == FASTLLM_I64_LIST &&
              int(config::Type::kRealList) == FASTLLM_F64_LIST &&
              int(config::Type::kTextList) == FASTLLM_STR_LIST);

bool fits(const config::Node& node, config::Type type) {
  using Kind = config::Node::Kind;
  auto scalar = [](const config::Node& n, config::Type t) {
    switch (t) {
      case config::Type::kInt:
        return n.kind() == Kind::kInt;
      case config::Type::kReal:
        return n.kind() == Kind::kInt || n.kind() == Kind::kFloat;
      case config::Type::kBool:
        return n.kind() == Kind::kBool;
      default:
        return n.is_scalar();
    }
  };
  auto list = [&](config::Type entry) {
    if (node.kind() != Kind::kList) return false;
    for (size_t i = 0; i < node.size(); ++i) {
      if (!node.at(i).is_null() && !scalar(node.at(i), entry)) return false;
    }
    return true;
  };
  if (node.is_null()) return true;  // computed in create(), or nullable
  switch (type) {
    case config::Type::kIntList:
      return list(config::Type::kInt);
    case config::Type::kRealList:
      return list(config::Type::kReal);
    case config::Type::kTextList:
      return list(config::Type::kText);
    case config::Type::kNode:
      return !node.is_scalar();
    default:
      return scalar(node, type);
  }
}

void add_field(fastllm_sink& sink, const fastllm_field* theirs) {
  check_room(sink.fields, "fields");
  auto raw = normalise_descriptor(theirs, "fastllm_field", sizeof(fastllm_field));
  config::Field field;
  field.path = identifier(raw.path, fmt::format("field number {}", sink.fields.size()));
  std::string what = fmt::format("field {}", field.path);
  for (const auto& other : sink.fields) {
    if (other.path == field.path)
      refuse(fmt::format("expected each field once, found {} twice", field.path));
  }
  if (raw.type < FASTLLM_I64 || raw.type > FASTLLM_STR_LIST) {
    refuse(fmt::format("expected {} to have a type FASTLLM_I64 .. FASTLLM_STR_LIST, found {}", what,
                       raw.type));
  }
  field.type = config::Type(raw.type);
  field.required = raw.flags & FASTLLM_FIELD_REQUIRED;
  field.nullable = raw.flags & FASTLLM_FIELD_NULLABLE;
  field.architecture = raw.flags & FASTLLM_FIELD_ARCHITECTURE;
  field.level = raw.flags & FASTLLM_FIELD_EXPERT ? config::kExpert
                : raw.flags & FASTLLM_FIELD_CORE ? config::kCore
                                                 : config::kFeature;
  field.fallback = raw.fallback ? sentence(raw.fallback, "the default of " + what) : "null";
  field.help = sentence(raw.help, "a help sentence for " + what);
  if (!std::isnan(raw.minimum)) field.minimum = raw.minimum;
  if (!std::isnan(raw.maximum)) field.maximum = raw.maximum;
  if (field.minimum > field.maximum) {
    refuse(fmt::format("expected {} to have a minimum below its maximum, found {} and {}", what,
                       field.minimum, field.maximum));
  }
  field.choices = texts(raw.choices, "the choices of " + what);
  field.aliases = texts(raw.aliases, "the older names of " + what);
  try {
    config::Node fallback = config::parse_yaml(field.fallback, "the default of " + what);
    if (!fits(fallback, field.type)) {
      refuse(fmt::format("expected the default of {} to be of its type, found \"{}\"", what,
                         field.fallback));
    }
    if (!field.choices.empty() && fallback.is_scalar() && !fallback.is_null() &&
        std::find(field.choices.begin(), field.choices.end(), fallback.scalar_text()) ==
            field.choices.end()) {
      refuse(fmt::format("expected the default of {} to be one of its choices, found \"{}\"", what,
                         field.fallback));
    }
  } catch (const Error& e) {
    if (e.status() == Status::kInternal) throw;
    refuse(fmt::format("expected the default of {} to be YAML, found \"{}\" ({})", what,
                       field.fallback, e.what()));
  }
  sink.fields.push_back(std::move(field));
}

// ---------------------------------------------------------------- tensors

struct KnownType {
  uint8_t code, bits;
};
constexpr std::array<KnownType, 14> kTypes = {{{kDLFloat, 64},
                                               {kDLFloat, 32},
                                               {kDLFloat, 16},
                                               {kDLBfloat, 16},
                                               {kDLInt, 64},
                                               {kDLInt, 32},
                                               {kDLInt, 16},
                                               {kDLInt, 8},
                                               {kDLUInt, 8},
                                               {kDLBool, 8},
                                               {10 /* float8 e4m3fn */, 8},
                                               {12 /* float8 e5m2 */, 8},
                                               {14 /* float8 e8m0fnu */, 8},
                                               {17 /* float4 e2m1fn, packed */, 4}}};

void check_dtype(DLDataType dtype, const std::string& what) {
  if (dtype.bits == 0 && dtype.code == 0 && dtype.lanes <= 1) return;  // the compute type
  bool known = dtype.lanes == 1 && std::any_of(kTypes.begin(), kTypes.end(), [&](KnownType t) {
                 return t.code == dtype.code && t.bits == dtype.bits;
               });
  if (!known) {
    throw Error(Status::kUnsupported,
                fmt::format("expected {} to have a known dtype, found code {}, {} bits, {} lanes",
                            what, dtype.code, dtype.bits, dtype.lanes));
  }
}

// smallest: 1, or 0 where a tensor may be empty; symbolic: the least FASTLLM_DIM_* allowed, or 0.
std::vector<int64_t> shape_of(int32_t ndim, const int64_t* shape, const std::string& what,
                              int64_t smallest, int64_t symbolic) {
  if (ndim < 0 || ndim > kMaxDims || (ndim > 0 && !shape)) {
    refuse(fmt::format("expected {} to have 0 to {} dimensions, found {}{}", what, kMaxDims, ndim,
                       ndim > 0 && !shape ? " in NULL" : ""));
  }
  std::vector<int64_t> result(shape, shape + ndim);
  int64_t bytes = 8;  // of the widest element
  for (size_t i = 0; i < result.size(); ++i) {
    if (result[i] < 0 && result[i] >= symbolic) continue;
    if (result[i] < smallest) {
      refuse(fmt::format("expected {} to have dimensions of {} or more, found {} in dimension {}",
                         what, smallest, result[i], i));
    }
    if (result[i] > 0 && __builtin_mul_overflow(bytes, result[i], &bytes)) {
      refuse(fmt::format(
          "expected {} to have fewer than 2^63 bytes, found dimensions whose product is larger",
          what));
    }
  }
  return result;
}

model::Layer& latest_layer(fastllm_sink& sink, const char* what) {
  if (sink.model.layers.empty())
    refuse(fmt::format("expected emit->layer before the first emit->{}, found none", what));
  return sink.model.layers.back();
}

std::string layer_text(const fastllm_sink& sink) {
  return fmt::format("layer {} ({})", sink.model.layers.size() - 1, sink.model.layers.back().name);
}

void add_layer(fastllm_sink& sink, const fastllm_layer* theirs) {
  check_room(sink.model.layers, "layers");
  auto raw = normalise_descriptor(theirs, "fastllm_layer", sizeof(fastllm_layer));
  model::Layer layer;
  std::string what = fmt::format("layer {}", sink.model.layers.size());
  layer.name = identifier(raw.name, what);
  layer.flags = raw.flags;
  layer.cost = raw.cost;
  if (!std::isfinite(layer.cost) || layer.cost < 0) {
    refuse(fmt::format("expected {} ({}) to have a cost of 0 or more, found {}", what, layer.name,
                       layer.cost));
  }
  sink.model.layers.push_back(std::move(layer));
}

void add_port(fastllm_sink& sink, const fastllm_port* theirs, bool is_input) {
  model::Layer& layer = latest_layer(sink, is_input ? "input" : "output");
  auto& ports = is_input ? layer.inputs : layer.outputs;
  check_room(ports, "ports of a layer");
  auto raw = normalise_descriptor(theirs, "fastllm_port", sizeof(fastllm_port));
  model::Port port;
  const char* direction = is_input ? "input" : "output";
  port.name =
      identifier(raw.name, fmt::format("{}, {} {}", layer_text(sink), direction, ports.size()));
  std::string what = fmt::format("{}, {} {}", layer_text(sink), direction, port.name);
  for (const auto& other : ports) {
    if (other.name == port.name)
      refuse(fmt::format("expected the {}s of {} to have different names, found {} twice",
                         direction, layer_text(sink), port.name));
  }
  port.flags = raw.flags;
  if (is_input && (raw.flags & (FASTLLM_PORT_LOSS | FASTLLM_PORT_METRIC)))
    refuse(fmt::format("expected only outputs to be losses or metrics, found {}", what));
  if (!is_input && (raw.flags & FASTLLM_PORT_BATCH))
    refuse(fmt::format("expected only inputs to come from the batch, found {}", what));
  if ((raw.flags & FASTLLM_PORT_LOSS) && (raw.flags & FASTLLM_PORT_METRIC))
    refuse(fmt::format("expected {} to be a loss or a metric, found both", what));
  port.dtype = raw.dtype;
  check_dtype(port.dtype, what);
  bool from_batch = is_input && (raw.flags & FASTLLM_PORT_BATCH);
  port.shape =
      shape_of(raw.ndim, raw.shape, what, 1, from_batch ? FASTLLM_DIM_ANY : FASTLLM_DIM_TOKENS);
  if ((raw.flags & (FASTLLM_PORT_LOSS | FASTLLM_PORT_METRIC)) &&
      std::any_of(port.shape.begin(), port.shape.end(), [](int64_t dim) { return dim != 1; })) {
    refuse(fmt::format(
        "expected {} to be a scalar since it is a loss or a metric, found {} dimensions", what,
        port.shape.size()));
  }
  ports.push_back(std::move(port));
}

void check_initialization(const fastllm_param& raw, const std::string& what) {
  if (raw.init < FASTLLM_INIT_ZEROS || raw.init > FASTLLM_INIT_PLUGIN) {
    refuse(fmt::format(
        "expected {} to have an init FASTLLM_INIT_ZEROS .. FASTLLM_INIT_PLUGIN, found {}", what,
        raw.init));
  }
  bool random = raw.init == FASTLLM_INIT_NORMAL || raw.init == FASTLLM_INIT_UNIFORM;
  if (random && !(std::isfinite(raw.init_a) && std::isfinite(raw.init_b))) {
    refuse(fmt::format("expected {} to have finite init_a and init_b, found {} and {}", what,
                       raw.init_a, raw.init_b));
  }
  if (raw.init == FASTLLM_INIT_NORMAL && raw.init_b < 0) {
    refuse(fmt::format("expected {} to have a deviation (init_b) of 0 or more, found {}", what,
                       raw.init_b));
  }
  if (raw.init == FASTLLM_INIT_UNIFORM && raw.init_a > raw.init_b) {
    refuse(fmt::format("expected {} to have init_a below init_b, found {} and {}", what, raw.init_a,
                       raw.init_b));
  }
  if (raw.init_min > raw.init_max) {
    refuse(fmt::format("expected {} to have init_min below init_max, found {} and {}", what,
                       raw.init_min, raw.init_max));
  }
}

void check_sharding(const model::Parameter& p, const std::string& what) {
  if (p.shard_group.empty()) return;
  if (p.shard_dim < 0 || size_t(p.shard_dim) >= p.shape.size()) {
    refuse(fmt::format("expected {} to have a shard_dim of 0 to {}, found {}", what,
                       int64_t(p.shape.size()) - 1, p.shard_dim));
  }
  int64_t dim = p.shape[size_t(p.shard_dim)];
  if (p.shard_blocks < 1 || dim % p.shard_blocks != 0) {
    refuse(fmt::format("expected {} to have shard_blocks that divide its dimension of {}, found {}",
                       what, dim, p.shard_blocks));
  }
  if (p.shard_unit < 1 || dim / p.shard_blocks % p.shard_unit != 0) {
    refuse(fmt::format("expected {} to have a shard_unit that divides a block of {}, found {}",
                       what, dim / p.shard_blocks, p.shard_unit));
  }
}

std::vector<double> scales_of(const fastllm_param& raw, const model::Parameter& p,
                              const std::string& what) {
  if (raw.lr_scale_count == 0) return {};
  int64_t rows = p.shape.empty() ? 1 : p.shape[0];
  if (raw.lr_scale_count < 0 || !raw.lr_scales || rows % raw.lr_scale_count != 0) {
    refuse(
        fmt::format("expected {} to have a number of learning-rate scales that divides its first "
                    "dimension of {}, found {}{}",
                    what, rows, raw.lr_scale_count, raw.lr_scales ? "" : " in NULL"));
  }
  std::vector<double> scales(raw.lr_scales, raw.lr_scales + raw.lr_scale_count);
  for (double scale : scales) {
    if (scale < 0 || std::isinf(scale))
      refuse(fmt::format("expected {} to have learning-rate scales of 0 or more, found {}", what,
                         scale));
  }
  return scales;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

void add_parameter(fastllm_sink& sink, const fastllm_param* theirs) {
  model::Layer& layer = latest_layer(sink, "param");
  check_room(layer.parameters, "parameters of a layer");
  check_room(sink.model.parameters, "parameters");
  auto raw = normalise_descriptor(theirs, "fastllm_param", sizeof(fastllm_param));
  model::Parameter p;
  p.name = identifier(raw.name,
                      fmt::format("{}, parameter {}", layer_text(sink), layer.parameters.size()));
  std::string what = fmt::format("{}, parameter {}", layer_text(sink), p.name);
  p.flags = raw.flags;
  p.dtype = raw.dtype;
  check_dtype(p.dtype, what);
  p.shape = shape_of(raw.ndim, raw.shape, what, 1, 0);
  p.init = raw.init;
  check_initialization(raw, what);
  p.init_a = raw.init_a, p.init_b = raw.init_b, p.init_min = raw.init_min,
  p.init_max = raw.init_max;
  if (raw.shard_group) p.shard_group = identifier(raw.shard_group, "the shard_group of " + what);
  p.shard_dim = raw.shard_dim;
  p.shard_blocks = raw.shard_blocks == 0 ? 1 : raw.shard_blocks;
  p.shard_unit = raw.shard_unit == 0 ? 1 : raw.shard_unit;
  check_sharding(p, what);
  p.weight_decay = raw.weight_decay;
  if (!std::isfinite(p.weight_decay) || p.weight_decay < 0) {
    refuse(fmt::format("expected {} to have a weight_decay factor of 0 or more, found {}", what,
                       p.weight_decay));
  }
  p.lr_scales = scales_of(raw, p, what);
  p.first_layer = int(sink.model.layers.size()) - 1;

  auto& known = sink.model.parameters;
  auto first = std::find_if(known.begin(), known.end(),
                            [&](const auto& other) { return other.name == p.name; });
  int index = int(first - known.begin());
  if (first != known.end()) {  // tied
    if (std::find(layer.parameters.begin(), layer.parameters.end(), index) !=
        layer.parameters.end()) {
      refuse(fmt::format("expected the parameters of {} to have different names, found {} twice",
                         layer_text(sink), p.name));
    }
    if (first->shape != p.shape) {
      refuse(
          fmt::format("expected {} to have the shape {} of layer {}, to which it is tied, found {}",
                      what, shape_text(first->shape), first->first_layer, shape_text(p.shape)));
    }
    if (first->dtype.code != p.dtype.code || first->dtype.bits != p.dtype.bits) {
      refuse(fmt::format(
          "expected {} to have the dtype of layer {}, to which it is tied, found another", what,
          first->first_layer));
    }
  } else {
    known.push_back(std::move(p));
  }
  layer.parameters.push_back(index);
}

void add_tensor(fastllm_sink& sink, const char* state, const fastllm_port* theirs) {
  check_room(sink.tensors, "tensors");
  auto raw = normalise_descriptor(theirs, "fastllm_port", sizeof(fastllm_port));
  checkpoint::StoredTensor stored;
  if (state)
    stored.state = identifier(state, fmt::format("the state of tensor {}", sink.tensors.size()));
  stored.tensor.name = identifier(raw.name, fmt::format("tensor {}", sink.tensors.size()));
  std::string what = fmt::format("tensor {}", stored.tensor.name);
  stored.tensor.flags = raw.flags;
  stored.tensor.dtype = raw.dtype;
  check_dtype(raw.dtype, what);
  stored.tensor.shape = shape_of(raw.ndim, raw.shape, what, 0, 0);
  sink.tensors.push_back(std::move(stored));
}

// ---------------------------------------------------------------- the table

fastllm_status emit_field(fastllm_sink* sink, const fastllm_field* field) {
  return push(sink, Describing::kFields, "field", [&] { add_field(*sink, field); });
}
fastllm_status emit_layer(fastllm_sink* sink, const fastllm_layer* layer) {
  return push(sink, Describing::kModel, "layer", [&] { add_layer(*sink, layer); });
}
fastllm_status emit_input(fastllm_sink* sink, const fastllm_port* port) {
  return push(sink, Describing::kModel, "input", [&] { add_port(*sink, port, true); });
}
fastllm_status emit_output(fastllm_sink* sink, const fastllm_port* port) {
  return push(sink, Describing::kModel, "output", [&] { add_port(*sink, port, false); });
}
fastllm_status emit_param(fastllm_sink* sink, const fastllm_param* param) {
  return push(sink, Describing::kModel, "param", [&] { add_parameter(*sink, param); });
}
fastllm_status emit_tensor(fastllm_sink* sink, const char* state, const fastllm_port* port) {
  return push(sink, Describing::kTensors, "tensor", [&] { add_tensor(*sink, state, port); });
}
fastllm_status emit_rule(fastllm_sink* sink, const fastllm_rule*) {
  return push(sink, Describing::kPairs, "rule", [&] {
    throw Error(Status::kUnsupported, "this host takes no conversion rules yet");
  });
}
fastllm_status emit_pair(fastllm_sink* sink, const char* format, const char* model,
                         const char* external_type) {
  return push(sink, Describing::kPairs, "pair", [&] {
    check_room(sink->pairs, "pairs");
    std::string what = fmt::format("converter pair {}", sink->pairs.size());
    sink->pairs.push_back({identifier(format, "the format of " + what),
                           identifier(model, "the model of " + what),
                           identifier(external_type, "the external type of " + what)});
  });
}

}  // namespace

const fastllm_emit* emit_table() {
  static const fastllm_emit table{sizeof table, emit_field,  emit_layer, emit_input, emit_output,
                                  emit_param,   emit_tensor, emit_rule,  emit_pair};
  return &table;
}

}  // namespace fastllm::plugin
