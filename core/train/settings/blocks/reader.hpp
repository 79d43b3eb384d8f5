// How the blocks of a configuration are read: values out of the resolved tree, computed defaults
// back into it, and beside them what is wrong and what a user is told.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/interval.hpp"
#include "core/config/node.hpp"
#include "core/train/settings/problems.hpp"

namespace fastllm::train {

// A key of a block, and the variable that its value belongs in; an optional one takes null.
struct Binding {
  using Target = std::variant<bool*, int*, int64_t*, double*, std::string*, std::optional<int64_t>*,
                              std::optional<double>*, std::optional<std::string>*>;
  template <class T>
  Binding(const char* name, T& variable) : key(name), target(&variable) {}
  const char* key;
  Target target;
};

class Reader {
 public:
  explicit Reader(config::Node& root) : problems(root), root_(root) {}

  config::Node& root() { return root_; }
  const config::Node& node(const std::string& path) const;  // declared, so there is one
  template <class T>
  T get(const std::string& path) const {
    return root_.get<T>(path);
  }
  template <class T>
  std::optional<T> optional(const std::string& path) const {
    return root_.get_optional<T>(path);
  }
  // What the text of a key with choices stands for: without an entry, it and the schema disagree.
  template <class T>
  T choice(const std::string& path, const std::map<std::string, T>& values) const {
    const auto found = values.find(get<std::string>(path));
    FASTLLM_ASSERT(found != values.end());
    return found->second;
  }
  bool given(const std::string& path) const;  // by the file or the command line
  void read(const std::string& block, std::initializer_list<Binding> bindings) const;
  // A block with `interval`, `offset` and perhaps `seconds`. An offset beyond the interval is
  // reduced, in the tree too.
  Interval read_interval(const std::string& block);

  // A computed default goes into the tree.
  void fill(const std::string& path, config::Node value);
  int64_t get_or_fill(const std::string& path, int64_t computed);

  void note(const std::string& path, const std::string& text);
  // What `path` asks for is written into the run's folder.
  void require_folder(const std::string& path);

  Problems problems;
  std::vector<std::string> notes;

 private:
  config::Node& root_;
};

}  // namespace fastllm::train
