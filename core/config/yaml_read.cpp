// Reads YAML from yaml-cpp's events, which carry what its tree hides: repeated keys, quoting,
// anchors.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <sstream>

#include "core/base/error.hpp"
#include "core/config/builder.hpp"
#include "core/config/node.hpp"
#include "core/config/scalar.hpp"

namespace fastllm::config {
namespace {

using Kind = Node::Kind;
constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";

int line_of(const YAML::Mark& mark) { return mark.line + 1; }

class Events : public YAML::EventHandler {
 public:
  explicit Events(const std::string& source) : builder(source) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 2) {
      builder.stop(line_of(mark),
                   "expected one document, found a second one; remove it and its ---");
    }
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (lost_) return;
    if (builder.awaits_key()) return bad_key(mark, "null");
    // An absent value has the place of whatever follows it; the place to show is its key's.
    int line = builder.awaits_value_of_key() ? builder.key_line() : line_of(mark);
    deliver(Node(), line, anchor);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& text) override {
    if (lost_) return;
    int line = line_of(mark);
    if (!builder.awaits_key()) return deliver(scalar(tag, text, line), line, anchor);
    if (tag == "?" && text == "<<")
      builder.problem(
          line, "expected keys written out, found the merge key <<; copy the merged keys here");
    if (anchor != YAML::NullAnchor)
      keep(anchor, Node::text(text), sizeof(Node) + text.size(), line);
    builder.key(text, line);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (lost_) return;
    int line = line_of(mark);
    auto found = anchors_.find(anchor);
    if (found == anchors_.end())
      builder.stop(line,
                   "expected an alias of a finished value, found one inside the value it names");
    const auto& [node, bytes] = found->second;
    if (builder.awaits_key()) {
      if (!node.is_scalar()) return bad_key(mark, "an alias of a block or list");
      return builder.key(node.scalar_text(), line);
    }
    builder.reserve(bytes, line);
    builder.value(node, line, bytes);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Kind::kList, "seq", mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Kind::kMap, "map", mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

  Node finish() {
    if (lost_) builder.stop(lost_line_, lost_text_);
    return builder.finish();
  }

  Builder builder;

 private:
  void open(Kind kind, std::string_view name, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    if (lost_) return;
    if (builder.awaits_key()) return bad_key(mark, "a block or list");
    if (!tag.empty() && tag != "?" && tag != "!" &&
        tag != std::string(kCoreTag) + std::string(name))
      foreign_tag(tag, line_of(mark));
    builder.open(kind, line_of(mark));
    open_.push_back({anchor, line_of(mark)});
  }

  // The parser takes an unclosed list for a key, and tells so only at the end: its word comes
  // first. What follows has no place in the tree.
  void bad_key(const YAML::Mark& mark, const std::string& found) {
    lost_ = true;
    lost_line_ = line_of(mark);
    lost_text_ = "expected a text as key, found " + found;
  }

  void close() {
    if (lost_) return;
    auto [anchor, line] = open_.back();
    open_.pop_back();
    builder.close([&, anchor = anchor, line = line](const Node& node, size_t bytes) {
      if (anchor != YAML::NullAnchor) keep(anchor, node, bytes, line);
    });
  }

  void deliver(Node node, int line, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) {
      keep(anchor, node, sizeof(Node) + (node.kind() == Kind::kText ? node.as_text().size() : 0),
           line);
    }
    builder.value(std::move(node), line);
  }

  void keep(YAML::anchor_t anchor, const Node& node, size_t bytes, int line) {
    builder.reserve(bytes, line);
    anchors_[anchor] = {node, bytes};
  }

  void foreign_tag(const std::string& tag, int line) {
    builder.problem(line,
                    fmt::format("expected a value without tag, found the tag {}; remove it", tag));
  }

  Node scalar(const std::string& tag, const std::string& text, int line) {
    try {
      if (tag == "?" || tag.empty()) return resolve_plain(text);
      if (tag == "!") return Node::text(text);  // in quotes, or a block of text
      if (tag.rfind(kCoreTag, 0) == 0) return tagged(tag.substr(kCoreTag.size()), text, line);
      foreign_tag(tag, line);
    } catch (const Error& error) {
      builder.problem(line, error.what());
    }
    return Node();
  }

  Node tagged(const std::string& name, const std::string& text, int line) {
    if (name == "str") return Node::text(text);
    Node node = resolve_plain(text);
    if (name == "float" && node.kind() == Kind::kInt) return Node::real(node.as_real());
    bool agrees = (name == "float" && node.kind() == Kind::kFloat) ||
                  (name == "int" && node.kind() == Kind::kInt) ||
                  (name == "bool" && node.kind() == Kind::kBool) ||
                  (name == "null" && node.is_null());
    if (!agrees) {
      builder.problem(
          line, fmt::format("expected what the tag !!{} allows, found \"{}\"; remove the tag", name,
                            text));
    }
    return node;
  }

  std::map<YAML::anchor_t, std::pair<Node, size_t>> anchors_;
  std::vector<std::pair<YAML::anchor_t, int>> open_;
  int documents_ = 0;
  bool lost_ = false;
  int lost_line_ = 0;
  std::string lost_text_;
};

}  // namespace

Node parse_yaml(std::string_view text, const std::string& source) {
  check_text(text, source);
  Events events(source);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(events)) {
    }
  } catch (const YAML::Exception& error) {
    events.builder.stop(line_of(error.mark),
                        fmt::format("expected YAML, found a mistake in its form: {}", error.msg));
  }
  return events.finish();
}

}  // namespace fastllm::config
