// How bytes lie in files, as the host sees it: core/plugin implements this over a format plugin's C
// table (<fastllm/checkpoint_format.h>); tests implement it in C++. Knows names, shapes, layouts;
// no commit protocol.
#pragma once

#include <fastllm/checkpoint_format.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/config/node.hpp"
#include "core/config/schema.hpp"
#include "core/model/description.hpp"

namespace fastllm::checkpoint {

struct StoredTensor {
  std::string state;   // "weights", "exp_avgs", ...
  model::Port tensor;  // name, dtype, global shape
};

class Reader {
 public:
  virtual ~Reader() = default;
  // model, config, shards, metadata, fast_llm_version
  virtual const config::Node& metadata() const = 0;
  // The world the files were written in; null: read() only. Owned by the reader.
  virtual const fastllm_world* world() = 0;
  virtual std::vector<StoredTensor> list() = 0;
  virtual void read(const std::string& state, const std::string& name, const fastllm_box* box,
                    DLTensor* into) = 0;
  virtual void read_shard(int rank, const std::string& state, DLTensor* into) = 0;
};

class Writer {  // destroyed unfinished: finish(false)
 public:
  virtual ~Writer() = default;
  virtual void declare(const std::string& state, const model::Port& port) = 0;
  virtual void write(const std::string& state, const std::string& name, const fastllm_box* box,
                     const DLTensor* from) = 0;
  virtual void write_shard(const std::string& state, const DLTensor* from) = 0;
  virtual void finish(bool keep) = 0;
};

class Format {
 public:
  virtual ~Format() = default;
  virtual const std::string& type() const = 0;  // "distributed"
  virtual const std::vector<std::string>& aliases() const = 0;
  virtual uint32_t caps() const = 0;  // FASTLLM_CAN_*
  virtual int64_t version() const = 0;
  virtual const std::vector<config::Field>& fields() const = 0;
  virtual int detect(const std::filesystem::path& path) = 0;  // 0..100
  virtual std::unique_ptr<Reader> open(const std::filesystem::path& path) = 0;
  virtual std::unique_ptr<Writer> create(const std::filesystem::path& directory,
                                         const config::Node& metadata, int rank) = 0;
};

}  // namespace fastllm::checkpoint
