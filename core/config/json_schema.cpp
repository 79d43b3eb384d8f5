// The declared keys as a JSON Schema (draft 2020-12), for editors and for machines. A file alone
// may be incomplete, since the command line adds to it: only what a typed block needs is required.
#include <fmt/format.h>

#include <cmath>

#include "core/config/resolve.hpp"
#include "core/config/scalar.hpp"
#include "core/config/schema_impl.hpp"
#include "core/config/value.hpp"

namespace fastllm::config {
namespace {

Node text(std::string value) { return Node::text(std::move(value)); }

Node number(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? Node::integer(int64_t(value))
                                                              : Node::real(value);
}

Node reference(const std::string& name) {
  Node node = Node::map();
  node.set_child("$ref", text("#/$defs/" + name));
  return node;
}

std::string definition_name(const std::string& family, const std::string& type) {
  return family + "." + type;
}

class Writer {
 public:
  explicit Writer(const Schema& schema) : schema_(schema) {}

  Node run(const std::string& title) {
    const Schema::Impl& impl = schema_.impl();
    Node out = Node::map();
    out.set_child("$schema", text("https://json-schema.org/draft/2020-12/schema"));
    out.set_child("title", text(title));
    Node root = block(impl.root);
    for (size_t i = 0; i < root.size(); ++i) out.append_child(root.key(i), std::move(root.at(i)));
    Node definitions = Node::map();
    for (const auto& [name, family] : impl.families) {
      for (const std::string& type : family.types) {
        Node typed = block(family.blocks.at(type));
        Node& required = typed.set_child("required", Node::list());
        for (const Entry& entry : family.blocks.at(type).entries) {
          bool needed = entry.key == "type" || (entry.field && entry.field->required) ||
                        (entry.nested &&
                         (entry.nested->form == Nested::Form::kOne || entry.nested->minimum > 0));
          if (needed) required.append(text(entry.key));
        }
        definitions.set_child(definition_name(name, type), std::move(typed));
      }
    }
    if (definitions.size() > 0) out.set_child("$defs", std::move(definitions));
    return out;
  }

 private:
  Node block(const Block& declared) {
    Node out = Node::map();
    out.set_child("type", text("object"));
    if (!declared.help.empty()) out.set_child("description", text(declared.help));
    Node properties = Node::map();
    for (const Entry& entry : declared.entries) {
      if (entry.key == kAnyName) continue;
      properties.append_child(entry.key, entry.field    ? field(*entry.field)
                                         : entry.nested ? nested(*entry.nested)
                                                        : block(*entry.block));
    }
    for (const Alias& alias : declared.aliases) add_alias(properties, declared, alias);
    out.set_child("properties", std::move(properties));
    out.set_child("additionalProperties",
                  declared.named() ? block(*declared.named()) : Node::boolean(false));
    return out;
  }

  // An old name, where the file would have it.
  void add_alias(Node& properties, const Block& declared, const Alias& alias) {
    const Entry* entry = find_entry(declared, alias.path);
    if (!entry || !entry->field) return;
    Node* current = &properties;
    std::vector<std::string> steps = split_path(alias.old_path);
    for (size_t i = 0; i + 1 < steps.size(); ++i) {
      Node* below = current->child(steps[i]);
      if (!below) {
        Node made = Node::map();
        made.set_child("type", text("object"));
        made.set_child("deprecated", Node::boolean(true));
        made.set_child("properties", Node::map());
        made.set_child("additionalProperties", Node::boolean(false));
        below = &current->append_child(steps[i], std::move(made));
      }
      current = below->child("properties");
      if (!current) return;
    }
    if (current->child(steps.back())) return;
    bool could_be_switch = entry->field->choices.size() >= 2;
    Node made = could_be_switch ? Node::map() : field(*entry->field);
    made.set_child("description", text("Old name of " + alias.path + "."));
    made.set_child("deprecated", Node::boolean(true));
    current->append_child(steps.back(), std::move(made));
  }

  Node nested(const Nested& declared) {
    Node one = Node::map();
    Node& choices = one.set_child("oneOf", Node::list());
    for (const std::string& type : types_of(schema_, declared))
      choices.append(reference(definition_name(declared.family, type)));
    if (declared.form == Nested::Form::kOne) {
      one.set_child("description", text(declared.help));
      return one;
    }
    Node out = Node::map();
    out.set_child("description", text(declared.help));
    if (declared.form == Nested::Form::kList) {
      out.set_child("type", text("array"));
      out.set_child("items", std::move(one));
      if (declared.minimum > 0) out.set_child("minItems", Node::integer(int64_t(declared.minimum)));
      return out;
    }
    out.set_child("type", text("object"));
    Node& properties = out.set_child("properties", Node::map());
    for (const std::string& key : declared.keys) properties.append_child(key, one);
    out.set_child("additionalProperties", declared.free_names ? one : Node::boolean(false));
    return out;
  }

  Node field(const Field& declared) {
    Node out = Node::map();
    std::string help = declared.help;
    if (declared.nullable && !declared.null_means.empty())
      help += " null: " + declared.null_means + ".";
    if (!help.empty()) out.set_child("description", text(help));
    Node value = value_of(declared);
    if (declared.nullable) allow_null(value);
    for (size_t i = 0; i < value.size(); ++i)
      out.append_child(value.key(i), std::move(value.at(i)));
    if (!declared.required) out.set_child("default", default_value(declared));
    if (declared.level == kDeprecated) out.set_child("deprecated", Node::boolean(true));
    return out;
  }

  // A scalar of the declared type, without null.
  Node scalar(const Field& declared, Type type) {
    Node out = Node::map();
    if (!declared.choices.empty()) {
      Node& list = out.set_child("enum", Node::list());
      for (const std::string& choice : declared.choices) list.append(resolve_plain(choice));
      return out;
    }
    switch (type) {
      case Type::kInt:
      case Type::kBigInt:
        out.set_child("type", text("integer"));
        break;
      case Type::kReal:
        out.set_child("type", text("number"));
        break;
      case Type::kBool:
        out.set_child("type", text("boolean"));
        break;
      default:
        out.set_child("type", text("string"));
        break;
    }
    if (std::isfinite(declared.minimum))
      out.set_child(declared.exclusive_minimum ? "exclusiveMinimum" : "minimum",
                    number(declared.minimum));
    if (std::isfinite(declared.maximum)) out.set_child("maximum", number(declared.maximum));
    return out;
  }

  Node value_of(const Field& declared) {
    Node out = Node::map();
    auto list_of = [&](Type type) {
      out.set_child("type", text("array"));
      Node items = scalar(declared, type);
      if (declared.nullable) allow_null(items);
      out.set_child("items", std::move(items));
      return out;
    };
    switch (declared.type) {
      case Type::kNode:
        return out;
      case Type::kIntList:
        return list_of(Type::kInt);
      case Type::kRealList:
        return list_of(Type::kReal);
      case Type::kTextList: {
        Node list = list_of(Type::kText);
        return declared.from_text == FromText::kRefused ? list : any_of(std::move(list), "string");
      }
      case Type::kTextDict: {
        out.set_child("type", text("object"));
        Node entry = Node::map();
        entry.set_child("type", text("string"));
        out.set_child("additionalProperties", std::move(entry));
        return out;
      }
      case Type::kDtype: {
        Node& choices = out.set_child("anyOf", Node::list());
        Node names = Node::map(), pattern = Node::map();
        Node& list = names.set_child("enum", Node::list());
        for (const std::string& name : dtype_names()) list.append(text(name));
        pattern.set_child("type", text("string"));
        pattern.set_child("pattern", text(dtype_pattern()));
        choices.append(std::move(names));
        choices.append(std::move(pattern));
        return out;
      }
      default:
        return scalar(declared, declared.type);
    }
  }

  static Node any_of(Node first, const std::string& second_type) {
    Node out = Node::map(), second = Node::map();
    second.set_child("type", text(second_type));
    Node& choices = out.set_child("anyOf", Node::list());
    choices.append(std::move(first));
    choices.append(std::move(second));
    return out;
  }

  static void allow_null(Node& value) {
    if (Node* choices = value.child("enum")) {
      choices->append(Node());
    } else if (Node* any = value.child("anyOf")) {
      Node null = Node::map();
      null.set_child("type", text("null"));
      any->append(std::move(null));
    } else if (Node* type = value.child("type")) {
      Node types = Node::list();
      types.append(*type);
      types.append(text("null"));
      *type = std::move(types);
    }
  }

  const Schema& schema_;
};

}  // namespace

std::string json_schema(const Schema& schema, const std::string& title) {
  return to_json(Writer(schema).run(title), 2);
}

}  // namespace fastllm::config
