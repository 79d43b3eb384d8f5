// Documents of a block wait until there are enough for the tokenizer to take at once; then their
// tokens are put together with BOS, EOS and the spans.
#include "core/data/prepare/prepare_encode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/data/formats/document_index.hpp"
#include "core/data/prepare/prepare_line.hpp"

namespace fastllm::data {
namespace {

// Text given to the tokenizer at once. A tokenizer holds much more than the text while it works.
constexpr size_t kBatchBytes = size_t(1) << 20;

// The highest id the output takes, and why.
int64_t highest_id(const EncodeSettings& settings) {
  int64_t highest = token_type_info(settings.type).highest;
  return settings.vocab_size > 0 ? std::min(highest, settings.vocab_size - 1) : highest;
}

void check_text_fits(const EncodeSettings& settings) {
  int64_t highest = highest_id(settings), vocabulary = settings.tokenizer->vocabulary();
  if (highest < vocabulary - 1) {
    throw Error(Status::kInvalid,
                fmt::format("expected room for the {} ids of the {} tokenizer, found ids up to {} "
                            "(vocab_size {}, {}); leave both unset for text",
                            vocabulary, settings.tokenizer->name(), highest, settings.vocab_size,
                            token_type_info(settings.type).name));
  }
}

// Text between two borders of spans; tokenized by itself, so that no token crosses a border.
struct TextPiece {
  size_t begin = 0, end = 0;  // bytes
  bool masked = false;
};

// The pieces of a text with spans over its characters, in order; none is empty.
std::vector<TextPiece> cut_at_spans(std::string_view text, const std::vector<Span>& characters) {
  std::vector<TextPiece> pieces;
  size_t at = 0, cut = 0;
  int64_t character = 0;
  auto advance = [&](int64_t to) {
    for (; character < to; ++character) at += utf8_step(text, at).bytes;
    return at;
  };
  auto add = [&](size_t end, bool masked) {
    if (end > cut) pieces.push_back({cut, end, masked});
    cut = end;
  };
  for (const Span& span : characters) {
    add(advance(span.first), false);
    add(advance(span.last + 1), true);
  }
  add(text.size(), false);
  return pieces;
}

// A document, or a part of one, that is not in the output yet.
struct Waiting {
  const InputFile* file = nullptr;
  bool is_text = false;
  bool begin = true, end = true;  // of the document; the first part gets BOS, the last EOS
  std::string text;
  std::vector<TextPiece> pieces;
  std::vector<int64_t> ids;
  std::vector<Span> spans;  // of ids
};

class BlockEncoder {
 public:
  explicit BlockEncoder(const EncodeSettings& settings) : settings_(settings) {}

  void add(Waiting document) {
    for (const TextPiece& piece : document.pieces) bytes_ += piece.end - piece.begin;
    waiting_.push_back(std::move(document));
    if (bytes_ >= kBatchBytes) flush();
  }

  EncodedBlock finish() {
    flush();
    return std::move(result_);
  }

 private:
  void flush() {
    std::vector<std::string_view> texts;
    for (const Waiting& document : waiting_) {
      for (const TextPiece& piece : document.pieces)
        texts.push_back(
            std::string_view(document.text).substr(piece.begin, piece.end - piece.begin));
    }
    batch_.tokens.clear();
    batch_.sizes.clear();
    if (!texts.empty()) encode(texts);
    const int32_t* tokens = batch_.tokens.data();
    const int64_t* size = batch_.sizes.data();
    for (const Waiting& document : waiting_) {
      if (document.is_text) {
        append_text(document, tokens, size);
      } else {
        append(std::span<const int64_t>(document.ids));
        result_.pieces.push_back({int64_t(document.ids.size()), false, document.spans});
      }
    }
    waiting_.clear();
    bytes_ = 0;
  }

  void encode(const std::vector<std::string_view>& texts) {
    try {
      settings_.tokenizer->encode_batch(texts, batch_);
    } catch (Error& error) {
      // One of several texts, so only the first place is known.
      error.add_context(fmt::format("at or after {}", waiting_.front().file->path.string()));
      throw;
    }
    FASTLLM_ASSERT(batch_.sizes.size() == texts.size());
  }

  // Takes the tokens of the document's pieces from `tokens` and their numbers from `size`.
  void append_text(const Waiting& document, const int32_t*& tokens, const int64_t*& size) {
    EncodedPiece result;
    result.continues = !document.begin;
    auto special = [&](int64_t id) {
      append(std::span<const int64_t>(&id, 1));
      ++result.tokens;
    };
    if (document.begin) special(settings_.tokenizer->begin_id());
    for (const TextPiece& piece : document.pieces) {
      int64_t count = *size++;
      bool first = piece.begin == 0 && document.begin;
      bool last = piece.end == document.text.size() && document.end;
      // BOS belongs to a span at the very beginning, EOS to one at the very end.
      Span span{result.tokens - (first ? 1 : 0), result.tokens + count - (last ? 0 : 1)};
      if (piece.masked && span.first <= span.last) result.spans.push_back(span);
      append(std::span(tokens, size_t(count)));
      tokens += count;
      result.tokens += count;
    }
    if (document.end) special(settings_.tokenizer->end_id());
    if (result.tokens > kLongestDocument) {
      throw Error(Status::kInvalid,
                  fmt::format("expected documents of at most {} tokens, found {} in {}; split it",
                              kLongestDocument, result.tokens, document.file->path.string()));
    }
    result_.pieces.push_back(std::move(result));
  }

  template <class Id>
  void append(std::span<const Id> ids) {
    size_t at = result_.tokens.size();
    result_.tokens.resize(at + ids.size() * size_t(token_type_info(settings_.type).bytes));
    narrow_tokens(settings_.type, ids, std::span(result_.tokens).subspan(at));
  }

  const EncodeSettings& settings_;
  std::vector<Waiting> waiting_;
  size_t bytes_ = 0;  // of text in waiting_
  TokenBatch batch_;
  EncodedBlock result_;
};

void encode_text(const InputFile& file, const InputPart& part, const EncodeSettings& settings,
                 BlockEncoder& encoder) {
  check_text_fits(settings);
  const int64_t size = file.state.bytes;
  if (size > kLongestDocument - 2) {
    throw Error(
        Status::kInvalid,
        fmt::format("expected text files of at most {} bytes (a file is a document), found {} "
                    "with {}; split it, or give its parts as JSON lines",
                    kLongestDocument - 2, file.path.string(), size));
  }
  // Some bytes around the part, so that no character is cut.
  constexpr int64_t kAround = 4;
  int64_t from = std::max<int64_t>(0, part.begin - kAround);
  Waiting document;
  InputReader(file.path, file.state).read(from, std::min(size, part.end + kAround), document.text);
  std::string_view around = document.text;
  size_t begin = utf8_border_before(around, size_t(part.begin - from));
  size_t end = utf8_border_before(around, size_t(part.end - from));
  if (size_t at = find_invalid_utf8(around.substr(begin, end - begin));
      at != std::string_view::npos) {
    at += begin;
    throw Error(
        Status::kInvalid,
        fmt::format("expected UTF-8 text, found the byte 0x{:02x} at offset {} of {}; convert "
                    "the file to UTF-8 or leave it out",
                    uint8_t(around[at]), from + int64_t(at), file.path.string()));
  }
  document.file = &file;
  document.is_text = true;
  document.begin = part.begin == 0;
  document.end = part.end == size;
  if (end > begin) document.pieces.push_back({begin, end, false});
  encoder.add(std::move(document));
}

void encode_line(std::string_view text, const LinePlace& place, const LineFields& fields,
                 const EncodeSettings& settings, BlockEncoder& encoder) {
  if (text.find_first_not_of(" \t\r") == std::string_view::npos) return;
  LineDocument line = parse_line(text, place, fields);
  Waiting document;
  document.file = place.file;
  document.is_text = line.is_text;
  if (line.is_text) {
    check_text_fits(settings);
    document.pieces = cut_at_spans(line.text, line.spans);
    document.text = std::move(line.text);
  } else {
    document.ids = std::move(line.ids);
    document.spans = std::move(line.spans);
  }
  encoder.add(std::move(document));
}

void encode_lines(const InputFile& file, const InputPart& part, const EncodeSettings& settings,
                  BlockEncoder& encoder) {
  LineFields fields{settings.text_field, settings.spans_field, highest_id(settings),
                    token_type_info(settings.type).name};
  if (settings.vocab_size > 0)
    fields.highest_because += fmt::format(", vocab_size {}", settings.vocab_size);
  InputReader reader(file.path, file.state);
  const int64_t size = file.state.bytes;
  // One byte before the part says whether a line begins with it.
  const int64_t from = std::max<int64_t>(0, part.begin - 1);
  std::string content;
  reader.read(from, part.end, content);
  size_t at = 0;
  if (part.begin > 0) {  // in the middle of a line of the part before, up to its end
    at = content.find('\n');
    if (at == std::string::npos) return;
    ++at;
  }
  const auto limit = size_t(part.end - from);
  while (at < limit) {
    size_t end = content.find('\n', at);
    if (end == std::string::npos) {
      // The last line goes on behind the part.
      constexpr int64_t kMore = int64_t(1) << 16;
      size_t searched = content.size();
      int64_t more = std::max(kMore, int64_t(content.size()));  // doubles: a line may be long
      int64_t have = from + int64_t(content.size());
      while ((end = content.find('\n', searched)) == std::string::npos && have < size) {
        searched = content.size();
        int64_t next = std::min(size, have + more);
        reader.read(have, next, content);
        have = next;
        more *= 2;
      }
      end = std::min(end, content.size());
    }
    encode_line(std::string_view(content).substr(at, end - at),
                LinePlace{&file, from + int64_t(at)}, fields, settings, encoder);
    at = end + 1;
  }
}

}  // namespace

EncodedBlock encode_block(const std::vector<InputFile>& files, const InputBlock& block,
                          const EncodeSettings& settings) {
  BlockEncoder encoder(settings);
  for (const InputPart& part : block.parts) {
    const InputFile& file = files[part.file];
    if (file.json_lines) {
      encode_lines(file, part, settings, encoder);
    } else {
      encode_text(file, part, settings, encoder);
    }
  }
  return encoder.finish();
}

}  // namespace fastllm::data
