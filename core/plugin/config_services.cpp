// The config_* functions of the host's table. Each locks the tree of its handle, looks the path up
// anew, and writes results only when nothing failed.
#include "core/plugin/config_services.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "core/base/error.hpp"
#include "core/plugin/host_services.hpp"

namespace fastllm::plugin {
namespace {

using config::Node;
constexpr int64_t kMaxListEntries = 1 << 24;

std::string joined(const std::string& base, std::string_view path) {
  if (base.empty()) return std::string(path);
  if (path.empty()) return base;
  return base + "." + std::string(path);
}

// "train.yaml:14: model.heads" or what is known of it.
std::string place(const Node* node, const std::string& path) {
  std::string mark = node ? node->mark.text() : "";
  std::string name = path.empty() ? "the node itself" : path;
  return mark.empty() ? name : mark + ": " + name;
}

[[noreturn]] void refuse(const Node* node, const std::string& path, const std::string& text) {
  throw Error(Status::kInvalid, fmt::format("{}: {}", place(node, path), text));
}

const char* type_text(int32_t type) {
  switch (type) {
    case FASTLLM_I64:
      return "an integer";
    case FASTLLM_F64:
      return "a number";
    case FASTLLM_BOOL:
      return "true or false";
    case FASTLLM_STR:
      return "a text";
    case FASTLLM_NODE:
      return "a block";
    case FASTLLM_I64_LIST:
      return "a list of integers";
    case FASTLLM_F64_LIST:
      return "a list of numbers";
    case FASTLLM_STR_LIST:
      return "a list of texts";
    default:
      return nullptr;
  }
}

// One access: the locked tree, the whole path, and the node found there.
struct Access {
  Access(const fastllm_config* config, const char* path_text) {
    if (!config || !path_text)
      throw Error(Status::kInvalid, "expected a configuration node and a path, found NULL");
    tree = config->tree;
    path = joined(config->path, path_text);
    lock = std::unique_lock(tree->mutex());
    node = tree->node().find(path);
  }
  // Of what the caller gives besides.
  void need(const void* given, const char* what) const {
    if (!given)
      throw Error(Status::kInvalid, fmt::format("{}: expected {}, found NULL", path, what));
  }
  ConfigTree* tree = nullptr;
  std::string path;
  std::unique_lock<std::mutex> lock;
  Node* node = nullptr;  // null: absent
};

int64_t integer(const Node& node, const std::string& path, int32_t type) {
  if (node.kind() != Node::Kind::kInt)
    refuse(&node, path,
           fmt::format("expected {}, found {}", type_text(type), Node::kind_name(node.kind())));
  return node.as_int();
}

double real(const Node& node, const std::string& path, int32_t type) {
  if (node.kind() != Node::Kind::kInt && node.kind() != Node::Kind::kFloat) {
    refuse(&node, path,
           fmt::format("expected {}, found {}", type_text(type), Node::kind_name(node.kind())));
  }
  return node.as_real();
}

const char* text(Access& a, const Node& node, int32_t type) {
  if (!node.is_scalar())
    refuse(&node, a.path,
           fmt::format("expected {}, found {}", type_text(type), Node::kind_name(node.kind())));
  return a.tree->keep(node.kind() == Node::Kind::kText ? node.as_text() : node.scalar_text());
}

// A list, or a scalar as a list of one: config_size calls both by their number of entries.
template <class T, class Convert>
void fill_list(Access& a, int32_t type, void* value, std::optional<T> null_entry,
               Convert&& convert) {
  auto* out = static_cast<T*>(value);
  auto entry = [&](const Node& node) -> T {
    if (!node.is_null()) return convert(node);
    if (!null_entry)
      refuse(&node, a.path, fmt::format("expected {}, found a null entry", type_text(type)));
    return *null_entry;
  };
  if (a.node->kind() == Node::Kind::kMap) {
    refuse(a.node, a.path,
           fmt::format("expected {}, found {}", type_text(type), Node::kind_name(a.node->kind())));
  }
  if (a.node->kind() != Node::Kind::kList) {
    *out = entry(*a.node);
    return;
  }
  // Converted first, written then: the caller's array is untouched on failure.
  std::vector<T> values;
  for (size_t i = 0; i < a.node->size(); ++i) values.push_back(entry(a.node->at(i)));
  std::copy(values.begin(), values.end(), out);
}

fastllm_status config_get(const fastllm_config* config, const char* path, int32_t type,
                          void* value) {
  bool absent = false;
  fastllm_status status = host_function([&] {
    Access a(config, path);
    if (!value || !type_text(type)) {
      throw Error(Status::kInvalid,
                  fmt::format("{}: expected a type FASTLLM_I64 .. FASTLLM_STR_LIST and a place for "
                              "the value, found type {}{}",
                              a.path, type, value ? "" : " and NULL"));
    }
    if (!a.node || a.node->is_null()) {
      absent = true;
      return;
    }
    switch (type) {
      case FASTLLM_I64:
        *static_cast<int64_t*>(value) = integer(*a.node, a.path, type);
        break;
      case FASTLLM_F64:
        *static_cast<double*>(value) = real(*a.node, a.path, type);
        break;
      case FASTLLM_BOOL:
        if (a.node->kind() != Node::Kind::kBool)
          refuse(a.node, a.path,
                 fmt::format("expected true or false, found {}", Node::kind_name(a.node->kind())));
        *static_cast<int32_t*>(value) = a.node->as_bool();
        break;
      case FASTLLM_STR:
        *static_cast<const char**>(value) = text(a, *a.node, type);
        break;
      case FASTLLM_NODE:
        *static_cast<fastllm_config**>(value) = a.tree->handle(a.path);
        break;
      case FASTLLM_I64_LIST:
        fill_list<int64_t>(a, type, value, std::nullopt,
                           [&](const Node& n) { return integer(n, a.path, type); });
        break;
      case FASTLLM_F64_LIST:
        fill_list<double>(a, type, value, std::numeric_limits<double>::quiet_NaN(),
                          [&](const Node& n) { return real(n, a.path, type); });
        break;
      case FASTLLM_STR_LIST:
        fill_list<const char*>(a, type, value, nullptr,
                               [&](const Node& n) { return text(a, n, type); });
        break;
    }
  });
  return status == FASTLLM_OK && absent ? FASTLLM_NOT_FOUND : status;
}

template <class T, class Make>
Node list_of(const std::string& path, const void* value, int64_t count, Make&& make) {
  if (count < 0 || count > kMaxListEntries) {
    throw Error(Status::kInvalid, fmt::format("{}: expected 0 to {} entries, found {}", path,
                                              kMaxListEntries, count));
  }
  Node list = Node::list();
  for (int64_t i = 0; i < count; ++i) list.append(make(static_cast<const T*>(value)[i]));
  return list;
}

Node text_node(const char* text) { return text ? Node::text(text) : Node(); }

Node make_node(const std::string& path, int32_t type, const void* value, int64_t count) {
  if (!value && count == 0 && type >= FASTLLM_I64_LIST && type <= FASTLLM_STR_LIST)
    return Node::list();
  if (!value) return Node();
  switch (type) {
    case FASTLLM_I64:
      return Node::integer(*static_cast<const int64_t*>(value));
    case FASTLLM_F64:
      return Node::real(*static_cast<const double*>(value));
    case FASTLLM_BOOL:
      return Node::boolean(*static_cast<const int32_t*>(value) != 0);
    case FASTLLM_STR:
      return text_node(*static_cast<const char* const*>(value));
    case FASTLLM_NODE: {
      const auto* other = *static_cast<const fastllm_config* const*>(value);
      if (!other) return Node();
      const Node* node = other->tree->node().find(other->path);
      return node ? *node : Node();
    }
    case FASTLLM_I64_LIST:
      return list_of<int64_t>(path, value, count, [](int64_t v) { return Node::integer(v); });
    case FASTLLM_F64_LIST:
      return list_of<double>(path, value, count,
                             [](double v) { return std::isnan(v) ? Node() : Node::real(v); });
    case FASTLLM_STR_LIST:
      return list_of<const char*>(path, value, count, [](const char* v) { return text_node(v); });
    default:
      throw Error(
          Status::kInvalid,
          fmt::format("{}: expected a type FASTLLM_I64 .. FASTLLM_STR_LIST, found {}", path, type));
  }
}

void set_at(Access& a, Node value) {
  a.tree->check_may_set(a.path);
  if (a.path.empty()) {
    a.tree->node() = std::move(value);
  } else {
    a.tree->node().set(a.path, std::move(value));
  }
}

fastllm_status config_set(fastllm_config* config, const char* path, int32_t type, const void* value,
                          int64_t count) {
  return host_function([&] {
    Access a(config, path);
    set_at(a, make_node(a.path, type, value, count));
  });
}

fastllm_status config_size(const fastllm_config* config, const char* path, int64_t* count) {
  return host_function([&] {
    Access a(config, path);
    a.need(count, "a place for the count");
    *count = !a.node || a.node->is_null() ? -1 : a.node->is_scalar() ? 1 : int64_t(a.node->size());
  });
}

fastllm_status config_key(const fastllm_config* config, const char* path, int64_t index,
                          const char** key) {
  return host_function([&] {
    Access a(config, path);
    a.need(key, "a place for the key");
    if (!a.node || a.node->kind() != Node::Kind::kMap) {
      refuse(a.node, a.path,
             fmt::format("expected a block with keys, found {}",
                         a.node ? Node::kind_name(a.node->kind()) : "nothing"));
    }
    if (index < 0 || uint64_t(index) >= a.node->size()) {
      refuse(a.node, a.path,
             fmt::format("expected a key number below {}, found {}", a.node->size(), index));
    }
    *key = a.tree->keep(a.node->key(size_t(index)));
  });
}

fastllm_status config_parse(fastllm_config* config, const char* path, const char* text) {
  return host_function([&] {
    Access a(config, path);
    a.need(text, "a text");
    set_at(a, config::parse_yaml(text, a.path.empty() ? "text from a plugin" : a.path));
  });
}

fastllm_status config_text(const fastllm_config* config, const char* path, int32_t json,
                           const char** text) {
  return host_function([&] {
    Access a(config, path);
    a.need(text, "a place for the text");
    Node null;
    const Node& node = a.node ? *a.node : null;
    *text = a.tree->keep_latest(json ? config::to_json(node) : config::to_yaml(node));
  });
}

}  // namespace

ConfigTree::ConfigTree(Node& node, const std::vector<std::string>* declared)
    : node_(node), declared_(declared) {}

fastllm_config* ConfigTree::handle(const std::string& path) {
  auto& handle = handles_[path];
  if (!handle) handle = std::make_unique<fastllm_config>(fastllm_config{this, path});
  return handle.get();
}

const char* ConfigTree::keep(std::string_view text) { return texts_.emplace(text).first->c_str(); }

const char* ConfigTree::keep_latest(std::string text) {
  latest_ = std::move(text);
  return latest_.c_str();
}

void ConfigTree::check_may_set(const std::string& path) {
  if (!declared_) return;
  if (std::find(declared_->begin(), declared_->end(), path) == declared_->end()) {
    throw Error(
        Status::kInternal,
        fmt::format("expected config_set of a declared field, found \"{}\", which is none", path));
  }
  const Node* now = node_.find(path);
  if (now && !now->is_null() && !filled_.count(path)) {
    throw Error(
        Status::kInternal,
        fmt::format("expected config_set of a field that is null, found {} with a value already; "
                    "a plugin fills computed defaults and changes nothing else",
                    place(now, path)));
  }
  filled_.insert(path);
}

void fill_config_services(fastllm_host& table) {
  table.config_get = config_get;
  table.config_set = config_set;
  table.config_size = config_size;
  table.config_key = config_key;
  table.config_parse = config_parse;
  table.config_text = config_text;
}

}  // namespace fastllm::plugin
