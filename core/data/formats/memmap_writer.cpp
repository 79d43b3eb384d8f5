// Tokens go to the disk as they come; the index is kept in memory and written last.
#include "core/data/formats/memmap_writer.hpp"

#include <unistd.h>

#include <cerrno>

#include "core/base/file.hpp"
#include "core/data/formats/memmap_format.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

template <class T>
void append(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value),
               sizeof(T));  // little-endian, as token_type.cpp asserts
}

}  // namespace

std::string encode_memmap_index(const DocumentIndex& index, size_t first, size_t last) {
  size_t first_span = 0, num_spans = 0;
  bool carries = !index.span_counts.empty();
  if (carries) {
    for (size_t i = 0; i < first; ++i) first_span += size_t(index.span_counts[i]);
    for (size_t i = first; i < last; ++i) num_spans += size_t(index.span_counts[i]);
  }
  size_t count = last - first;
  std::string bytes;
  bytes.reserve(43 + 20 * count + 4 * count + 8 * num_spans);
  bytes.append(kMemmapMagic);
  append(bytes, uint64_t(2));
  append(bytes, uint8_t(num_spans > 0));
  append(bytes, uint8_t(index.type));
  append(bytes, uint64_t(count));
  append(bytes, uint64_t(count + 1));
  for (size_t i = first; i < last; ++i) append(bytes, index.sizes[i]);
  int64_t offset = 0, itemsize = token_type_info(index.type).bytes;
  for (size_t i = first; i < last; ++i) {
    append(bytes, offset);
    offset += index.sizes[i] * itemsize;
  }
  if (num_spans > 0) {
    for (size_t i = first; i < last; ++i) append(bytes, index.span_counts[i]);
    for (size_t i = first_span; i < first_span + num_spans; ++i) {
      append(bytes, int32_t(index.spans[i].first));
      append(bytes, int32_t(index.spans[i].last));
    }
  }
  for (size_t i = 0; i <= count; ++i) append(bytes, int64_t(i));
  return bytes;
}

MemmapWriter::MemmapWriter(const fs::path& prefix, TokenType type)
    : paths_(prefix), documents_(paths_.tokens, type) {}

void MemmapWriter::finish() {
  documents_.check_not_empty();
  documents_.close();
  // An index of older files must not stand beside the new tokens, not even for a moment.
  if (::unlink(paths_.index.c_str()) != 0 && errno != ENOENT)
    fail_errno("replace", paths_.index, errno);
  documents_.publish();
  const DocumentIndex& index = documents_.index();
  write_file_atomic(paths_.index, encode_memmap_index(index, 0, index.sizes.size()));
}

}  // namespace fastllm::data
