// The safetensors container: 8-byte little-endian header length, JSON header, raw little-endian
// data. A file is hostile until its header is checked: length against the file before anything is
// allocated, names once, shapes times dtype equal to byte ranges (products checked for overflow),
// ranges side by side without gap or overlap.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "file.hpp"

namespace fastllm::distributed {

struct DtypeName {
  const char* name;  // as in files: "F32"
  DLDataType type;
};
// Null: unknown.
const DtypeName* find_dtype(const std::string& name);
const DtypeName* find_dtype(DLDataType type);

struct TensorEntry {
  std::string name;
  const DtypeName* dtype = nullptr;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the start of the file
  int64_t elements() const;
  uint64_t element_bytes() const { return dtype->type.bits / 8; }
};

class SafetensorsReader {
 public:
  // Reads and checks the header.
  explicit SafetensorsReader(const std::string& path);
  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }  // in order of their data
  const TensorEntry* find(const std::string& name) const;               // null: not there
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Elements [first, first + count) of the flattened tensor.
  void read(const TensorEntry& tensor, int64_t first, int64_t count, void* to) const;

 private:
  InputFile file_;
  std::vector<TensorEntry> tensors_;
  std::map<std::string, std::string> metadata_;
};

// Streams one file: add() everything, then write() in any order, then finish().
class SafetensorsWriter {
 public:
  explicit SafetensorsWriter(std::string path) : path_(std::move(path)) {}
  void set_metadata(const std::string& key, const std::string& text) { metadata_[key] = text; }
  void add(const std::string& name, DLDataType dtype, const std::vector<int64_t>& shape);
  // Elements [first, first + count) of the flattened tensor. The first call makes the file.
  void write(const std::string& name, int64_t first, int64_t count, const void* from);
  // All bytes are on the disk after this.
  void finish();

 private:
  void begin();
  std::string path_;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, TensorEntry> tensors_;  // ranges are set by begin()
  std::unique_ptr<OutputFile> file_;            // null until begin()
};

}  // namespace fastllm::distributed
