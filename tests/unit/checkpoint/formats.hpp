// Formats made for tests: the real one with a hook at every step, and one that keeps tensors by
// name in memory.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/convert.hpp"
#include "core/checkpoint/format.hpp"
#include "tests/unit/checkpoint/support.hpp"

namespace fastllm::test {

// Calls hook("create"), hook("declare weights"), hook("write weights"), hook("finish"),
// hook("finished"), hook("open") on the way.
class HookedFormat : public checkpoint::Format {
 public:
  using Hook = std::function<void(const std::string& step, const std::filesystem::path& directory)>;
  HookedFormat(checkpoint::Format& real, Hook hook) : real_(real), hook_(std::move(hook)) {}
  const std::string& type() const override { return real_.type(); }
  const std::vector<std::string>& aliases() const override { return real_.aliases(); }
  uint32_t caps() const override { return real_.caps(); }
  int64_t version() const override { return real_.version(); }
  const std::vector<config::Field>& fields() const override { return real_.fields(); }
  int detect(const std::filesystem::path& path) override { return real_.detect(path); }
  std::unique_ptr<checkpoint::Reader> open(const std::filesystem::path& path) override {
    hook_("open", path);
    return real_.open(path);
  }
  std::unique_ptr<checkpoint::Writer> create(const std::filesystem::path& directory,
                                             const Node& metadata, int rank) override {
    hook_("create", directory);
    return std::make_unique<HookedWriter>(real_.create(directory, metadata, rank), hook_,
                                          directory);
  }

 private:
  class HookedWriter : public checkpoint::Writer {
   public:
    HookedWriter(std::unique_ptr<checkpoint::Writer> real, Hook hook,
                 std::filesystem::path directory)
        : real_(std::move(real)), hook_(std::move(hook)), directory_(std::move(directory)) {}
    void declare(const std::string& state, const model::Port& port) override {
      hook_("declare " + state, directory_);
      real_->declare(state, port);
    }
    void write(const std::string& state, const std::string& name, const fastllm_box* box,
               const DLTensor* from) override {
      real_->write(state, name, box, from);
    }
    void write_shard(const std::string& state, const DLTensor* from) override {
      hook_("write " + state, directory_);
      real_->write_shard(state, from);
    }
    void finish(bool keep) override {
      hook_("finish", directory_);
      real_->finish(keep);
      hook_("finished", directory_);
    }

   private:
    std::unique_ptr<checkpoint::Writer> real_;
    Hook hook_;
    std::filesystem::path directory_;
  };
  checkpoint::Format& real_;
  Hook hook_;
};

// Whole tensors by (state, name) in memory, in any stored type; boxes only if caps say so. One
// "checkpoint" at a time.
class MemoryFormat : public checkpoint::Format {
 public:
  struct Tensor {
    DLDataType dtype;
    std::vector<int64_t> shape;
    std::vector<char> bytes;
    int64_t elements() const { return int64_t(bytes.size()) / (dtype.bits / 8); }
  };
  std::map<std::pair<std::string, std::string>, Tensor> tensors;
  Node metadata = Node::map();
  uint32_t abilities = FASTLLM_CAN_LOAD | FASTLLM_CAN_SAVE | FASTLLM_CAN_OPTIMIZER;

  const std::string& type() const override { return type_; }
  const std::vector<std::string>& aliases() const override { return aliases_; }
  uint32_t caps() const override { return abilities; }
  int64_t version() const override { return 1; }
  const std::vector<config::Field>& fields() const override { return fields_; }
  int detect(const std::filesystem::path&) override { return 0; }
  std::unique_ptr<checkpoint::Reader> open(const std::filesystem::path&) override {
    return std::make_unique<MemoryReader>(*this);
  }
  std::unique_ptr<checkpoint::Writer> create(const std::filesystem::path& directory,
                                             const Node& given, int rank) override {
    metadata = given;
    write_file_atomic(directory / fmt::format("data_{}", rank), "not looked at");
    return std::make_unique<MemoryWriter>(*this);
  }

 private:
  // Copies between a row-major tensor of the box's shape and the box in the whole tensor.
  static void copy(char* whole, const fastllm_box* box, char* part, int64_t count, int64_t bytes,
                   bool into_whole) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t global = box ? box->offset : i, rest = i;
      for (int32_t d = box ? box->ndim : 0; d-- > 0;) {
        global += rest % box->shape[d] * box->strides[d];
        rest /= box->shape[d];
      }
      std::memcpy(into_whole ? whole + global * bytes : part + i * bytes,
                  into_whole ? part + i * bytes : whole + global * bytes, size_t(bytes));
    }
  }
  static int64_t count_of(const DLTensor& t) {
    int64_t n = 1;
    for (int32_t d = 0; d < t.ndim; ++d) n *= t.shape[d];
    return n;
  }
  class MemoryReader : public checkpoint::Reader {
   public:
    explicit MemoryReader(MemoryFormat& format) : format_(format) {}
    const Node& metadata() const override { return format_.metadata; }
    const fastllm_world* world() override { return nullptr; }
    std::vector<checkpoint::StoredTensor> list() override {
      std::vector<checkpoint::StoredTensor> result;
      for (const auto& [key, tensor] : format_.tensors) {
        result.push_back(
            {key.first,
             {.name = key.second, .flags = 0, .dtype = tensor.dtype, .shape = tensor.shape}});
      }
      return result;
    }
    void read(const std::string& state, const std::string& name, const fastllm_box* box,
              DLTensor* into) override {
      EXPECT_TRUE(!box || (format_.abilities & FASTLLM_CAN_SLICE));
      auto& tensor = format_.tensors.at({state, name});
      EXPECT_EQ(into->dtype.bits, tensor.dtype.bits);
      copy(tensor.bytes.data(), box, static_cast<char*>(into->data), count_of(*into),
           tensor.dtype.bits / 8, false);
    }
    void read_shard(int, const std::string&, DLTensor*) override {
      throw Error(Status::kUnsupported, "no shards");
    }

   private:
    MemoryFormat& format_;
  };
  class MemoryWriter : public checkpoint::Writer {
   public:
    explicit MemoryWriter(MemoryFormat& format) : format_(format) {}
    void declare(const std::string& state, const model::Port& port) override {
      int64_t n = port.dtype.bits / 8;
      for (int64_t d : port.shape) n *= d;
      format_.tensors[{state, port.name}] = {port.dtype, port.shape, std::vector<char>(size_t(n))};
    }
    void write(const std::string& state, const std::string& name, const fastllm_box* box,
               const DLTensor* from) override {
      auto& tensor = format_.tensors.at({state, name});
      copy(tensor.bytes.data(), box, static_cast<char*>(from->data), count_of(*from),
           tensor.dtype.bits / 8, true);
    }
    void write_shard(const std::string&, const DLTensor*) override {
      throw Error(Status::kUnsupported, "no shards");
    }
    void finish(bool) override {}

   private:
    MemoryFormat& format_;
  };
  std::string type_ = "memory";
  std::vector<std::string> aliases_;
  std::vector<config::Field> fields_;
};

}  // namespace fastllm::test
