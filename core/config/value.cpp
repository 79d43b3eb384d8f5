// A check for each type of key, the sentence when it fails, and hints at what was meant.
#include "core/config/value.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.hpp"
#include "core/config/scalar.hpp"
#include "core/config/suggest.hpp"

namespace fastllm::config {
namespace {

using Kind = Node::Kind;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_number(const Node& node) {
  return node.kind() == Kind::kInt || node.kind() == Kind::kFloat;
}

// Bounds as a person writes them: 1, 0.5, 1.0e-05.
std::string bound_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{:.0f}", value)
                                                              : yaml_real(value);
}

std::string range_text(const Field& field) {
  bool low = field.minimum > -kInfinity, high = field.maximum < kInfinity;
  std::string text;
  if (low && high && !field.exclusive_minimum)
    return fmt::format(" from {} to {}", bound_text(field.minimum), bound_text(field.maximum));
  if (low)
    text += (field.exclusive_minimum ? " above " : " of at least ") + bound_text(field.minimum);
  if (high) text += (low ? " and at most " : " of at most ") + bound_text(field.maximum);
  return text;
}

bool in_range(const Field& field, double value) {
  return (field.exclusive_minimum ? value > field.minimum : value >= field.minimum) &&
         value <= field.maximum;
}

struct DtypeAlias {
  const char *alias, *name;
};
constexpr DtypeAlias kDtypeAliases[] = {
    {"fp64", "float64"}, {"fp32", "float32"}, {"fp16", "float16"}, {"bf16", "bfloat16"}};
constexpr const char* kDtypePrefixes[] = {"torch.", "np.", "numpy."};

std::string plain_dtype(std::string name) {
  for (const char* prefix : kDtypePrefixes)
    if (name.rfind(prefix, 0) == 0) {
      name.erase(0, std::string_view(prefix).size());
      break;
    }
  for (const auto& [alias, plain] : kDtypeAliases)
    if (name == alias) return plain;
  return name;
}

// "1_000", "1,000" and "1.000.000" mean 1000 and 1000000 to whoever wrote them; "": it is no such
// number.
std::string without_separators(const std::string& text) {
  std::string digits;
  size_t separators = 0, group = 0;
  char separator = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (i == 0 && (c == '-' || c == '+')) {
      if (c == '-') digits += c;
    } else if (c >= '0' && c <= '9') {
      digits += c;
      ++group;
    } else if (c == '_' || c == ',' || c == '.' || c == '\'') {
      bool thousands = c == '_' || (group <= 3 && (separators == 0 || group == 3));
      if (group == 0 || !thousands || (separator && separator != c)) return "";
      separator = c;
      ++separators;
      group = 0;
    } else {
      return "";
    }
  }
  bool complete = separator == '_' ? group > 0 : group == 3;
  return separators > 0 && complete ? digits : "";
}

// What a text was meant for where a number is declared; "": unknown.
std::string number_hint(const Node& value) {
  const std::string& text = value.as_text();
  Node plain = resolve_plain(text);
  if (is_number(plain)) return fmt::format("; write {} without quotes", text);
  if (std::string digits = without_separators(text); !digits.empty())
    return fmt::format("; write {}", digits);
  return "";
}

std::string bool_hint(const Node& value) {
  std::string text = value.scalar_text();
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const char* yes : {"on", "yes", "y", "1"})
    if (text == yes) return "; write true";
  for (const char* no : {"off", "no", "n", "0"})
    if (text == no) return "; write false";
  if (text == "true" || text == "false") return fmt::format("; write {} without quotes", text);
  return "";
}

std::string choice_hint(const Field& field, const std::string& text) {
  std::string meant = nearest(text, field.choices);
  return meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
}

std::string mismatch(const Field& field, const Node& value, const std::string& hint = "") {
  return fmt::format("expected {}, found {}{}", expected_text(field), found_text(value), hint);
}

std::string check_int(const Field& field, Node& value) {
  if (value.kind() == Kind::kBool) {
    return mismatch(
        field, value,
        fmt::format(" (a boolean never passes for a number); write {:d}", value.as_bool()));
  }
  if (value.kind() == Kind::kFloat) {
    double real = value.as_real();
    bool whole = real == std::floor(real) && std::abs(real) < 1e15;
    return mismatch(field, value, whole ? fmt::format("; write {:.0f}", real) : "");
  }
  if (value.kind() == Kind::kText) return mismatch(field, value, number_hint(value));
  if (value.kind() != Kind::kInt) return mismatch(field, value);
  if (field.type == Type::kBigInt) return "";
  try {
    value.as_int();
  } catch (const Error&) {
    return fmt::format("expected an integer of at most 64 bits, found {}", value.scalar_text());
  }
  return in_range(field, value.as_real()) ? "" : mismatch(field, value);
}

std::string check_real(const Field& field, Node& value) {
  if (value.kind() == Kind::kBool) {
    return mismatch(
        field, value,
        fmt::format(" (a boolean never passes for a number); write {:d}", value.as_bool()));
  }
  if (value.kind() == Kind::kText) return mismatch(field, value, number_hint(value));
  if (!is_number(value)) return mismatch(field, value);
  if (!std::isfinite(value.as_real())) return mismatch(field, value, "; write a finite number");
  if (!in_range(field, value.as_real())) return mismatch(field, value);
  if (value.kind() == Kind::kInt) {
    Node real = Node::real(value.as_real());
    real.mark = value.mark;
    real.explicitly_set = value.explicitly_set;
    value = std::move(real);
  }
  return "";
}

std::string check_text(const Field& field, Node& value) {
  if (!field.choices.empty()) {
    if (!value.is_scalar() || value.is_null()) return mismatch(field, value);
    std::string text = value.scalar_text();
    if (std::find(field.choices.begin(), field.choices.end(), text) == field.choices.end())
      return mismatch(field, value, choice_hint(field, text));
    // "true" among the choices is the boolean, however it was written.
    Node plain = resolve_plain(text);
    plain.mark = value.mark;
    plain.explicitly_set = value.explicitly_set;
    value = std::move(plain);
    return "";
  }
  if (value.kind() == Kind::kText) {
    if (value.as_text().find('\0') == std::string::npos) return "";
    return "expected a text without the character \\0, found one that holds it; leave it out";
  }
  return mismatch(field, value,
                  value.is_scalar() && !value.is_null()
                      ? fmt::format("; write \"{}\" in quotes", value.spelling())
                      : "");
}

std::string check_dtype(const Field& field, Node& value) {
  if (value.kind() != Kind::kText) return mismatch(field, value);
  std::string name = plain_dtype(value.as_text());
  const auto& names = dtype_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    std::string meant = nearest(name, names);
    return mismatch(field, value, meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
  }
  Node plain = Node::text(name);
  plain.mark = value.mark;
  plain.explicitly_set = value.explicitly_set;
  value = std::move(plain);
  return "";
}

std::string check_dict(const Field& field, Node& value) {
  if (value.kind() != Kind::kMap) return mismatch(field, value);
  for (size_t i = 0; i < value.size(); ++i) {
    const Node& entry = value.at(i);
    if (entry.kind() == Kind::kText) continue;
    std::string hint = entry.is_scalar() && !entry.is_null()
                           ? fmt::format("; write \"{}\" in quotes", entry.spelling())
                           : "";
    return fmt::format("expected a text for the entry {}, found {}{}", value.key(i),
                       found_text(entry), hint);
  }
  return "";
}

// Words as a shell splits them: blanks, quotes, backslashes. false: a quote stays open.
bool split_shell_words(const std::string& text, Node& words) {
  std::string word;
  bool in_word = false;
  char quote = 0;
  auto finish = [&] {
    if (in_word) words.append(Node::text(word));
    word.clear();
    in_word = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quote == '\'') {
      if (c == '\'')
        quote = 0;
      else
        word += c;
    } else if (c == '\\' && i + 1 < text.size()) {
      char next = text[++i];
      if (quote == '"' && next != '"' && next != '\\') word += '\\';
      word += next;
      in_word = true;
    } else if (quote == '"') {
      if (c == '"')
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      finish();
    } else {
      word += c;
      in_word = true;
    }
  }
  finish();
  return quote == 0;
}

std::string check_list(const Field& field, Node& value) {
  if (value.kind() == Kind::kText && field.from_text != FromText::kRefused) {
    Node list = Node::list();
    list.mark = value.mark;
    list.explicitly_set = value.explicitly_set;
    if (field.from_text == FromText::kOneEntry) {
      list.append(Node::text(value.as_text()));
    } else if (!split_shell_words(value.as_text(), list)) {
      return fmt::format("expected a command with closed quotes, found {}", found_text(value));
    }
    value = std::move(list);
    return "";
  }
  if (value.kind() != Kind::kList) {
    bool entry = value.is_scalar() && !value.is_null();
    return mismatch(field, value, entry ? fmt::format("; write [{}]", value.spelling()) : "");
  }
  Field of_entry = field;
  of_entry.type = field.type == Type::kIntList    ? Type::kInt
                  : field.type == Type::kRealList ? Type::kReal
                                                  : Type::kText;
  for (size_t i = 0; i < value.size(); ++i) {
    if (std::string problem = check_value(of_entry, value.at(i)); !problem.empty())
      return fmt::format("entry {}: {}", i, problem);
  }
  return "";
}

std::string type_text(const Field& field) {
  switch (field.type) {
    case Type::kInt:
    case Type::kBigInt:
      return "an integer" + range_text(field);
    case Type::kReal:
      return "a number" + range_text(field);
    case Type::kBool:
      return "true or false";
    case Type::kDtype:
      return fmt::format("a number type (one of {})", fmt::join(dtype_names(), ", "));
    case Type::kText:
      if (field.choices.size() == 1) return field.choices[0];
      return field.choices.empty() ? "a text"
                                   : fmt::format("one of {}", fmt::join(field.choices, ", "));
    case Type::kNode:
      return "any value";
    case Type::kIntList:
      return "a list of integers" + range_text(field);
    case Type::kRealList:
      return "a list of numbers" + range_text(field);
    case Type::kTextList:
      return "a list of texts";
    case Type::kTextDict:
      return "a block of texts";
  }
  return "?";
}

}  // namespace

Node default_value(const Field& field) {
  Node value = parse_yaml(field.fallback, "default");
  if (!value.is_null()) check_value(field, value);
  value.mark = Mark();
  value.explicitly_set = false;
  for (size_t i = 0; i < value.size(); ++i) {
    value.at(i).mark = Mark();
    value.at(i).explicitly_set = false;
  }
  return value;
}

std::string expected_text(const Field& field) {
  std::string text = type_text(field);
  if (!field.nullable) return text;
  return text +
         (field.null_means.empty() ? " or null" : fmt::format(", or null ({})", field.null_means));
}

std::string found_text(const Node& value) {
  if (value.kind() != Kind::kText)
    return value.is_scalar() ? value.spelling() : Node::kind_name(value.kind());
  std::string text = value.as_text();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  Node plain = resolve_plain(value.as_text());
  bool quoted = plain.kind() != Kind::kText;  // it would not be a text without
  return fmt::format("the {} {}", quoted ? "quoted text" : "text", json_text(text));
}

std::string broad_kind(const Node& value) {
  return is_number(value) ? "a number" : Node::kind_name(value.kind());
}

std::string check_value(const Field& field, Node& value) {
  if (field.nullable) {
    if (value.is_null()) return "";
    if (value.kind() == Kind::kText && value.as_text().empty()) {  // as the reference reads it
      Node null;
      null.mark = value.mark;
      null.explicitly_set = value.explicitly_set;
      value = std::move(null);
      return "";
    }
  } else if (value.is_null() && field.type != Type::kNode) {
    bool has_default = !field.required && field.fallback != "null";
    return mismatch(
        field, value,
        has_default ? fmt::format("; leave the key out for its default {}", field.fallback) : "");
  }
  switch (field.type) {
    case Type::kInt:
    case Type::kBigInt:
      return check_int(field, value);
    case Type::kReal:
      return check_real(field, value);
    case Type::kBool:
      if (value.kind() == Kind::kBool) return "";
      return mismatch(field, value, value.is_scalar() && !value.is_null() ? bool_hint(value) : "");
    case Type::kText:
      return check_text(field, value);
    case Type::kDtype:
      return check_dtype(field, value);
    case Type::kNode:
      return "";
    case Type::kIntList:
    case Type::kRealList:
    case Type::kTextList:
      return check_list(field, value);
    case Type::kTextDict:
      return check_dict(field, value);
  }
  return "";
}

const std::vector<std::string>& dtype_names() {
  static const std::vector<std::string> names{"float64", "float32", "float16", "bfloat16",
                                              "int64",   "int32",   "int16",   "int8",
                                              "uint8",   "uint16"};
  return names;
}

std::string dtype_pattern() {
  std::vector<std::string> names = dtype_names(), prefixes;
  for (const auto& [alias, name] : kDtypeAliases) names.push_back(alias);
  for (std::string prefix : kDtypePrefixes)
    prefixes.push_back(prefix.substr(0, prefix.size() - 1) + "\\.");
  return fmt::format("^({})?({})$", fmt::join(prefixes, "|"), fmt::join(names, "|"));
}

}  // namespace fastllm::config
