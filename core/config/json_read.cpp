// Reads JSON through nlohmann's events: as strict as the YAML side about repeated keys, depth and
// size.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/config/builder.hpp"
#include "core/config/node.hpp"
#include "core/config/scalar.hpp"

namespace fastllm::config {
namespace {

// The parser gives no positions: values carry the source without a line.
struct Events : nlohmann::json_sax<nlohmann::json> {
  explicit Events(const std::string& source, std::string_view whole)
      : builder(source), text(whole) {}

  bool null() override { return add(Node()); }
  bool boolean(bool value) override { return add(Node::boolean(value)); }
  bool number_integer(number_integer_t value) override { return add(Node::integer(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    return add(Node::big_integer(std::to_string(value)));
  }
  // Integers beyond 64 bits arrive here; their digits stay.
  bool number_float(number_float_t, const string_t& digits) override {
    return add(resolve_plain(digits));
  }
  bool string(string_t& value) override { return add(Node::text(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return builder.open(Node::Kind::kMap, 0), true; }
  bool key(string_t& name) override { return builder.key(name, 0), true; }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return builder.open(Node::Kind::kList, 0), true; }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception&) override {
    size_t end = std::min(position, text.size());
    auto line = 1 + std::count(text.begin(), text.begin() + ptrdiff_t(end), '\n');
    builder.stop(int(line), fmt::format("expected JSON, found a mistake in its form near \"{}\"",
                                        token.substr(0, 40)));
  }

  bool add(Node node) { return builder.value(std::move(node), 0), true; }
  bool close() {
    return builder.close([](const Node&, size_t) {}), true;
  }

  Builder builder;
  std::string_view text;
};

}  // namespace

Node parse_json(std::string_view text, const std::string& source) {
  check_text(text, source);
  Events events(source, text);
  nlohmann::json::sax_parse(text, &events);
  return events.builder.finish();
}

}  // namespace fastllm::config
