// Walks the declared keys beside what the user wrote, block by block, and collects problems with
// their places instead of stopping at the first.
#include "core/config/resolve.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>

#include "core/base/error.hpp"
#include "core/config/schema_impl.hpp"
#include "core/config/suggest.hpp"
#include "core/config/unknown.hpp"
#include "core/config/value.hpp"

namespace fastllm::config {
namespace {

using Kind = Node::Kind;

std::string place(const Mark& mark, const std::string& path) {
  std::string text = mark.text();
  return text.empty() || path.empty() ? text + path : text + ": " + path;
}

class Resolver {
 public:
  explicit Resolver(const Schema& schema) : schema_(schema), unknown_(schema) {}

  Resolved run(const Node& user) {
    Node copy = user;
    Resolved result;
    result.root = block(schema_.impl().root, copy, "");
    result.problems = joined_problems();
    result.warnings = std::move(warnings_);
    return result;
  }

  Node run_typed(const Nested& declared, const Node& user, const std::string& path) {
    Node copy = user;
    Node result = typed_block(declared, copy, path);
    if (std::string problems = joined_problems(); !problems.empty())
      throw Error(Status::kInvalid, problems);
    return result;
  }

 private:
  void problem(const Mark& mark, const std::string& path, const std::string& text) {
    problems_.emplace_back(mark.line, place(mark, path) + ": " + text);
  }

  // In the order of the file, then what has no line.
  std::string joined_problems() {
    auto order = [](const auto& problem) { return problem.first > 0 ? problem.first : INT_MAX; };
    std::stable_sort(problems_.begin(), problems_.end(),
                     [&](const auto& a, const auto& b) { return order(a) < order(b); });
    std::string text;
    for (const auto& [line, sentence] : problems_) text += (text.empty() ? "" : "\n") + sentence;
    return text;
  }

  // Old names move to where they belong now, before anything else looks at the block.
  void convert_aliases(const Block& declared, Node& user, const std::string& path) {
    for (const Alias& alias : declared.aliases) {
      Node* found = user.find(alias.old_path);
      if (!found) continue;
      Node value = *found;
      erase(user, split_path(alias.old_path));
      std::string old_path = below(path, alias.old_path), new_path = below(path, alias.path);
      std::string at = place(value.mark, old_path);
      warnings_.push_back(fmt::format("{}: old name; write {}", at, new_path));
      const Entry* entry = find_entry(declared, alias.path);
      const Field* field = entry ? entry->field.get() : nullptr;
      if (field && field->choices.size() >= 2 && value.kind() == Kind::kBool) {
        Node choice = Node::text(field->choices[value.as_bool() ? 1 : 0]);
        choice.mark = value.mark;
        choice.explicitly_set = true;
        value = std::move(choice);
      }
      if (const Node* other = user.find(alias.path); other && !(*other == value)) {
        problem(value.mark, old_path,
                fmt::format("old name of {}, which has another value ({}{}); remove this one",
                            new_path, found_text(*other),
                            other->mark.text().empty() ? "" : " at " + other->mark.text()));
        continue;
      }
      try {
        user.set(alias.path, std::move(value));
      } catch (const Error&) {
        // A block on the way is no block: reported where that block is checked.
      }
    }
  }

  static std::string below(const std::string& block, const std::string& path) {
    return block.empty() ? path : block + "." + path;
  }

  // Removes the value and the blocks that are empty without it.
  static void erase(Node& root, const std::vector<std::string>& steps) {
    std::vector<Node*> blocks{&root};
    for (size_t i = 0; i + 1 < steps.size(); ++i) blocks.push_back(blocks.back()->child(steps[i]));
    for (size_t i = steps.size(); i-- > 0;) {
      blocks[i]->erase_child(steps[i]);
      if (blocks[i]->size() > 0) return;
    }
  }

  Node block(const Block& declared, Node& user, const std::string& path) {
    Node out = Node::map();
    out.mark = user.mark;
    out.explicitly_set = user.explicitly_set;
    convert_aliases(declared, user, path);
    std::vector<std::string> known;
    for (const Entry& entry : declared.entries)
      if (entry.key != kAnyName) known.push_back(entry.key);
    std::vector<size_t> named;  // blocks of the user's own naming
    for (size_t i = 0; i < user.size(); ++i) {
      if (user.key(i) != kAnyName && declared.find(user.key(i))) continue;
      if (declared.named() && user.at(i).kind() == Kind::kMap) {
        named.push_back(i);
        continue;
      }
      for (const UnknownKey& unknown : unknown_.explain(path, known, user.key(i), user.at(i)))
        problem(unknown.mark, unknown.path, unknown.text);
    }
    for (const Entry& entry : declared.entries) {
      if (entry.key == kAnyName) continue;
      std::string full = join_path(path, entry.key);
      Node* value = user.child(entry.key);
      Node made = entry.field    ? field(*entry.field, value, full, user.mark)
                  : entry.nested ? nested(*entry.nested, value, full, user.mark)
                                 : inner_block(*entry.block, value, full);
      out.append_child(entry.key, std::move(made));
    }
    for (size_t i : named) {
      const std::string full = join_path(path, user.key(i));
      if (std::string text = check_name(user.key(i)); !text.empty())
        problem(user.at(i).mark, full, text);
      out.append_child(user.key(i), block(*declared.named(), user.at(i), full));
    }
    return out;
  }

  Node inner_block(const Block& declared, Node* user, const std::string& path) {
    Node empty = Node::map();
    if (user && user->kind() == Kind::kMap) return block(declared, *user, path);
    if (user) {
      const Entry* main = user->is_null() ? nullptr : declared.main_key(*user);
      std::string hint =
          main ? fmt::format("; write {}: {}", join_path(path, main->key), written(*user))
          : user->is_null() ? "; write keys below it, or remove the line"
                            : some_keys(declared);
      problem(user->mark, path, fmt::format("is a block, not {}{}", broad_kind(*user), hint));
    }
    return block(declared, empty, path);
  }

  // "; its keys are a, b", the single values first.
  static std::string some_keys(const Block& declared) {
    constexpr size_t kMostShown = 6;
    std::vector<std::string> values, blocks;
    for (const Entry& entry : declared.entries) {
      if (entry.key == kAnyName) continue;
      if (!entry.field)
        blocks.push_back(entry.key);
      else if (!entry.field->derived && entry.field->policy == Policy::kHonoured)
        values.push_back(entry.key);
    }
    values.insert(values.end(), blocks.begin(), blocks.end());
    if (values.empty()) return "";
    const bool all = values.size() <= kMostShown;
    if (!all) values.resize(kMostShown);
    return fmt::format("; {} {}", all ? "its keys are" : "some of its keys are",
                       fmt::join(values, ", "));
  }

  // A value as it goes into a file.
  static std::string written(const Node& value) {
    if (!value.is_scalar()) return "VALUE";
    if (value.kind() != Kind::kText) return value.spelling();
    std::string yaml = to_yaml(value);
    return yaml.substr(0, yaml.size() - 1);
  }

  Node field(const Field& declared, Node* user, const std::string& path, const Mark& block_mark) {
    Node fallback = default_value(declared);
    if (!user) {
      if (declared.required) {
        problem(block_mark, path,
                fmt::format("expected {}, found nothing; add the key", expected_text(declared)));
      }
      return fallback;
    }
    if (declared.derived) {
      problem(user->mark, path, "is computed; remove the line");
      return fallback;
    }
    Node value = *user;
    if (std::string text = check_value(declared, value); !text.empty()) {
      problem(user->mark, path, text);
      return fallback;
    }
    if (declared.policy != Policy::kHonoured && !(value == fallback)) {
      if (declared.policy == Policy::kNoEffect) {
        warnings_.push_back(place(value.mark, path) + ": no effect here");
      } else {
        problem(value.mark, path,
                fmt::format("expected {}, found {}: {}", declared.fallback, found_text(value),
                            declared.policy_reason));
      }
    }
    return value;
  }

  Node nested(const Nested& declared, Node* user, const std::string& path, const Mark& block_mark) {
    switch (declared.form) {
      case Nested::Form::kOne: {
        if (user) return typed_block(declared, *user, path);
        problem(block_mark, path,
                fmt::format("expected a block with a key type, found nothing; add the key"));
        return Node::map();
      }
      case Nested::Form::kList:
        return list_of_blocks(declared, user, path, block_mark);
      case Nested::Form::kKeyed:
        return keyed_blocks(declared, user, path);
    }
    return Node();
  }

  Node list_of_blocks(const Nested& declared, Node* user, const std::string& path,
                      const Mark& block_mark) {
    Node out = Node::list();
    if (user && user->kind() != Kind::kList) {
      problem(user->mark, path,
              fmt::format("expected a list of blocks, found {}", found_text(*user)));
      return out;
    }
    size_t count = user ? user->size() : 0;
    if (count < declared.minimum) {
      problem(
          user ? user->mark : block_mark, path,
          fmt::format("expected a list of at least {} blocks, found {}", declared.minimum, count));
    }
    if (!user) return out;
    out.mark = user->mark;
    out.explicitly_set = user->explicitly_set;
    for (size_t i = 0; i < count; ++i)
      out.append(typed_block(declared, user->at(i), join_path(path, std::to_string(i))));
    return out;
  }

  Node keyed_blocks(const Nested& declared, Node* user, const std::string& path) {
    Node out = Node::map();
    if (!user) return out;
    if (user->kind() != Kind::kMap) {
      problem(user->mark, path,
              fmt::format("is a block, not {}; its keys are {}", broad_kind(*user),
                          fmt::join(declared.keys, ", ")));
      return out;
    }
    out.mark = user->mark;
    out.explicitly_set = user->explicitly_set;
    std::vector<size_t> named;
    for (size_t i = 0; i < user->size(); ++i) {
      const auto& keys = declared.keys;
      if (std::find(keys.begin(), keys.end(), user->key(i)) != keys.end()) continue;
      if (declared.free_names && user->at(i).kind() == Kind::kMap &&
          !unknown_.is_later_name(join_path(path, user->key(i)))) {
        named.push_back(i);
        continue;
      }
      for (const UnknownKey& unknown : unknown_.explain(path, keys, user->key(i), user->at(i)))
        problem(unknown.mark, unknown.path, unknown.text);
    }
    for (const std::string& key : declared.keys) {
      if (Node* value = user->child(key))
        out.append_child(key, typed_block(declared, *value, join_path(path, key)));
    }
    for (size_t i : named) {
      const std::string full = join_path(path, user->key(i));
      if (std::string text = check_name(user->key(i)); !text.empty())
        problem(user->at(i).mark, full, text);
      out.append_child(user->key(i), typed_block(declared, user->at(i), full));
    }
    return out;
  }

  static std::string type_hint(const Family& family, const std::vector<std::string>& types,
                               const std::string& name) {
    if (family.blocks.count(name)) return fmt::format("; {} has no place here", name);
    if (auto later = family.later_types.find(name); later != family.later_types.end())
      return "; " + later_text(later->second);
    std::string meant = nearest(name, types);
    return meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
  }

  Node typed_block(const Nested& declared, Node& user, const std::string& path) {
    std::vector<std::string> types = types_of(schema_, declared);
    if (user.kind() != Kind::kMap) {
      problem(user.mark, path,
              fmt::format("expected a block with a key type (one of {}), found {}",
                          fmt::join(types, ", "), found_text(user)));
      return Node::map();
    }
    const Node* type = user.child("type");
    if (!type || type->kind() != Kind::kText) {
      problem(type ? type->mark : user.mark, join_path(path, "type"),
              fmt::format("expected one of {}, found {}", fmt::join(types, ", "),
                          type ? found_text(*type) : "nothing; add the key"));
      return Node::map();
    }
    const Family& family = family_of(schema_, declared);
    const std::string& name = type->as_text();
    if (std::find(types.begin(), types.end(), name) == types.end()) {
      problem(type->mark, join_path(path, "type"),
              fmt::format("expected one of {}, found {}{}", fmt::join(types, ", "), name,
                          type_hint(family, types, name)));
      return Node::map();
    }
    return block(family.blocks.at(name), user, path);
  }

  const Schema& schema_;
  UnknownKeys unknown_;
  std::vector<std::pair<int, std::string>> problems_;  // line, sentence
  std::vector<std::string> warnings_;
};

}  // namespace

Resolved examine(const Schema& schema, const Node& user) { return Resolver(schema).run(user); }

Resolved resolve(const Schema& schema, const Node& user) {
  Resolved result = examine(schema, user);
  if (!result.problems.empty()) throw Error(Status::kInvalid, result.problems);
  return result;
}

Node resolve_typed(const Schema& schema, const std::string& family, const Node& user,
                   const std::string& path) {
  Nested declared;
  declared.family = family;
  return Resolver(schema).run_typed(declared, user, path);
}

std::string where(const Node& root, const std::string& path) {
  const Node* node = root.find(path);
  return node && node->explicitly_set ? place(node->mark, path) : path;
}

}  // namespace fastllm::config
