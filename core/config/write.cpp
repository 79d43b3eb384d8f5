// Writes trees as YAML and JSON.
#include <algorithm>
#include <numeric>

#include "core/config/node.hpp"
#include "core/config/scalar.hpp"

namespace fastllm::config {
namespace {

using Kind = Node::Kind;

std::string scalar(const Node& node) {
  return node.kind() == Kind::kText ? yaml_text(node.as_text()) : node.scalar_text();
}

std::vector<size_t> entry_order(const Node& map, bool sort_keys) {
  std::vector<size_t> order(map.size());
  std::iota(order.begin(), order.end(), size_t(0));
  if (sort_keys) {
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return map.key(a) < map.key(b); });
  }
  return order;
}

class YamlWriter {
 public:
  explicit YamlWriter(bool sort_keys) : sort_keys_(sort_keys) {}

  // indent: of the lines of this value. inline_start: the first line's indent is written already
  // ("- ").
  void block(const Node& node, size_t indent, bool inline_start) {
    bool map = node.kind() == Kind::kMap;
    for (size_t i : map ? entry_order(node, sort_keys_) : entry_order(node, false)) {
      if (!inline_start) text.append(indent, ' ');
      inline_start = false;
      const Node& value = node.at(i);
      if (map) {
        text += yaml_text(node.key(i)) + ":";
        after_key(value, indent);
      } else {
        text += "-";
        after_dash(value, indent);
      }
    }
  }

  std::string text;

 private:
  void after_key(const Node& value, size_t indent) {
    if (value.is_scalar() || value.size() == 0) return short_value(value);
    text += '\n';
    block(value, value.kind() == Kind::kMap ? indent + 2 : indent, false);
  }
  void after_dash(const Node& value, size_t indent) {
    if (value.is_scalar() || value.size() == 0) return short_value(value);
    text += ' ';
    block(value, indent + 2, true);
  }
  void short_value(const Node& value) {
    text += ' ';
    text += value.is_scalar() ? scalar(value) : value.kind() == Kind::kMap ? "{}" : "[]";
    text += '\n';
  }
  bool sort_keys_;
};

void write_json(const Node& node, int indent, int level, std::string& text) {
  auto new_line = [&](int at) {
    if (indent < 0) return;
    text += '\n';
    text.append(size_t(at) * size_t(indent), ' ');
  };
  switch (node.kind()) {
    case Kind::kText:
      text += json_text(node.as_text());
      return;
    case Kind::kFloat:
      text += json_real(node.as_real());
      return;
    case Kind::kList:
    case Kind::kMap:
      break;
    default:
      text += node.scalar_text();
      return;
  }
  bool map = node.kind() == Kind::kMap;
  text += map ? '{' : '[';
  for (size_t i = 0; i < node.size(); ++i) {
    if (i > 0) text += indent < 0 ? ", " : ",";
    new_line(level + 1);
    if (map) text += json_text(node.key(i)) + ": ";
    write_json(node.at(i), indent, level + 1, text);
  }
  if (node.size() > 0) new_line(level);
  text += map ? '}' : ']';
}

}  // namespace

std::string to_yaml(const Node& node, bool sort_keys) {
  if (node.is_scalar()) return scalar(node) + "\n";
  if (node.size() == 0) return node.kind() == Kind::kMap ? "{}\n" : "[]\n";
  YamlWriter writer(sort_keys);
  writer.block(node, 0, false);
  return std::move(writer.text);
}

std::string to_json(const Node& node, int indent) {
  std::string text;
  write_json(node, indent, 0, text);
  return text;
}

}  // namespace fastllm::config
