// Rules of plain scalars, the shortest digits of a real number, and quotes where they are needed.
#include "core/config/scalar.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"

namespace fastllm::config {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

size_t skip_digits(std::string_view text, size_t i) {
  while (i < text.size() && is_digit(text[i])) ++i;
  return i;
}

size_t skip_sign(std::string_view text) {
  return !text.empty() && (text[0] == '-' || text[0] == '+');
}

// [-+]? [0-9]+
bool is_decimal(std::string_view text) {
  size_t begin = skip_sign(text);
  return begin < text.size() && skip_digits(text, begin) == text.size();
}

// [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?
bool is_real(std::string_view text) {
  size_t begin = skip_sign(text), i = skip_digits(text, begin);
  bool digits = i > begin;
  if (i < text.size() && text[i] == '.') {
    size_t end = skip_digits(text, i + 1);
    digits = digits || end > i + 1;
    i = end;
  }
  if (!digits) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    size_t end = skip_digits(text, i);
    if (end == i) return false;
    i = end;
  }
  return i == text.size();
}

bool one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), text) != words.end();
}

std::string canonical_digits(std::string_view text) {
  bool negative = text[0] == '-';
  text.remove_prefix(skip_sign(text));
  while (text.size() > 1 && text[0] == '0') text.remove_prefix(1);
  return fmt::format("{}{}", negative && text != "0" ? "-" : "", text);
}

double real_value(std::string_view text) {
  double value = 0;
  std::string_view unsigned_text = text.substr(text[0] == '+');  // from_chars takes no plus
  auto [end, error] =
      std::from_chars(unsigned_text.data(), unsigned_text.data() + unsigned_text.size(), value);
  if (error != std::errc{}) {
    throw Error(Status::kInvalid,
                fmt::format("expected a number that a double can hold, found {}; write one between "
                            "1e-307 and 1e308",
                            text));
  }
  return value;
}

// 0o17, 0x1F
bool is_based(std::string_view text, char letter, int base, uint64_t& value) {
  if (text.size() < 3 || text[0] != '0' || text[1] != letter) return false;
  auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, base);
  return error == std::errc{} && end == text.data() + text.size();
}

// Fewest digits that give the value back, laid out as Python's repr() does: that is what the
// reference's files hold.
std::string shortest(double value) {
  std::array<char, 40> buffer;
  auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                           std::chars_format::scientific)
                 .ptr;
  std::string_view text(buffer.data(), size_t(end - buffer.data()));
  std::string sign = text[0] == '-' ? "-" : "";
  text.remove_prefix(sign.size());
  size_t e = text.find('e');
  int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  if (exponent < -4 || exponent >= 16) {
    std::string mantissa = digits.substr(0, 1);
    if (digits.size() > 1) mantissa.append(1, '.').append(digits, 1);
    return fmt::format("{}{}e{}{:02}", sign, mantissa, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(size_t(-exponent - 1), '0') + digits;
  size_t whole = size_t(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

// What a YAML 1.1 reader would take for something other than text, beyond the core schema.
bool is_special_in_yaml_1_1(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  if (one_of(lower, {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", "<<", "="}))
    return true;
  // Numbers with underscores, binary and sexagesimal ones, dates and times begin with a digit, a
  // sign or a dot.
  if (is_digit(text[0])) return true;
  return (text[0] == '-' || text[0] == '+' || text[0] == '.') && text.size() > 1 &&
         (is_digit(text[1]) || text[1] == '.' || one_of(lower.substr(1), {"inf", "nan", ".inf"}));
}

bool may_be_plain(std::string_view text) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ' || text.back() == ':') return false;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`").find(text[0]) != std::string_view::npos) {
    bool dash_word =
        one_of(text.substr(0, 1), {"-", "?", ":"}) && text.size() > 1 && text[1] != ' ';
    if (!dash_word) return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == ':' && i + 1 < text.size() && text[i + 1] == ' ') return false;
    if (c == '#' && i > 0 && text[i - 1] == ' ') return false;
    if (std::string_view(",[]{}").find(c) != std::string_view::npos) return false;  // flow style
  }
  if (text.substr(0, 3) == "---" || text.substr(0, 3) == "...") return false;
  return !is_special_in_yaml_1_1(text) && resolve_plain(text).kind() == Node::Kind::kText;
}

// Control characters, and line separators that a reader would fold.
bool needs_escapes(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    auto c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7f) return true;
    if (c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0)
      return true;  // U+0080 to U+009F
    if (text.substr(i, 3) == "\xe2\x80\xa8" || text.substr(i, 3) == "\xe2\x80\xa9" ||
        text.substr(i, 3) == "\xef\xbb\xbf")
      return true;
  }
  return false;
}

// Text between double quotes with the escapes that YAML and JSON share. What is not UTF-8 becomes
// U+FFFD.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    size_t bad = find_bad_utf8(text);
    for (size_t i = 0; i < std::min(bad, text.size()); ++i) {
      auto c = static_cast<unsigned char>(text[i]);
      auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0u;
      if (c == '"' || c == '\\') {
        out += '\\';
        out += text[i];
      } else if (c == '\n') {
        out += "\\n";
      } else if (c == '\t') {
        out += "\\t";
      } else if (c < 0x20 || c == 0x7f) {
        out += fmt::format("\\u{:04x}", c);
      } else if (c == 0xc2 && next < 0xa0) {
        out += fmt::format("\\u{:04x}", next);
        ++i;
      } else if (text.substr(i, 3) == "\xe2\x80\xa8" || text.substr(i, 3) == "\xe2\x80\xa9") {
        out += text[i + 2] == '\xa8' ? "\\u2028" : "\\u2029";
        i += 2;
      } else if (text.substr(i, 3) == "\xef\xbb\xbf") {
        out += "\\ufeff";
        i += 2;
      } else {
        out += text[i];
      }
    }
    if (bad >= text.size()) break;
    out += text[bad] == '\0' ? "\\u0000" : "\\ufffd";
    text.remove_prefix(bad + 1);
  }
  return out + "\"";
}

}  // namespace

Node resolve_plain(std::string_view text) {
  if (text.empty() || one_of(text, {"null", "Null", "NULL", "~"})) return Node();
  if (one_of(text, {"true", "True", "TRUE"})) return Node::boolean(true);
  if (one_of(text, {"false", "False", "FALSE"})) return Node::boolean(false);
  if (is_decimal(text)) return Node::big_integer(canonical_digits(text));
  uint64_t based = 0;
  if (is_based(text, 'o', 8, based) || is_based(text, 'x', 16, based))
    return Node::big_integer(std::to_string(based));
  if (is_real(text)) return Node::real(real_value(text), std::string(text));
  std::string_view rest = text.substr(skip_sign(text));
  if (one_of(rest, {".inf", ".Inf", ".INF"}))
    return Node::real(text[0] == '-' ? -INFINITY : INFINITY);
  if (one_of(text, {".nan", ".NaN", ".NAN"})) return Node::real(NAN);
  return Node::text(std::string(text));
}

std::string yaml_real(double value) {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value < 0 ? "-.inf" : ".inf";
  std::string text = shortest(value);
  // YAML 1.1 wants a dot in every float.
  if (size_t e = text.find('e'); e != std::string::npos && text.find('.') == std::string::npos)
    text.insert(e, ".0");
  return text;
}

std::string json_real(double value) { return std::isfinite(value) ? shortest(value) : "null"; }

std::string yaml_text(std::string_view text) {
  if (needs_escapes(text) || find_bad_utf8(text) != std::string_view::npos) return quoted(text);
  if (may_be_plain(text)) return std::string(text);
  std::string out = "'";
  for (char c : text) {
    out += c;
    if (c == '\'') out += c;
  }
  return out + "'";
}

std::string json_text(std::string_view text) { return quoted(text); }

size_t find_bad_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    Utf8Step step = utf8_step(text, i);
    if (text[i] == '\0' || !step.valid) return i;
    i += step.bytes;
  }
  return std::string_view::npos;
}

}  // namespace fastllm::config
