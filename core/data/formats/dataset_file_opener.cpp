// Opening follows the configuration at the end of the file from block to block; what it claims must
// fill the file exactly, each block between its two words.
#include "core/data/formats/dataset_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/data/formats/dataset_file_format.hpp"
#include "core/data/formats/unaligned.hpp"

namespace fastllm::data {
namespace {

using namespace dataset_file;
using nlohmann::json;

constexpr uint64_t kMostConfiguration = uint64_t(1) << 24;  // bytes; a real one has a few hundred

uint64_t load_big_endian(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (std::byte byte : bytes) value = value << 8 | uint64_t(byte);
  return value;
}

bool starts_with(std::span<const std::byte> bytes, std::string_view word) {
  return bytes.size() >= word.size() && std::memcmp(bytes.data(), word.data(), word.size()) == 0;
}

// For messages; a list or a block may be deep.
std::string shown(const json& value) {
  return value.is_primitive() ? value.dump() : value.type_name();
}

// Bytes of a type that values per token may have; 0: unknown.
int64_t value_bytes(const std::string& type) {
  if (auto integer = find_token_type(type)) return integer->bytes;
  if (type == "float16" || type == "bfloat16") return 2;
  if (type == "float32") return 4;
  return type == "float64" ? 8 : 0;
}

}  // namespace

// Reads the configuration and points the dataset's members at what it describes.
class DatasetFileOpener {
 public:
  explicit DatasetFileOpener(DatasetFile& dataset)
      : dataset_(dataset), bytes_(dataset.file_.bytes()) {}

  void open() {
    if (!starts_with(bytes_, kMagic)) {
      throw Error(Status::kInvalid,
                  fmt::format("{}: expected a prepared dataset (first bytes {}), found something "
                              "else; check the path, or prepare the dataset again",
                              path(), kMagic));
    }
    const json configuration = read_configuration();
    Block model = block(configuration, kLanguageModel, "the dataset");
    if (model.begin != kHeaderBytes || model.end != end_of_blocks_) {
      damaged(fmt::format("expected the dataset's block from {} to {}, found {} to {}",
                          kHeaderBytes, end_of_blocks_, model.begin, model.end));
    }
    at_ = model.begin + kLanguageModel.begin.size();
    read_tokens(part(configuration, kTokensPart));
    for (std::string_view name : kOptionalParts) read_part(name, part(configuration, name));
    for (const auto& [key, value] : configuration.items()) refuse_unknown(key, value);
    if (at_ + kLanguageModel.end.size() != model.end) {
      damaged(fmt::format("expected the dataset's parts to end at {}, found them end at {}",
                          model.end - kLanguageModel.end.size(), at_));
    }
    if ((dataset_.chosen_.counts == nullptr) != (dataset_.rejected_.counts == nullptr)) {
      damaged("expected chosen_spans and rejected_spans or none of them, found one");
    }
    tell_unused();
  }

 private:
  struct Block {
    uint64_t begin = 0, end = 0;         // in the file
    std::span<const std::byte> content;  // between its words
  };

  std::string path() const { return dataset_.paths_.path.string(); }

  [[noreturn]] void damaged(const std::string& text) const {
    throw Error(
        Status::kDataLoss,
        fmt::format("{}: {}; the file is cut or damaged, copy or prepare it again", path(), text));
  }
  [[noreturn]] void unsupported(const std::string& text) const {
    throw Error(Status::kUnsupported, fmt::format("{}: {}", path(), text));
  }

  json read_configuration() {
    if (bytes_.size() < kHeaderBytes) {
      damaged(fmt::format("expected a header of {} bytes, found {} bytes", kHeaderBytes,
                          bytes_.size()));
    }
    end_of_blocks_ = load_big_endian(bytes_.subspan(kMagic.size(), sizeof(uint64_t)));
    constexpr uint64_t kLengthBytes = sizeof(uint32_t);
    if (end_of_blocks_ < kHeaderBytes || end_of_blocks_ > bytes_.size() ||
        bytes_.size() - end_of_blocks_ < kLengthBytes) {
      damaged(fmt::format(
          "expected the configuration inside the file, found its offset {} in a "
          "file of {} bytes{}",
          end_of_blocks_, bytes_.size(), end_of_blocks_ == 0 ? " (was it never finished?)" : ""));
    }
    std::span<const std::byte> text = bytes_.subspan(end_of_blocks_);
    uint64_t length = load_big_endian(text.first(kLengthBytes));
    text = text.subspan(kLengthBytes);
    if (length != text.size() || length > kMostConfiguration) {
      damaged(fmt::format("expected a configuration of {} bytes at the end, found {} bytes", length,
                          text.size()));
    }
    const auto* first = reinterpret_cast<const char*>(text.data());
    json configuration = json::parse(first, first + text.size(), nullptr, false);
    if (!configuration.is_object())
      damaged("expected a configuration in JSON with a block at its root, found something else");
    return configuration;
  }

  const json& part(const json& configuration, std::string_view name) const {
    static const json kNone = {{"type", "none"}};
    auto found = configuration.find(name);
    if (found == configuration.end()) return kNone;
    if (!found->is_object())
      damaged(
          fmt::format("expected a block for {} in the configuration, found something else", name));
    return *found;
  }

  std::string type_of(const json& description, std::string_view what) const {
    auto found = description.find("type");
    if (found == description.end() || !found->is_string())
      damaged(fmt::format("expected a type for {} in the configuration, found none", what));
    return found->get<std::string>();
  }

  uint64_t number(const json& description, std::string_view key, std::string_view what) const {
    auto found = description.find(key);
    if (found == description.end() || !found->is_number_unsigned()) {
      damaged(fmt::format("expected a number from 0 up for {} of {} in the configuration, found {}",
                          key, what, found == description.end() ? "none" : shown(*found)));
    }
    return found->get<uint64_t>();
  }

  // A block by its description: inside the file, between its words.
  Block block(const json& description, const BlockKind& kind, std::string_view what) const {
    std::string type = type_of(description, what);
    if (type != kind.type) {
      unsupported(
          fmt::format("expected {} of type {}, found type {}; it was not prepared for "
                      "training language models, or by a newer tool",
                      what, kind.type, type));
    }
    Block block;
    block.begin = number(description, "begin", what);
    block.end = number(description, "end", what);
    if (block.begin < kHeaderBytes || block.end > end_of_blocks_ || block.end < block.begin ||
        block.end - block.begin < kind.frame()) {
      damaged(fmt::format("expected {} between {} and {}, found {} to {}", what, kHeaderBytes,
                          end_of_blocks_, block.begin, block.end));
    }
    std::span<const std::byte> all = bytes_.subspan(block.begin, block.end - block.begin);
    if (!starts_with(all, kind.begin) ||
        !starts_with(all.subspan(all.size() - kind.end.size()), kind.end)) {
      damaged(fmt::format("expected {} between the words '{}' and '{}' at {} and {}, found others",
                          what, kind.begin, kind.end, block.begin, block.end - kind.end.size()));
    }
    block.content = all.subspan(kind.begin.size(), all.size() - kind.frame());
    return block;
  }

  // A part of the dataset: its block lies where the part before ended.
  Block next_block(const json& description, const BlockKind& kind, std::string_view what) {
    Block next = block(description, kind, what);
    if (next.begin != at_) {
      damaged(fmt::format("expected {} to begin at {}, where the part before ends, found {}", what,
                          at_, next.begin));
    }
    at_ = next.end;
    return next;
  }

  // The content must be `values` things of `each` bytes, then a table of documents + 1 sums.
  void check_content(const Block& block, std::string_view what, uint64_t values, uint64_t each,
                     uint64_t documents, uint64_t sum_bytes) const {
    uint64_t sums = 0, needed = 0, total = 0;
    if (__builtin_add_overflow(documents, uint64_t(1), &sums) ||
        __builtin_mul_overflow(sums, sum_bytes, &sums) ||
        __builtin_mul_overflow(values, each, &needed) ||
        __builtin_add_overflow(needed, sums, &total) || total != block.content.size()) {
      damaged(fmt::format("expected {} of {} values of {} bytes in {} documents, found {} bytes",
                          what, values, each, documents, block.content.size()));
    }
  }

  void check_documents(const json& description, std::string_view what) const {
    uint64_t documents = number(description, "num_documents", what);
    if (documents != uint64_t(dataset_.documents_)) {
      damaged(fmt::format("expected {} documents in {}, as there are in tokens, found {}",
                          dataset_.documents_, what, documents));
    }
  }

  // Sums from 0 up to `total`, none below the one before.
  template <class T>
  void check_sums(const std::byte* sums, int64_t total, std::string_view what) const {
    int64_t before = 0;
    for (int64_t i = 0; i <= dataset_.documents_; ++i) {
      auto sum = int64_t(load<T>(sums, i));
      bool last = i == dataset_.documents_;
      if (sum < before || sum > total || (i == 0 && sum != 0) || (last && sum != total)) {
        damaged(fmt::format("expected the sums of {} to rise from 0 to {}, found {} at {}", what,
                            total, sum, i));
      }
      before = sum;
    }
  }

  void read_tokens(const json& description) {
    const std::string what(kTokensPart);
    Block tokens = next_block(description, kTokens, what);
    uint64_t documents = number(description, "num_documents", what);
    uint64_t count = number(description, "num_tokens", what);
    auto name = description.find("data_type");
    std::optional<TokenTypeInfo> type;
    if (name != description.end() && name->is_string())
      type = find_token_type(std::string_view(name->get_ref<const std::string&>()));
    if (!type) {
      std::string legal;
      for (const TokenTypeInfo& info : kTokenTypes)
        legal += fmt::format("{}{}", legal.empty() ? "" : ", ", info.name);
      throw Error(Status::kInvalid,
                  fmt::format("{}: expected tokens of type {}, found {}; token ids are integers, "
                              "prepare the dataset again",
                              path(), legal, name == description.end() ? "none" : shown(*name)));
    }
    check_content(tokens, what, count, uint64_t(type->bytes), documents, sizeof(int64_t));
    dataset_.type_ = type->type;
    dataset_.itemsize_ = type->bytes;
    dataset_.documents_ = int64_t(documents);  // both fit: the file holds them
    dataset_.num_tokens_ = int64_t(count);
    dataset_.tokens_ = tokens.content.data();
    dataset_.ends_ = tokens.content.data() + count * uint64_t(type->bytes);
    check_sums<int64_t>(dataset_.ends_, dataset_.num_tokens_, what);
  }

  void read_part(std::string_view name, const json& description) {
    if (type_of(description, name) == "none") return;
    if (name == "loss_masking_spans") {
      dataset_.masked_ = read_ranges(name, description);
    } else if (name == "chosen_spans") {
      dataset_.chosen_ = read_ranges(name, description);
    } else if (name == "rejected_spans") {
      dataset_.rejected_ = read_ranges(name, description);
    } else if (name == "image_patches") {
      unsupported(
          "expected text alone, found image patches, which belong to its tokens; prepare "
          "the dataset without images");
    } else {
      check_values(name, description);
      unused_.emplace_back(name);
    }
  }

  DatasetFile::Ranges read_ranges(std::string_view name, const json& description) {
    Block block = next_block(description, kRanges, name);
    check_documents(description, name);
    uint64_t count = number(description, "num_ranges", name);
    check_content(block, name, count, 2 * sizeof(int32_t), uint64_t(dataset_.documents_),
                  sizeof(int32_t));
    DatasetFile::Ranges ranges;
    ranges.pairs = block.content.data();
    ranges.counts = ranges.pairs + count * 2 * sizeof(int32_t);
    check_sums<int32_t>(ranges.counts, int64_t(count), name);
    return ranges;
  }

  void check_values(std::string_view name, const json& description) {
    Block block = next_block(description, kTokenData, name);
    check_documents(description, name);
    uint64_t count = number(description, "num_tokens", name);
    auto type = description.find("data_type");
    uint64_t bytes = 0;
    if (type != description.end() && type->is_string())
      bytes = uint64_t(value_bytes(type->get<std::string>()));
    auto shape = description.find("shape");
    bool legal = bytes > 0 && (shape == description.end() || shape->is_array());
    for (size_t i = 0; legal && shape != description.end() && i < shape->size(); ++i) {
      const json& size = (*shape)[i];
      legal =
          size.is_number_unsigned() && !__builtin_mul_overflow(bytes, size.get<uint64_t>(), &bytes);
    }
    if (!legal) damaged(fmt::format("expected a data type and a shape for {}, found others", name));
    check_content(block, name, count, bytes, uint64_t(dataset_.documents_), sizeof(int64_t));
  }

  void refuse_unknown(const std::string& key, const json& value) const {
    if (key == "type" || key == "begin" || key == "end" || key == kTokensPart) return;
    if (std::find(kOptionalParts.begin(), kOptionalParts.end(), key) != kOptionalParts.end())
      return;
    if (value.is_object() && value.contains("type") && value["type"] == "none") return;
    unsupported(
        fmt::format("expected the parts that this build knows, found {}; written by a "
                    "newer tool?",
                    key));
  }

  void tell_unused() const {
    std::vector<std::string> unused = unused_;
    if (dataset_.has_preference_spans()) unused.insert(unused.begin(), "preference spans");
    if (unused.empty()) return;
    log::info(fmt::format("{}: {} are not used by GPT training", path(), fmt::join(unused, ", ")));
  }

  DatasetFile& dataset_;
  std::span<const std::byte> bytes_;
  uint64_t end_of_blocks_ = 0;  // where the configuration begins
  uint64_t at_ = 0;             // where the next part of the dataset begins
  std::vector<std::string> unused_;
};

void DatasetFile::open() { DatasetFileOpener(*this).open(); }

}  // namespace fastllm::data
