// What a dump of some verbosity holds, and its printed form (docs/compatibility.md).
#include <fmt/format.h>

#include "core/config/resolve.hpp"
#include "core/config/schema_impl.hpp"
#include "core/config/value.hpp"

namespace fastllm::config {
namespace {

using Kind = Node::Kind;

class Dumper {
 public:
  Dumper(const Schema& schema, int verbosity) : schema_(schema), verbosity_(verbosity) {}

  Node block(const Block& declared, const Node& resolved) const {
    Node out = Node::map();
    for (const Entry& entry : declared.entries) {
      if (entry.key == kAnyName) continue;
      const Node* value = resolved.child(entry.key);
      if (!value) continue;
      if (entry.field) {
        if (is_shown(*entry.field, *value)) out.append_child(entry.key, *value);
        continue;
      }
      Node made = entry.block ? block(*entry.block, *value) : nested(*entry.nested, *value);
      if (made.size() > 0 || everything()) out.append_child(entry.key, std::move(made));
    }
    for (size_t i = 0; declared.named() && i < resolved.size(); ++i) {
      if (declared.find(resolved.key(i)) || resolved.at(i).kind() != Kind::kMap) continue;
      out.append_child(resolved.key(i), block(*declared.named(), resolved.at(i)));
    }
    return out;
  }

 private:
  bool everything() const { return verbosity_ < 0; }

  bool is_shown(const Field& field, const Node& value) const {
    if (field.derived) return false;
    if (everything()) return true;
    if (!value.is_scalar()) return value.size() > 0;
    return field.level <= verbosity_ || !(value == default_value(field));
  }

  Node nested(const Nested& declared, const Node& value) const {
    if (declared.form == Nested::Form::kOne) return typed_block(declared, value);
    bool list = declared.form == Nested::Form::kList;
    Node out = list ? Node::list() : Node::map();
    for (size_t i = 0; i < value.size(); ++i) {
      Node made = typed_block(declared, value.at(i));
      if (list)
        out.append(std::move(made));
      else
        out.append_child(value.key(i), std::move(made));
    }
    return out;
  }

  Node typed_block(const Nested& declared, const Node& value) const {
    const Node* type = value.child("type");
    const auto& blocks = family_of(schema_, declared).blocks;
    auto found = type && type->kind() == Kind::kText ? blocks.find(type->as_text()) : blocks.end();
    return found == blocks.end() ? value : block(found->second, value);
  }

  const Schema& schema_;
  int verbosity_;
};

}  // namespace

Node dump(const Schema& schema, const Node& resolved, int verbosity) {
  return Dumper(schema, verbosity).block(schema.impl().root, resolved);
}

std::string printed(const Node& dumped, const std::string& title) {
  constexpr int kWidth = 60;
  return fmt::format("\n{:-^{}}\n{}{:-^{}}", " " + title + " ", kWidth, to_yaml(dumped), " end ",
                     kWidth);
}

}  // namespace fastllm::config
