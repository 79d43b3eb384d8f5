// Text, JSON lines or token ids of one block become tokens. Lines are hostile: each is checked, and
// an error names its file and number.
#include "core/data/prepare_encode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/utf8.hpp"
#include "core/data/byte_tokenizer.hpp"

namespace fastllm::data {
namespace {

using nlohmann::json;

constexpr int64_t kLongestDocument =
    std::numeric_limits<int32_t>::max();  // tokens; an i32 in the index
constexpr const char* kTokensField = "tokens";

// Lists and blocks inside each other, in a line. What walks a value may then recurse.
constexpr int kDeepest = 64;

// A value as it stands in the line, cut to a length that fits a message. What is not a scalar or a
// short list of them is named by its kind: it may be as large as the line.
std::string shown(const json& value) {
  constexpr size_t kMost = 60, kMostEntries = 4;
  bool short_list =
      value.is_array() && value.size() <= kMostEntries &&
      std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_primitive(); });
  if (!value.is_primitive() && !short_list) return value.type_name();
  std::string text = value.dump(-1, ' ', true);
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

// Tokens in the output's type. Values are checked by the callers.
class TokenBuffer {
 public:
  TokenBuffer(TokenType type, std::vector<std::byte>& bytes)
      : type_(type), itemsize_(size_t(token_type_info(type).bytes)), bytes_(bytes) {}

  void append(std::span<const int64_t> tokens) {
    size_t at = bytes_.size();
    bytes_.resize(at + tokens.size() * itemsize_);
    narrow_tokens(type_, tokens, std::span(bytes_).subspan(at));
  }
  void append(int64_t token) { append(std::span(&token, 1)); }
  void append_text(std::string_view text) {
    std::array<int64_t, 4096> ids;
    for (size_t at = 0; at < text.size(); at += ids.size()) {
      size_t count = std::min(ids.size(), text.size() - at);
      for (size_t i = 0; i < count; ++i) ids[i] = uint8_t(text[at + i]);
      append(std::span(ids).first(count));
    }
  }

 private:
  TokenType type_;
  size_t itemsize_;
  std::vector<std::byte>& bytes_;
};

void check_text_fits(const EncodeSettings& settings) {
  TokenTypeInfo type = token_type_info(settings.type);
  int64_t room =
      settings.vocab_size > 0 ? std::min(settings.vocab_size - 1, type.highest) : type.highest;
  if (room < byte_tokenizer::kVocabulary - 1) {
    throw Error(Status::kInvalid,
                fmt::format("expected room for the {} ids of the bytes tokenizer, found ids up to "
                            "{} (vocab_size {}, "
                            "{}); leave both unset for text",
                            byte_tokenizer::kVocabulary, room, settings.vocab_size, type.name));
  }
}

EncodedBlock encode_text(const InputFile& file, const InputBlock& block, std::string_view content,
                         const EncodeSettings& settings) {
  check_text_fits(settings);
  if (file.bytes > kLongestDocument - 2) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected text files of at most {} bytes (a file is a document), found {} "
                    "with {}; split it, or give its parts as JSON lines",
                    kLongestDocument - 2, file.path.string(), file.bytes));
  }
  bool begins = block.begin == 0, ends = block.end == file.bytes;
  size_t begin = utf8_border_before(content, size_t(block.begin));
  size_t end = utf8_border_before(content, size_t(block.end));
  std::string_view text = content.substr(begin, end - begin);
  if (size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected UTF-8 text, found the byte 0x{:02x} at offset {} of {}; convert "
                    "the file to UTF-8 or leave it out",
                    uint8_t(text[at]), begin + at, file.path.string()));
  }
  EncodedBlock result;
  TokenBuffer tokens(settings.type, result.tokens);
  if (begins) tokens.append(byte_tokenizer::kBegin);
  tokens.append_text(text);
  if (ends) tokens.append(byte_tokenizer::kEnd);
  result.pieces.push_back({int64_t(text.size()) + (begins ? 1 : 0) + (ends ? 1 : 0), !begins, {}});
  return result;
}

// A line of a JSON lines file. fail() names it; its number is counted only then.
class Line {
 public:
  Line(const InputFile& file, std::string_view content, size_t begin, size_t end)
      : file_(file), content_(content), begin_(begin), end_(end) {}
  std::string_view text() const { return content_.substr(begin_, end_ - begin_); }
  bool blank() const { return text().find_first_not_of(" \t\r") == std::string_view::npos; }
  [[noreturn]] void fail(const std::string& message) const {
    auto number = 1 + std::count(content_.begin(), content_.begin() + ptrdiff_t(begin_), '\n');
    throw Error(Status::kInvalid, fmt::format("{}:{}: {}", file_.path.string(), number, message));
  }

 private:
  const InputFile& file_;
  std::string_view content_;  // of the file; the line is [begin_, end_) of it
  size_t begin_, end_;
};

// Inclusive, ordered, disjoint pairs inside `size` characters or tokens.
std::vector<Span> read_spans(const Line& line, const json& object, const EncodeSettings& settings,
                             int64_t size, const char* unit) {
  std::vector<Span> spans;
  if (settings.spans_field.empty()) return spans;
  auto found = object.find(settings.spans_field);
  if (found == object.end() || found->is_null()) return spans;
  auto malformed = [&](const json& value) {
    line.fail(
        fmt::format("expected '{}' as a list of pairs [first, last], inclusive {} positions, "
                    "ordered, disjoint and "
                    "below {}, found {}",
                    settings.spans_field, unit, size, shown(value)));
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

// Character spans to token spans: the text is cut at their borders, BOS belongs to the first part
// and EOS to the last (docs/compatibility.md). A token is a byte, so cutting changes no token.
std::vector<Span> token_spans(std::string_view text, const std::vector<Span>& characters) {
  std::vector<Span> spans;
  size_t at = 0;
  int64_t character = 0;
  auto advance = [&](int64_t to) {
    for (; character < to; ++character) at += utf8_step(text, at).bytes;
    return int64_t(at);
  };
  for (const Span& span : characters) {
    int64_t begin = advance(span.first), end = advance(span.last + 1);
    // Behind BOS, positions are one higher.
    spans.push_back({begin == 0 ? 0 : begin + 1, end == int64_t(text.size()) ? end + 1 : end});
  }
  return spans;
}

int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (uint8_t(byte) & 0xC0) != 0x80; });
}

void encode_text_line(const Line& line, const json& object, const std::string& text,
                      const EncodeSettings& settings, TokenBuffer& tokens, EncodedBlock& result) {
  check_text_fits(settings);
  if (int64_t(text.size()) > kLongestDocument - 2) {
    line.fail(fmt::format("expected a text of at most {} bytes, found {}; split it",
                          kLongestDocument - 2, text.size()));
  }
  std::vector<Span> spans = read_spans(line, object, settings, count_characters(text), "character");
  tokens.append(byte_tokenizer::kBegin);
  tokens.append_text(text);
  tokens.append(byte_tokenizer::kEnd);
  result.pieces.push_back({int64_t(text.size()) + 2, false, token_spans(text, spans)});
}

void encode_token_line(const Line& line, const json& object, const json& list,
                       const EncodeSettings& settings, TokenBuffer& tokens, EncodedBlock& result) {
  if (!list.is_array())
    line.fail(fmt::format("expected '{}' as a list of token ids, found {}", kTokensField,
                          list.type_name()));
  if (int64_t(list.size()) > kLongestDocument) {
    line.fail(fmt::format("expected at most {} tokens, found {}; split the document",
                          kLongestDocument, list.size()));
  }
  TokenTypeInfo type = token_type_info(settings.type);
  int64_t highest = type.highest;
  if (settings.vocab_size > 0) highest = std::min(highest, settings.vocab_size - 1);
  std::vector<int64_t> ids;
  ids.reserve(list.size());
  for (const json& id : list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t(highest)) {
      line.fail(fmt::format(
          "expected token ids from 0 to {} ({}{}), found {} at position {}; give the vocabulary "
          "size of "
          "the tokenizer, or a wider token type",
          highest, type.name,
          settings.vocab_size > 0 ? fmt::format(", vocab_size {}", settings.vocab_size) : "",
          shown(id), ids.size()));
    }
    ids.push_back(int64_t(id.get<uint64_t>()));
  }
  std::vector<Span> spans = read_spans(line, object, settings, int64_t(ids.size()), "token");
  tokens.append(ids);
  result.pieces.push_back({int64_t(ids.size()), false, std::move(spans)});
}

void encode_line(const Line& line, const EncodeSettings& settings, TokenBuffer& tokens,
                 EncodedBlock& result) {
  json object;
  try {
    object = json::parse(line.text(), [&](int depth, json::parse_event_t event, const json&) {
      bool opens =
          event == json::parse_event_t::array_start || event == json::parse_event_t::object_start;
      if (opens && depth >= kDeepest) {
        line.fail(
            fmt::format("expected lists and blocks at most {} deep inside each other, found "
                        "more; leave such fields out",
                        kDeepest));
      }
      return true;
    });
  } catch (const json::exception& error) {
    line.fail(
        fmt::format("expected a JSON object in one line, found other text ({})", error.what()));
  }
  if (!object.is_object())
    line.fail(fmt::format("expected a JSON object, found {}", object.type_name()));
  auto text = object.find(settings.text_field), list = object.find(kTokensField);
  bool has_text = text != object.end(), has_tokens = list != object.end();
  if (has_text && has_tokens && text != list) {
    line.fail(fmt::format("expected '{}' or '{}', found both; leave one out", settings.text_field,
                          kTokensField));
  }
  if (has_tokens) {
    encode_token_line(line, object, *list, settings, tokens, result);
  } else if (!has_text) {
    line.fail(
        fmt::format("Dataset does not have field '{}'. Expected it, or '{}' with token ids; name "
                    "the field of the "
                    "text",
                    settings.text_field, kTokensField));
  } else if (!text->is_string()) {
    line.fail(
        fmt::format("expected text in '{}', found {}", settings.text_field, text->type_name()));
  } else {
    encode_text_line(line, object, text->get_ref<const std::string&>(), settings, tokens, result);
  }
}

EncodedBlock encode_lines(const InputFile& file, const InputBlock& block, std::string_view content,
                          const EncodeSettings& settings) {
  EncodedBlock result;
  TokenBuffer tokens(settings.type, result.tokens);
  auto at = size_t(block.begin);
  if (at > 0 && content[at - 1] != '\n') {  // in the middle of a line of the block before
    at = content.find('\n', at);
    if (at == std::string_view::npos) return result;
    ++at;
  }
  while (at < size_t(block.end)) {
    size_t end = std::min(content.find('\n', at), content.size());
    Line line(file, content, at, end);
    if (!line.blank()) encode_line(line, settings, tokens, result);
    at = end + 1;
  }
  return result;
}

}  // namespace

EncodedBlock encode_block(const InputFile& file, const InputBlock& block,
                          const EncodeSettings& settings) {
  MappedFile map(file.path);
  if (int64_t(map.size()) != file.bytes) {
    throw Error(
        Status::kUnavailable,
        fmt::format("expected {} bytes in {}, found {}: it changed meanwhile; prepare again "
                    "when nothing writes to it",
                    file.bytes, file.path.string(), map.size()));
  }
  std::string_view content(reinterpret_cast<const char*>(map.bytes().data()), map.size());
  return file.json_lines ? encode_lines(file, block, content, settings)
                         : encode_text(file, block, content, settings);
}

}  // namespace fastllm::data
