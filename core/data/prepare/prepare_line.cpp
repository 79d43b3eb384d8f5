// JSON with what a hostile or careless line may bring: depth, keys given twice, values of other kinds.
#include "core/data/prepare/prepare_line.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/data/formats/document_index.hpp"

namespace fastllm::data {
namespace {

using nlohmann::json;

// Lists and blocks inside each other, in a line. What walks a value may then recurse.
constexpr int kDeepest = 64;
constexpr size_t kMostShown = 60;

std::string shortened(std::string text) {
  if (text.size() > kMostShown) text = repair_utf8(text.substr(0, kMostShown)) + "...";
  return text;
}

// A value as it stands in the line, cut to a length that fits a message. What is not a scalar or a
// short list of them is named by its kind: it may be as large as the line.
std::string shown(const json& value) {
  constexpr size_t kMostEntries = 4;
  bool short_list =
      value.is_array() && value.size() <= kMostEntries &&
      std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_primitive(); });
  if (!value.is_primitive() && !short_list) return value.type_name();
  return shortened(value.dump(-1, ' ', true));
}

// "column 15: invalid string: missing closing quote". The library counts the line as number 1 and
// repeats what it read, which may be all of it.
std::string reason_of(const json::parse_error& error) {
  std::string text = error.what();
  if (size_t last = text.find("; last read"); last != std::string::npos) text.resize(last);
  size_t column = text.find("column ");
  if (column == std::string::npos) return fmt::format("at byte {}", error.byte);
  size_t colon = text.find(": ", column);
  std::string place = text.substr(column, colon - column), what = text.substr(colon + 2);
  if (size_t dash = what.find(" - "); dash != std::string::npos) what = what.substr(dash + 3);
  return fmt::format("{}: {}", place, what);
}

json parse(std::string_view text, const LinePlace& place) {
  std::vector<std::unordered_set<std::string>> keys;  // of the blocks that are open
  auto watch = [&](int depth, json::parse_event_t event, const json& value) {
    using Event = json::parse_event_t;
    if ((event == Event::array_start || event == Event::object_start) && depth >= kDeepest) {
      place.fail(
          fmt::format("expected lists and blocks at most {} deep inside each other, found more; "
                      "leave such fields out",
                      kDeepest));
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(value.get_ref<const std::string&>()).second) {
      place.fail(fmt::format("expected every key once in a block, found '{}' twice; leave one out",
                             shortened(value.get<std::string>())));
    }
    return true;
  };
  try {
    return json::parse(text, watch);
  } catch (const json::parse_error& error) {
    place.fail(
        fmt::format("expected a JSON object in one line, found other text ({})", reason_of(error)));
  } catch (const json::exception& error) {  // a number too large for any type
    place.fail(fmt::format("expected a JSON object in one line, found what cannot be read ({})",
                           shortened(error.what())));
  }
}

// Inclusive, ordered, disjoint pairs inside `size` characters or tokens.
std::vector<Span> read_spans(const json& object, const std::string& field, int64_t size,
                             const char* unit, const LinePlace& place) {
  std::vector<Span> spans;
  if (field.empty()) return spans;
  auto found = object.find(field);
  if (found == object.end() || found->is_null()) return spans;
  auto malformed = [&](const json& value) {
    place.fail(
        fmt::format("expected '{}' as a list of pairs [first, last], inclusive {} positions, "
                    "ordered, disjoint and below {}, found {}",
                    field, unit, size, shown(value)));
  };
  if (!found->is_array()) malformed(*found);
  int64_t next = 0;  // the lowest first position still free
  for (const json& pair : *found) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        !pair[1].is_number_unsigned()) {
      malformed(pair);
    }
    auto first = pair[0].get<uint64_t>(), last = pair[1].get<uint64_t>();
    if (first < uint64_t(next) || last < first || last >= uint64_t(size)) malformed(pair);
    spans.push_back({int64_t(first), int64_t(last)});
    next = int64_t(last) + 1;
  }
  return spans;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (uint8_t(byte) & 0xC0) != 0x80; });
}

std::vector<int64_t> read_ids(const json& list, const LinePlace& place, const LineFields& fields) {
  if (!list.is_array()) {
    place.fail(fmt::format("expected '{}' as a list of token ids, found {}", kTokensField,
                           list.type_name()));
  }
  if (int64_t(list.size()) > kLongestDocument) {
    place.fail(fmt::format("expected at most {} tokens, found {}; split the document",
                           kLongestDocument, list.size()));
  }
  std::vector<int64_t> ids;
  ids.reserve(list.size());
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t(fields.highest_id)) {
      place.fail(fmt::format(
          "expected token ids from 0 to {} ({}), found {} at position {}; give the vocabulary size "
          "of the tokenizer, or a wider token type",
          fields.highest_id, fields.highest_because, shown(id), ids.size()));
    }
    ids.push_back(int64_t(id.get<uint64_t>()));
  }
  return ids;
}

}  // namespace

void LinePlace::fail(const std::string& message) const {
  int64_t number = 1;
  InputReader reader(file->path, file->state);
  std::string bytes;
  for (int64_t at = 0; at < begin; at += int64_t(bytes.size())) {
    bytes.clear();
    reader.read(at, std::min(begin, at + (int64_t(1) << 20)), bytes);
    number += std::count(bytes.begin(), bytes.end(), '\n');
  }
  throw Error(Status::kInvalid, fmt::format("{}:{}: {}", file->path.string(), number, message));
}

LineDocument parse_line(std::string_view line, const LinePlace& place, const LineFields& fields) {
  json object = parse(line, place);
  if (!object.is_object())
    place.fail(fmt::format("expected a JSON object, found {}", object.type_name()));
  auto text = object.find(fields.text), list = object.find(kTokensField);
  bool has_text = text != object.end(), has_tokens = list != object.end();
  if (has_text && has_tokens && text != list) {
    place.fail(
        fmt::format("expected '{}' or '{}', found both; leave one out", fields.text, kTokensField));
  }
  LineDocument document;
  if (has_tokens) {
    document.ids = read_ids(*list, place, fields);
    document.spans = read_spans(object, fields.spans, int64_t(document.ids.size()), "token", place);
  } else if (!has_text) {
    place.fail(
        fmt::format("Dataset does not have field '{}'. Expected it, or '{}' with token ids; name "
                    "the field of the text",
                    fields.text, kTokensField));
  } else if (!text->is_string()) {
    place.fail(fmt::format("expected text in '{}', found {}", fields.text, text->type_name()));
  } else {
    document.is_text = true;
    document.text = std::move(text->get_ref<std::string&>());
    if (int64_t(document.text.size()) > kLongestDocument - 2) {
      place.fail(fmt::format("expected a text of at most {} bytes, found {}; split it",
                             kLongestDocument - 2, document.text.size()));
    }
    document.spans =
        read_spans(object, fields.spans, count_characters(document.text), "character", place);
  }
  return document;
}

}  // namespace fastllm::data
