// Values, children, and paths through them; every wrong access names what was there.
#include "core/config/node.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "core/base/error.hpp"
#include "core/config/scalar.hpp"

namespace fastllm::config {
namespace {

std::string at(const Mark& mark) {
  std::string place = mark.text();
  return place.empty() ? "" : " (" + place + ")";
}

// What a message shows of a value: a scalar in quotes where it is text, a kind for the rest.
std::string shown(const Node& node) {
  if (!node.is_scalar() || node.is_null()) return Node::kind_name(node.kind());
  std::string text = node.scalar_text();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return fmt::format("{} {}", Node::kind_name(node.kind()), text);
}

[[noreturn]] void wrong_kind(const char* expected, const Node& node) {
  throw Error(Status::kInvalid,
              fmt::format("expected {}, found {}{}", expected, shown(node), at(node.mark)));
}

// Number of a list entry in a path; npos: not a number.
size_t list_index(std::string_view step) {
  size_t index = 0;
  auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), index);
  return error == std::errc{} && end == step.data() + step.size() ? index : size_t(-1);
}

}  // namespace

std::string Mark::text() const {
  if (!source) return "";
  return line > 0 ? fmt::format("{}:{}", *source, line) : *source;
}

Node Node::boolean(bool value) {
  Node node;
  node.kind_ = Kind::kBool;
  node.bool_ = value;
  return node;
}

Node Node::integer(int64_t value) { return big_integer(std::to_string(value)); }

Node Node::real(double value, std::string spelling) {
  Node node;
  node.kind_ = Kind::kFloat;
  node.real_ = value;
  node.text_ = std::move(spelling);
  return node;
}

Node Node::text(std::string value) {
  Node node;
  node.kind_ = Kind::kText;
  node.text_ = std::move(value);
  return node;
}

Node Node::big_integer(std::string digits) {
  Node node;
  node.kind_ = Kind::kInt;
  node.text_ = std::move(digits);
  return node;
}

Node Node::list() {
  Node node;
  node.kind_ = Kind::kList;
  return node;
}

Node Node::map() {
  Node node;
  node.kind_ = Kind::kMap;
  return node;
}

const char* Node::kind_name(Kind kind) {
  switch (kind) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return "a boolean";
    case Kind::kInt:
      return "an integer";
    case Kind::kFloat:
      return "a number";
    case Kind::kText:
      return "a text";
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a block";
  }
  return "?";
}

bool Node::as_bool() const {
  if (kind_ != Kind::kBool) wrong_kind("true or false", *this);
  return bool_;
}

int64_t Node::as_int() const {
  if (kind_ != Kind::kInt) wrong_kind("an integer", *this);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error != std::errc{}) wrong_kind("an integer of at most 64 bits", *this);
  return value;
}

double Node::as_real() const {
  if (kind_ == Kind::kFloat) return real_;
  if (kind_ != Kind::kInt) wrong_kind("a number", *this);
  double value = 0;
  auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
  if (error != std::errc{}) wrong_kind("a number that a double can hold", *this);
  return value;
}

const std::string& Node::as_text() const {
  if (kind_ != Kind::kText) wrong_kind("a text", *this);
  return text_;
}

std::string Node::scalar_text() const {
  switch (kind_) {
    case Kind::kNull:
      return "null";
    case Kind::kBool:
      return bool_ ? "true" : "false";
    case Kind::kInt:
      return text_;
    case Kind::kFloat:
      return yaml_real(real_);
    case Kind::kText:
      return text_;
    default:
      wrong_kind("a single value", *this);
  }
}

std::string Node::spelling() const {
  return kind_ == Kind::kFloat && !text_.empty() ? text_ : scalar_text();
}

size_t Node::size() const { return values_.size(); }

const Node& Node::at(size_t index) const {
  FASTLLM_ASSERT(index < values_.size());
  return values_[index];
}

Node& Node::at(size_t index) {
  FASTLLM_ASSERT(index < values_.size());
  return values_[index];
}

const std::string& Node::key(size_t index) const {
  FASTLLM_ASSERT(index < keys_.size());
  return keys_[index];
}

void Node::append(Node value) {
  FASTLLM_ASSERT(kind_ == Kind::kList);
  values_.push_back(std::move(value));
}

const Node* Node::child(std::string_view key) const {
  for (size_t i = 0; i < keys_.size(); ++i)
    if (keys_[i] == key) return &values_[i];
  return nullptr;
}

Node* Node::child(std::string_view key) {
  return const_cast<Node*>(std::as_const(*this).child(key));
}

Node& Node::set_child(std::string_view key, Node value) {
  FASTLLM_ASSERT(kind_ == Kind::kMap);
  if (Node* existing = child(key)) return *existing = std::move(value);
  return append_child(std::string(key), std::move(value));
}

Node& Node::append_child(std::string key, Node value) {
  FASTLLM_ASSERT(kind_ == Kind::kMap);
  keys_.push_back(std::move(key));
  values_.push_back(std::move(value));
  return values_.back();
}

bool Node::erase_child(std::string_view key) {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] != key) continue;
    keys_.erase(keys_.begin() + ptrdiff_t(i));
    values_.erase(values_.begin() + ptrdiff_t(i));
    return true;
  }
  return false;
}

const Node* Node::find(std::string_view path) const {
  const Node* node = this;
  for (const std::string& step : split_path(path)) {
    if (node->kind_ == Kind::kList) {
      size_t index = list_index(step);
      node = index < node->values_.size() ? &node->values_[index] : nullptr;
    } else {
      node = node->child(step);
    }
    if (!node) return nullptr;
  }
  return node;
}

Node* Node::find(std::string_view path) {
  return const_cast<Node*>(std::as_const(*this).find(path));
}

Node& Node::set(std::string_view path, Node value) {
  Node* node = this;
  std::string walked;
  for (const std::string& step : split_path(path)) {
    if (node->kind_ == Kind::kList) {
      size_t index = list_index(step);
      if (index >= node->values_.size()) {
        throw Error(Status::kInvalid,
                    fmt::format("{}: expected the number of one of {} list entries, found \"{}\"",
                                walked, node->values_.size(), step));
      }
      node = &node->values_[index];
    } else {
      if (node->kind_ == Kind::kNull) node->kind_ = Kind::kMap;
      if (node->kind_ != Kind::kMap) {
        throw Error(Status::kInvalid,
                    fmt::format("{}: expected a block to put \"{}\" in, found {}{}", walked, step,
                                shown(*node), config::at(node->mark)));
      }
      Node* next = node->child(step);
      node = next ? next : &node->set_child(step, Node());
    }
    walked = join_path(walked, step);
  }
  return *node = std::move(value);
}

namespace {

template <class T>
T convert(const Node& node) {
  if constexpr (std::is_same_v<T, bool>)
    return node.as_bool();
  else if constexpr (std::is_same_v<T, int64_t>)
    return node.as_int();
  else if constexpr (std::is_same_v<T, double>)
    return node.as_real();
  else
    return node.as_text();
}

// Puts the path in front of what a conversion says.
template <class T>
T convert_at(const Node& node, std::string_view path) {
  try {
    return convert<T>(node);
  } catch (Error& error) {
    throw error.add_context(std::string(path));
  }
}

}  // namespace

template <class T>
T Node::get(std::string_view path) const {
  const Node* node = find(path);
  if (!node) {
    throw Error(Status::kInvalid,
                fmt::format("{}: expected a value, found none{}", path, config::at(mark)));
  }
  return convert_at<T>(*node, path);
}

template <class T>
std::optional<T> Node::get_optional(std::string_view path) const {
  const Node* node = find(path);
  if (!node || node->is_null()) return std::nullopt;
  return convert_at<T>(*node, path);
}

template <class T>
std::vector<T> Node::get_list(std::string_view path) const {
  std::vector<T> result;
  const Node* node = find(path);
  if (!node || node->is_null()) return result;
  if (node->kind_ != Kind::kList) {
    throw Error(Status::kInvalid, fmt::format("{}: expected a list, found {}{}", path, shown(*node),
                                              config::at(node->mark)));
  }
  for (const Node& entry : node->values_) result.push_back(convert_at<T>(entry, path));
  return result;
}

#define FASTLLM_INSTANTIATE(T)                                             \
  template T Node::get<T>(std::string_view) const;                         \
  template std::optional<T> Node::get_optional<T>(std::string_view) const; \
  template std::vector<T> Node::get_list<T>(std::string_view) const;
FASTLLM_INSTANTIATE(bool)
FASTLLM_INSTANTIATE(int64_t)
FASTLLM_INSTANTIATE(double)
FASTLLM_INSTANTIATE(std::string)
#undef FASTLLM_INSTANTIATE

bool Node::operator==(const Node& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kNull:
      return true;
    case Kind::kBool:
      return bool_ == other.bool_;
    case Kind::kFloat:
      return real_ == other.real_ || (std::isnan(real_) && std::isnan(other.real_));
    case Kind::kInt:
    case Kind::kText:
      return text_ == other.text_;
    case Kind::kList:
      return values_ == other.values_;
    case Kind::kMap:
      break;
  }
  if (size() != other.size()) return false;
  for (size_t i = 0; i < size(); ++i) {
    const Node* twin = other.child(keys_[i]);
    if (!twin || !(*twin == values_[i])) return false;
  }
  return true;
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> steps;
  if (path.empty()) return steps;
  steps.emplace_back();
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '\\' && i + 1 < path.size() && path[i + 1] == '.') {
      steps.back() += path[++i];
    } else if (path[i] == '.') {
      steps.emplace_back();
    } else {
      steps.back() += path[i];
    }
  }
  return steps;
}

std::string join_path(std::string_view prefix, std::string_view key) {
  std::string path(prefix);
  if (!path.empty()) path += '.';
  for (char c : key) {
    if (c == '.') path += '\\';
    path += c;
  }
  return path;
}

}  // namespace fastllm::config
