// fastllm/plugin.hpp - C++20 glue over plugin.h: exceptions inside, status codes at the edge. Header-only, compiled into the
// plugin, no part of the ABI. A plugin includes this and the glue of what it offers (model.hpp, checkpoint_format.hpp).
#pragma once

#include <fastllm/model.h>
#include <fastllm/plugin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

// For what keeps something in a static variable: else it would be one for all plugins in the process
// that were compiled without -fvisibility=hidden.
#if defined(__GNUC__)
#define FASTLLM_HIDDEN __attribute__((visibility("hidden")))
#else
#define FASTLLM_HIDDEN
#endif

namespace fastllm::sdk {

// The host's table; set by entry() before anything else runs, stays for the life of the process. [any]
FASTLLM_HIDDEN inline const fastllm_host*& host_pointer() {
  static const fastllm_host* pointer = nullptr;
  return pointer;
}
inline const fastllm_host& host() { return *host_pointer(); }

// What a plugin throws: a status and one sentence for the user.
class Error : public std::runtime_error {
 public:
  Error(fastllm_status status, const std::string& text)
      : std::runtime_error(text), status_(status) {}
  fastllm_status status() const noexcept { return status_; }

 private:
  fastllm_status status_;
};
[[noreturn]] inline void fail(fastllm_status status, const std::string& text) {
  throw Error(status, text);
}

// A host function failed; its text is with the host already, so guard() passes only the code on.
struct HostFailure {
  fastllm_status status;
};
inline void check(fastllm_status status) {
  if (status != FASTLLM_OK) throw HostFailure{status};
}

// Runs the body of a table function and turns whatever it throws into a status: nothing leaves a plugin but codes.
template <class Body>
fastllm_status guard(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return FASTLLM_OK;
  } catch (const HostFailure& e) {
    return e.status;
  } catch (const Error& e) {
    return host().fail(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return host().fail(FASTLLM_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& e) {
    return host().fail(FASTLLM_INTERNAL, e.what());
  } catch (...) {
    return host().fail(FASTLLM_INTERNAL, "unknown exception");
  }
}

// Body of fastllm_plugin_v0: stores the host, refuses one that is too old, returns the plugin's table.
inline const fastllm_plugin* entry(const fastllm_host* offered,
                                   const fastllm_plugin* plugin) noexcept {
  if (!offered || !FASTLLM_HAS(fastllm_host, offered, fail)) return nullptr;
  if (!FASTLLM_HAS(fastllm_host, offered, config_text)) {
    offered->fail(
        FASTLLM_UNSUPPORTED,
        "expected a host that offers host->config_text, found an older one; update fastllm-host");
    return nullptr;
  }
  host_pointer() = offered;
  return plugin;
}

template <class Table>
const Table* get(const char* id) {
  return static_cast<const Table*>(host().get(id));
}

inline void log(int32_t level, const std::string& text) { host().log(level, text.c_str()); }
inline void log_info(const std::string& text) { log(1, text); }
inline void log_warning(const std::string& text) { log(2, text); }
// Long loops call this at least every second.
inline void throw_if_cancelled() {
  if (host().cancelled()) fail(FASTLLM_CANCELLED, "cancelled");
}

// ---------------------------------------------------------------- configuration

namespace detail {
template <class T>
constexpr int32_t config_type() {
  if constexpr (std::is_same_v<T, bool>)
    return FASTLLM_BOOL;
  else if constexpr (std::is_integral_v<T>)
    return FASTLLM_I64;
  else if constexpr (std::is_floating_point_v<T>)
    return FASTLLM_F64;
  else
    return FASTLLM_STR;
}
}  // namespace detail

// A borrowed node. get: the value, absent or null is an error; optional: absent or null is nullopt.
class Config {
 public:
  Config(fastllm_config* node) : node_(node), constant_(node) {}
  Config(const fastllm_config* node) : constant_(node) {}

  template <class T>
  std::optional<T> optional(const std::string& path) const {
    constexpr int32_t type = detail::config_type<T>();
    fastllm_status status;
    if constexpr (type == FASTLLM_STR) {
      const char* value = nullptr;
      status = host().config_get(constant_, path.c_str(), type, &value);
      if (status == FASTLLM_OK) return T(value);
    } else {
      using C = std::conditional_t<type == FASTLLM_I64, int64_t,
                                   std::conditional_t<type == FASTLLM_F64, double, int32_t>>;
      C value{};
      status = host().config_get(constant_, path.c_str(), type, &value);
      if (status == FASTLLM_OK) return T(value);
    }
    if (status == FASTLLM_NOT_FOUND) return std::nullopt;
    throw HostFailure{status};
  }
  template <class T>
  T get(const std::string& path) const {
    auto value = optional<T>(path);
    if (!value) fail(FASTLLM_INVALID, path + ": expected a value, found none");
    return *value;
  }
  int64_t size(const std::string& path) const {  // -1: null or absent
    int64_t count = -1;
    check(host().config_size(constant_, path.c_str(), &count));
    return count;
  }
  // Null entries arrive as NaN.
  std::vector<double> reals(const std::string& path) const {
    std::vector<double> values(size_t(std::max<int64_t>(size(path), 0)));
    if (!values.empty())
      check(host().config_get(constant_, path.c_str(), FASTLLM_F64_LIST, values.data()));
    return values;
  }
  std::vector<int64_t> integers(const std::string& path) const {
    std::vector<int64_t> values(size_t(std::max<int64_t>(size(path), 0)));
    if (!values.empty())
      check(host().config_get(constant_, path.c_str(), FASTLLM_I64_LIST, values.data()));
    return values;
  }
  std::vector<std::string> texts(const std::string& path) const {
    std::vector<const char*> values(size_t(std::max<int64_t>(size(path), 0)));
    if (!values.empty())
      check(host().config_get(constant_, path.c_str(), FASTLLM_STR_LIST, values.data()));
    std::vector<std::string> result;
    for (const char* value : values) result.emplace_back(value ? value : "");
    return result;
  }
  std::string key(const std::string& path, int64_t index) const {
    const char* name = nullptr;
    check(host().config_key(constant_, path.c_str(), index, &name));
    return name;
  }
  std::string text(const std::string& path, bool json = false) const {
    const char* value = nullptr;
    check(host().config_text(constant_, path.c_str(), json, &value));
    return value;
  }
  void set(const std::string& path, int64_t value) {
    check(host().config_set(node_, path.c_str(), FASTLLM_I64, &value, 1));
  }
  void set(const std::string& path, int value) { set(path, int64_t(value)); }
  void set(const std::string& path, double value) {
    check(host().config_set(node_, path.c_str(), FASTLLM_F64, &value, 1));
  }
  void set(const std::string& path, bool value) {
    int32_t v = value;
    check(host().config_set(node_, path.c_str(), FASTLLM_BOOL, &v, 1));
  }
  void set(const std::string& path, const std::string& value) {
    const char* v = value.c_str();
    check(host().config_set(node_, path.c_str(), FASTLLM_STR, &v, 1));
  }
  void set(const std::string& path, const char* value) { set(path, std::string(value)); }
  void parse(const std::string& path, const std::string& yaml_or_json) {
    check(host().config_parse(node_, path.c_str(), yaml_or_json.c_str()));
  }
  fastllm_config* handle() const { return node_; }
  const fastllm_config* constant() const { return constant_; }

 private:
  fastllm_config* node_ = nullptr;
  const fastllm_config* constant_ = nullptr;
};

// ---------------------------------------------------------------- describing

struct Field {
  std::string path;
  int32_t type = FASTLLM_STR;
  std::string fallback = "null";
  std::string help;
  uint32_t flags = 0;
  double minimum = std::numeric_limits<double>::quiet_NaN(),
         maximum = std::numeric_limits<double>::quiet_NaN();
  std::vector<std::string> choices = {}, aliases = {};
};

struct Port {
  std::string name;
  std::vector<int64_t> shape;
  uint32_t flags = 0;
  DLDataType dtype{0, 0, 1};  // bits 0: the compute type
};
constexpr DLDataType kInt64{kDLInt, 64, 1};
constexpr DLDataType kInt32{kDLInt, 32, 1};
constexpr DLDataType kFloat32{kDLFloat, 32, 1};

struct Parameter {
  std::string name;
  std::vector<int64_t> shape;
  int32_t init = FASTLLM_INIT_ZEROS;
  double init_a = 0, init_b = 0;
  double init_min = std::numeric_limits<double>::quiet_NaN(),
         init_max = std::numeric_limits<double>::quiet_NaN();
  double weight_decay = 1;
  std::vector<double> lr_scales = {};
  std::string shard_group = {};
  int32_t shard_dim = 0;
  int64_t shard_blocks = 1, shard_unit = 0;
  uint32_t flags = 0;
  DLDataType dtype{0, 0, 1};
};

namespace detail {
inline std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> result;
  for (const auto& text : texts) result.push_back(text.c_str());
  result.push_back(nullptr);
  return result;
}
}  // namespace detail

// Pushes a description into the host's sink.
class Sink {
 public:
  Sink(const fastllm_emit* emit, fastllm_sink* sink) : emit_(emit), sink_(sink) {}

  void field(const Field& f) const {
    auto choices = detail::pointers(f.choices), aliases = detail::pointers(f.aliases);
    fastllm_field raw{};
    raw.size = sizeof raw;
    raw.flags = f.flags;
    raw.path = f.path.c_str();
    raw.type = f.type;
    raw.fallback = f.fallback.c_str();
    raw.minimum = f.minimum;
    raw.maximum = f.maximum;
    raw.choices = f.choices.empty() ? nullptr : choices.data();
    raw.aliases = f.aliases.empty() ? nullptr : aliases.data();
    raw.help = f.help.c_str();
    check(emit_->field(sink_, &raw));
  }
  void layer(const std::string& name, double cost = 1, uint32_t flags = 0) const {
    fastllm_layer raw{};
    raw.size = sizeof raw;
    raw.flags = flags;
    raw.name = name.c_str();
    raw.cost = cost;
    check(emit_->layer(sink_, &raw));
  }
  void input(const Port& port) const { push(emit_->input, port); }
  void output(const Port& port) const { push(emit_->output, port); }
  void tensor(const char* state, const Port& port) const {
    fastllm_port raw = to_raw(port);
    check(emit_->tensor(sink_, state, &raw));
  }
  void parameter(const Parameter& p) const {
    fastllm_param raw{};
    raw.size = sizeof raw;
    raw.flags = p.flags;
    raw.name = p.name.c_str();
    raw.dtype = p.dtype;
    raw.ndim = int32_t(p.shape.size());
    raw.init = p.init;
    raw.shape = p.shape.data();
    raw.shard_group = p.shard_group.empty() ? nullptr : p.shard_group.c_str();
    raw.shard_dim = p.shard_dim;
    raw.shard_blocks = p.shard_blocks;
    raw.shard_unit = p.shard_unit;
    raw.init_a = p.init_a;
    raw.init_b = p.init_b;
    raw.init_min = p.init_min;
    raw.init_max = p.init_max;
    raw.weight_decay = p.weight_decay;
    raw.lr_scale_count = int32_t(p.lr_scales.size());
    raw.lr_scales = p.lr_scales.data();
    check(emit_->param(sink_, &raw));
  }
  const fastllm_emit* emit() const { return emit_; }
  fastllm_sink* sink() const { return sink_; }

 private:
  static fastllm_port to_raw(const Port& port) {
    fastllm_port raw{};
    raw.size = sizeof raw;
    raw.flags = port.flags;
    raw.name = port.name.c_str();
    raw.dtype = port.dtype;
    raw.ndim = int32_t(port.shape.size());
    raw.shape = port.shape.data();
    return raw;
  }
  void push(fastllm_status (*function)(fastllm_sink*, const fastllm_port*),
            const Port& port) const {
    fastllm_port raw = to_raw(port);
    check(function(sink_, &raw));
  }
  const fastllm_emit* emit_;
  fastllm_sink* sink_;
};

}  // namespace fastllm::sdk
