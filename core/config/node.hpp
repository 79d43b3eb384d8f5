// A tree of configuration values: what YAML holds, with the place each value came from.
// Used for the resolved configuration, for metadata in checkpoints, and for foreign configurations.
// Paths are keys joined by dots; a dot inside a key is written "\."; list entries are numbers; ""
// is the node itself.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fastllm::config {

// Where a value was written. line 0: no line (a default, the command line).
struct Mark {
  // "train.yaml", "command line"; null: made by the program
  std::shared_ptr<const std::string> source;
  int line = 0;
  std::string text() const;  // "train.yaml:14", "command line", ""
};

class Node {
 public:
  enum class Kind { kNull, kBool, kInt, kFloat, kText, kList, kMap };

  Node() = default;  // null
  static Node boolean(bool value);
  static Node integer(int64_t value);
  static Node real(double value, std::string spelling = {});
  static Node text(std::string value);
  // An integer of any size, kept as its digits (the seed shifts have 100 bits).
  static Node big_integer(std::string digits);
  static Node list();
  static Node map();

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_scalar() const { return kind_ != Kind::kList && kind_ != Kind::kMap; }
  static const char* kind_name(Kind kind);  // "a number", "a block", ... for messages

  // Scalars. Each throws Error(kInvalid) that names the expected and the found kind and the mark.
  bool as_bool() const;
  int64_t as_int() const;  // refuses what does not fit 64 bits
  double as_real() const;  // takes an integer too
  const std::string& as_text() const;
  std::string spelling() const;  // a scalar as its file spells it ("1.0e-4"), else scalar_text()
  // any scalar in its plain YAML form, floats as a YAML 1.1 reader takes them for floats
  std::string scalar_text() const;

  // Lists and maps; a map keeps the order of insertion.
  size_t size() const;  // entries; 0 for scalars
  const Node& at(size_t index) const;
  Node& at(size_t index);
  const std::string& key(size_t index) const;  // maps only
  void append(Node value);                     // lists only
  // Looks below this node. Null pointer: absent.
  const Node* find(std::string_view path) const;
  Node* find(std::string_view path);
  bool has(std::string_view path) const { return find(path) != nullptr; }
  // Sets the value at the path and makes the maps on the way; the value replaces what was there.
  Node& set(std::string_view path, Node value);
  // One level, key taken literally (no dots read as steps).
  const Node* child(std::string_view key) const;
  Node* child(std::string_view key);
  Node& set_child(std::string_view key, Node value);
  Node& append_child(std::string key, Node value);  // the key must be new; not searched for
  bool erase_child(std::string_view key);

  // Value at a path; throws when it is absent. T: bool, int64_t, double, std::string.
  template <class T>
  T get(std::string_view path) const;
  // nullopt: absent or null.
  template <class T>
  std::optional<T> get_optional(std::string_view path) const;
  // List of scalars; absent or null: empty.
  template <class T>
  std::vector<T> get_list(std::string_view path) const;

  bool operator==(const Node& other) const;  // by value; marks and explicitness do not count

  Mark mark;
  bool explicitly_set = false;  // by file or command line, not by a default

 private:
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  double real_ = 0;
  std::string text_;  // text, the digits of an integer, or how the file spells a real number
  std::vector<std::string> keys_;
  std::vector<Node> values_;
};

// Splits "a.b\.c.0" into a, "b.c", 0.
std::vector<std::string> split_path(std::string_view path);
std::string join_path(std::string_view prefix, std::string_view key);  // escapes dots of `key`

// YAML 1.2 core schema, strict: repeated keys, `<<`, anchors that loop and several documents are
// errors with file and line. `source` names the text in messages. Throws Error(kInvalid) listing
// every problem found, one a line.
Node parse_yaml(std::string_view text, const std::string& source);
// The same for JSON (whose values carry no lines). Numbers beyond 64 bits keep their digits.
Node parse_json(std::string_view text, const std::string& source);
// Block style, two spaces, list items at the indent of their key; floats so that a YAML 1.1 reader
// sees floats. sort_keys: ascending, as checkpoints want it.
std::string to_yaml(const Node& node, bool sort_keys = false);
// Numbers that are not finite become null: JSON has no word for them.
std::string to_json(const Node& node, int indent = -1);

}  // namespace fastllm::config
