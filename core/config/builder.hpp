// Builds a tree from a parser's events, bounded before it grows: depth, and memory whatever aliases
// multiply. Collects problems with their lines instead of stopping at the first. Internal to
// core/config.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/config/node.hpp"

namespace fastllm::config {

constexpr size_t kMaximumTextBytes = size_t(64) << 20;
constexpr size_t kMaximumDepth = 64;
constexpr size_t kMaximumTreeBytes = size_t(512) << 20;

// Throws when the text is too long or not UTF-8.
void check_text(std::string_view text, const std::string& source);

class Builder {
 public:
  explicit Builder(const std::string& source);

  bool awaits_key() const;
  int key_line() const { return open_.empty() ? 0 : open_.back().key_line; }
  bool awaits_value_of_key() const { return !open_.empty() && open_.back().has_key; }

  void key(const std::string& key, int line);
  // A finished value; bytes: what it takes in memory (0: a scalar, computed here). Returns those
  // bytes.
  size_t value(Node node, int line, size_t bytes = 0);
  void open(Node::Kind kind, int line);
  // The finished list or map is passed to `keep` with its size before it goes to its parent.
  template <class Keep>
  void close(Keep&& keep) {
    Frame frame = std::move(open_.back());
    open_.pop_back();
    keep(frame.node, frame.bytes);
    hand_over(std::move(frame.node), frame.line, frame.bytes);
  }
  // Counts a copy that is about to be made, and stops when that is too much.
  void reserve(size_t bytes, int line);

  void problem(int line, const std::string& text);
  [[noreturn]] void stop(int line, const std::string& text);
  // The tree; throws all problems.
  Node finish();

 private:
  struct Frame {
    Node node;
    int line = 0;
    size_t bytes = 0;
    bool has_key = false, repeated = false;
    std::string key;
    int key_line = 0;
    std::unordered_map<std::string, int> lines;  // of the keys so far
  };
  void hand_over(Node node, int line, size_t bytes);
  std::string path_of(const std::string& key) const;

  std::shared_ptr<const std::string> source_;
  std::string problems_;
  Node root_;
  std::vector<Frame> open_;
  size_t bytes_ = 0;
};

}  // namespace fastllm::config
