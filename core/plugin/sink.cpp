// What plugins push, copied and checked. Here: pointers, counts, names, sizes. What a whole model
// means is checked by model::Description::validate().
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
    if (sink->error) throw *sink->error;  // nothing more is taken after a refusal
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

DLDataType checked_dtype(DLDataType dtype, const std::string& what) {
  if (dtype.bits == 0) return {0, 0, 1};  // the compute type
  bool known = dtype.lanes == 1 && std::any_of(kTypes.begin(), kTypes.end(), [&](KnownType t) {
                 return t.code == dtype.code && t.bits == dtype.bits;
               });
  if (!known) {
    throw Error(Status::kUnsupported,
                fmt::format("expected {} to have a known dtype, found code {}, {} bits, {} lanes",
                            what, dtype.code, dtype.bits, dtype.lanes));
  }
  return dtype;
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

// Wiring, sharding, initialisation and what flags mean together are checked by
// Description::validate().
void add_layer(fastllm_sink& sink, const fastllm_layer* theirs) {
  check_room(sink.model.layers, "layers");
  auto raw = normalise_descriptor(theirs, "fastllm_layer", sizeof(fastllm_layer));
  model::Layer layer;
  layer.name = identifier(raw.name, fmt::format("layer {}", sink.model.layers.size()));
  layer.flags = raw.flags;
  layer.cost = raw.cost;
  sink.model.layers.push_back(std::move(layer));
}

void add_port(fastllm_sink& sink, const fastllm_port* theirs, bool is_input) {
  const char* direction = is_input ? "input" : "output";
  model::Layer& layer = latest_layer(sink, direction);
  auto& ports = is_input ? layer.inputs : layer.outputs;
  check_room(ports, "ports of a layer");
  auto raw = normalise_descriptor(theirs, "fastllm_port", sizeof(fastllm_port));
  model::Port port;
  port.name =
      identifier(raw.name, fmt::format("{}, {} {}", layer_text(sink), direction, ports.size()));
  std::string what = fmt::format("{}, {} {}", layer_text(sink), direction, port.name);
  port.flags = raw.flags;
  port.dtype = checked_dtype(raw.dtype, what);
  port.shape = shape_of(raw.ndim, raw.shape, what, 1, FASTLLM_DIM_ANY);
  ports.push_back(std::move(port));
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
  p.dtype = checked_dtype(raw.dtype, what);
  p.shape = shape_of(raw.ndim, raw.shape, what, 1, 0);
  p.init = raw.init;
  p.init_a = raw.init_a, p.init_b = raw.init_b;
  p.init_min = raw.init_min, p.init_max = raw.init_max;
  if (raw.shard_group) p.shard_group = identifier(raw.shard_group, "the shard_group of " + what);
  p.shard_dim = raw.shard_dim;
  p.shard_blocks = raw.shard_blocks == 0 ? 1 : raw.shard_blocks;
  p.shard_unit = raw.shard_unit == 0 ? 1 : raw.shard_unit;
  p.weight_decay = raw.weight_decay;
  if (raw.lr_scale_count < 0 || size_t(raw.lr_scale_count) > kMaxListEntries ||
      (raw.lr_scale_count > 0 && !raw.lr_scales)) {
    refuse(fmt::format("expected {} to have 0 to {} learning-rate scales, found {}{}", what,
                       kMaxListEntries, raw.lr_scale_count, raw.lr_scales ? "" : " in NULL"));
  }
  p.lr_scales.assign(raw.lr_scales, raw.lr_scales + raw.lr_scale_count);
  sink.model.declare(int(sink.model.layers.size()) - 1, std::move(p));
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
  stored.tensor.dtype = checked_dtype(raw.dtype, what);
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
