// Header checks of a file that may lie, and a writer that knows all sizes before its first byte.
#include "safetensors.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fastllm/plugin.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "text.hpp"

namespace fastllm::distributed {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "tensor data is little-endian in files");

// The reference library's own limit; a header of a real file has some hundred bytes a tensor.
constexpr uint64_t kHeaderLimit = 100'000'000;
constexpr uint64_t kLengthBytes = 8;

constexpr DtypeName kDtypes[] = {
    {"F64", {kDLFloat, 64, 1}},
    {"F32", {kDLFloat, 32, 1}},
    {"F16", {kDLFloat, 16, 1}},
    {"BF16", {kDLBfloat, 16, 1}},
    {"I64", {kDLInt, 64, 1}},
    {"I32", {kDLInt, 32, 1}},
    {"I16", {kDLInt, 16, 1}},
    {"I8", {kDLInt, 8, 1}},
    {"U64", {kDLUInt, 64, 1}},
    {"U32", {kDLUInt, 32, 1}},
    {"U16", {kDLUInt, 16, 1}},
    {"U8", {kDLUInt, 8, 1}},
    {"BOOL", {kDLBool, 8, 1}},
    {"F8_E4M3", {kDLFloat8_e4m3fn, 8, 1}},
    {"F8_E5M2", {kDLFloat8_e5m2, 8, 1}},
};

[[noreturn]] void fail_file(const std::string& path, const std::string& sentence) {
  sdk::fail(FASTLLM_DATA_LOSS, cat(path, ": ", sentence));
}

// Says so when the "weights" are a Git-LFS pointer, a small text file with the real size in it.
void refuse_lfs_pointer(const InputFile& file) {
  constexpr std::string_view kFirstLine = "version https://git-lfs";
  std::string head(std::min<uint64_t>(file.size(), 512), '\0');
  file.read(0, head.data(), head.size());
  if (head.compare(0, kFirstLine.size(), kFirstLine) != 0) return;
  std::string size = "unknown";
  if (size_t at = head.find("\nsize "); at != std::string::npos) {
    uint64_t bytes = 0;
    for (at += 6; at < head.size() && head[at] >= '0' && head[at] <= '9'; ++at) {
      bytes = bytes * 10 + uint64_t(head[at] - '0');
    }
    size = grouped(bytes) + " bytes";
  }
  sdk::fail(FASTLLM_INVALID,
            cat("expected weights in ", file.path(), ", found a Git-LFS pointer (real size ", size,
                "); run `git lfs pull` in its folder"));
}

// JSON without repeated names, which a plain parser would take silently.
json parse_header(const std::string& path, const std::string& text) {
  std::vector<std::set<std::string>> names;
  std::string repeated;
  constexpr int kDepth =
      8;  // a real header has 3 levels; deeper ones are not kept, so they cost no memory
  auto callback = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kDepth) return false;
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key &&
        !names.back().insert(parsed.get<std::string>()).second) {
      repeated = parsed.get<std::string>();
    }
    return true;
  };
  json header = json::parse(text, callback, /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) {
    fail_file(path, "expected a JSON object as header, found something else; the file is damaged");
  }
  if (!repeated.empty())
    fail_file(path, cat("expected each name once in the header, found '", repeated, "' twice"));
  return header;
}

// Product of shape and element size; nullopt: does not fit 63 bits.
std::optional<uint64_t> byte_count(const std::vector<int64_t>& shape, uint64_t element_bytes) {
  uint64_t bytes = element_bytes;
  bool zero = std::find(shape.begin(), shape.end(), 0) != shape.end();
  if (zero) return 0;
  for (int64_t dimension : shape) {
    if (__builtin_mul_overflow(bytes, uint64_t(dimension), &bytes) || bytes > uint64_t(INT64_MAX))
      return std::nullopt;
  }
  return bytes;
}

// One entry of the header, its range still relative to the data.
TensorEntry parse_entry(const std::string& path, const std::string& name, const json& value) {
  auto expected = [&](const std::string& what) {
    fail_file(path, cat("tensor '", name, "': expected ", what));
  };
  TensorEntry entry;
  entry.name = name;
  if (!value.is_object())
    expected("dtype, shape and data_offsets in the header, found something else");
  auto dtype = value.find("dtype");
  if (dtype == value.end() || !dtype->is_string()) expected("a dtype in the header, found none");
  entry.dtype = find_dtype(dtype->get<std::string>());
  if (!entry.dtype) {
    sdk::fail(FASTLLM_UNSUPPORTED, cat(path, ": tensor '", name,
                                       "': expected a known dtype (F32, BF16, F16, ...), found ",
                                       dtype->get<std::string>()));
  }
  auto shape = value.find("shape");
  if (shape == value.end() || !shape->is_array()) expected("a list as shape, found something else");
  for (const json& dimension : *shape) {
    if (!dimension.is_number_unsigned() || dimension.get<uint64_t>() > uint64_t(INT64_MAX)) {
      expected(cat("dimensions from 0 to 2^63-1, found ", dimension.dump()));
    }
    entry.shape.push_back(int64_t(dimension.get<uint64_t>()));
  }
  auto offsets = value.find("data_offsets");
  if (offsets == value.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    expected("two data_offsets, found something else");
  }
  entry.begin = (*offsets)[0].get<uint64_t>();
  entry.end = (*offsets)[1].get<uint64_t>();
  auto bytes = byte_count(entry.shape, entry.element_bytes());
  if (!bytes) expected(cat("a size that fits 63 bits, found shape ", shape->dump()));
  if (entry.end < entry.begin || entry.end - entry.begin != *bytes) {
    expected(cat(grouped(*bytes), " bytes for shape ", shape->dump(), " of ", entry.dtype->name,
                 ", found data_offsets ", offsets->dump()));
  }
  return entry;
}

}  // namespace

const DtypeName* find_dtype(const std::string& name) {
  for (const DtypeName& dtype : kDtypes) {
    if (name == dtype.name) return &dtype;
  }
  return nullptr;
}

const DtypeName* find_dtype(DLDataType type) {
  for (const DtypeName& dtype : kDtypes) {
    if (type.code == dtype.type.code && type.bits == dtype.type.bits && type.lanes == 1)
      return &dtype;
  }
  return nullptr;
}

int64_t TensorEntry::elements() const { return int64_t((end - begin) / element_bytes()); }

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  uint64_t length = 0;
  refuse_lfs_pointer(file_);
  if (file_.size() < kLengthBytes) {
    fail_file(path, cat("expected at least 8 bytes, found ", file_.size(),
                        "; the file is cut short: copy it again"));
  }
  file_.read(0, &length, kLengthBytes);
  if (length > kHeaderLimit || length > file_.size() - kLengthBytes) {
    fail_file(path, cat("expected a header that fits the file (", grouped(file_.size()),
                        " bytes), found a header length of ", grouped(length),
                        "; the file is cut short or no safetensors file"));
  }
  std::string text(size_t(length), '\0');
  file_.read(kLengthBytes, text.data(), text.size());
  json header = parse_header(path, text);
  for (const auto& [name, value] : header.items()) {
    if (name != "__metadata__") {
      tensors_.push_back(parse_entry(path, name, value));
    } else if (value.is_object()) {  // absent, null and {} are all fine
      for (const auto& [key, entry] : value.items()) {
        if (!entry.is_string())
          fail_file(path, cat("expected text in __metadata__, found ", entry.type_name(),
                              " under '", key, "'"));
        metadata_[key] = entry.get<std::string>();
      }
    } else if (!value.is_null()) {
      fail_file(path, cat("expected a block of text as __metadata__, found ", value.type_name()));
    }
  }

  std::sort(tensors_.begin(), tensors_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  const uint64_t data_begin = kLengthBytes + length;
  const uint64_t data_bytes = file_.size() - data_begin;
  uint64_t position = 0;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TensorEntry& entry = tensors_[i];
    if (entry.begin != position) {
      fail_file(path, cat("tensor '", entry.name, "': expected its data at ", position,
                          ", right after the one before, found it at ", entry.begin,
                          "; the header overlaps or leaves a gap"));
    }
    position = entry.end;
    if (entry.end > data_bytes) {
      const uint64_t needed = data_begin + tensors_.back().end;
      fail_file(path, cat("expected ", grouped(needed), " bytes as its header says, found ",
                          grouped(file_.size()), " on disk; tensor '", entry.name,
                          "' is the first that is cut: copy the file again"));
    }
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  if (position != data_bytes) {
    fail_file(path, cat("expected ", grouped(data_begin + position),
                        " bytes as its header says, found ", grouped(file_.size()), " on disk"));
  }
}

const TensorEntry* SafetensorsReader::find(const std::string& name) const {
  for (const TensorEntry& entry : tensors_) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

void SafetensorsReader::read(const TensorEntry& tensor, int64_t first, int64_t count,
                             void* to) const {
  if (first < 0 || count < 0 || first > tensor.elements() - count) {
    sdk::fail(FASTLLM_INVALID,
              cat("expected elements inside tensor '", tensor.name, "' of ", tensor.elements(),
                  ", asked for ", count, " from ", first, " in ", path()));
  }
  file_.read(tensor.begin + uint64_t(first) * tensor.element_bytes(), to,
             size_t(count) * tensor.element_bytes());
}

void SafetensorsWriter::add(const std::string& name, DLDataType dtype,
                            const std::vector<int64_t>& shape) {
  if (file_)
    sdk::fail(FASTLLM_INVALID,
              cat("tensor '", name, "' was declared after the first write to ", path_));
  TensorEntry entry;
  entry.name = name;
  entry.dtype = find_dtype(dtype);
  entry.shape = shape;
  if (!entry.dtype) {
    sdk::fail(FASTLLM_UNSUPPORTED,
              cat("expected a dtype that safetensors knows for '", name, "', found code ",
                  int(dtype.code), ", ", int(dtype.bits), " bits"));
  }
  auto bytes = byte_count(shape, entry.element_bytes());
  if (!bytes) sdk::fail(FASTLLM_INVALID, cat("expected a size that fits 63 bits for '", name, "'"));
  entry.end = *bytes;
  if (!tensors_.emplace(name, entry).second)
    sdk::fail(FASTLLM_INVALID, cat("tensor '", name, "' was declared twice"));
}

void SafetensorsWriter::begin() {
  // Wider types first, then by name: every tensor is aligned to its own type, as the reference
  // library writes.
  std::vector<TensorEntry*> order;
  for (auto& [name, entry] : tensors_) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](const TensorEntry* a, const TensorEntry* b) {
    return a->element_bytes() > b->element_bytes();
  });
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  uint64_t position = 0;
  for (TensorEntry* entry : order) {
    entry->end += position;  // a size until now
    entry->begin = position;
    position = entry->end;
    header[entry->name] = {{"dtype", entry->dtype->name},
                           {"shape", entry->shape},
                           {"data_offsets", {entry->begin, entry->end}}};
  }
  // Text that is not UTF-8 becomes U+FFFD instead of an exception: it is informative only.
  std::string text = header.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  const uint64_t length = text.size();
  for (TensorEntry* entry : order) {
    entry->begin += kLengthBytes + length;
    entry->end += kLengthBytes + length;
  }
  file_ = std::make_unique<OutputFile>(path_, kLengthBytes + length + position);
  file_->write(0, &length, kLengthBytes);
  file_->write(kLengthBytes, text.data(), text.size());
}

void SafetensorsWriter::write(const std::string& name, int64_t first, int64_t count,
                              const void* from) {
  if (!file_) begin();
  auto found = tensors_.find(name);
  if (found == tensors_.end())
    sdk::fail(FASTLLM_INVALID, cat("tensor '", name, "' was not declared for ", path_));
  const TensorEntry& entry = found->second;
  if (first < 0 || count < 0 || first > entry.elements() - count) {
    sdk::fail(FASTLLM_INVALID,
              cat("expected elements inside tensor '", name, "' of ", entry.elements(), ", given ",
                  count, " from ", first, " for ", path_));
  }
  file_->write(entry.begin + uint64_t(first) * entry.element_bytes(), from,
               size_t(count) * entry.element_bytes());
}

void SafetensorsWriter::finish() {
  if (!file_) begin();
  file_->sync_and_close();
}

}  // namespace fastllm::distributed
