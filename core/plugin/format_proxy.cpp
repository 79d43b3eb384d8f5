// A checkpoint format behind its C table. What a format cannot is refused here, before the plugin
// is asked; readers and writers are closed whatever happens.
#include "core/plugin/format_proxy.hpp"

#include <fmt/format.h>

#include "core/plugin/config_services.hpp"
#include "core/plugin/host_services.hpp"
#include "core/plugin/manifest.hpp"
#include "core/plugin/normalise.hpp"
#include "core/plugin/sink.hpp"
#include "core/plugin/tensor_guard.hpp"

namespace fastllm::plugin {
namespace {

// What a format must bring follows from what it says it can.
fastllm_format_api copy_table(const fastllm_format_api* theirs) {
  auto api = normalise(theirs, "fastllm_format_api", {FASTLLM_REQUIRE(fastllm_format_api, type)});
  auto require = [&](std::initializer_list<RequiredMember> members) {
    normalise(theirs, "fastllm_format_api", members);
  };
  if (!(api.caps & (FASTLLM_CAN_LOAD | FASTLLM_CAN_SAVE))) {
    throw Error(Status::kInternal,
                "expected fastllm_format_api.caps with FASTLLM_CAN_LOAD or FASTLLM_CAN_SAVE, found "
                "neither");
  }
  if (api.caps >> 16) {
    throw Error(Status::kUnsupported, fmt::format("expected fastllm_format_api.caps that this host "
                                                  "knows, found {:#x}; a newer host may know them",
                                                  api.caps));
  }
  bool shards = api.caps & FASTLLM_CAN_SHARDS;
  if (api.caps & FASTLLM_CAN_LOAD) {
    require({FASTLLM_REQUIRE(fastllm_format_api, detect), FASTLLM_REQUIRE(fastllm_format_api, open),
             FASTLLM_REQUIRE(fastllm_format_api, list), FASTLLM_REQUIRE(fastllm_format_api, read),
             FASTLLM_REQUIRE(fastllm_format_api, close)});
    if (shards)
      require({FASTLLM_REQUIRE(fastllm_format_api, world),
               FASTLLM_REQUIRE(fastllm_format_api, read_shard)});
  }
  if (api.caps & FASTLLM_CAN_SAVE) {
    require(
        {FASTLLM_REQUIRE(fastllm_format_api, create), FASTLLM_REQUIRE(fastllm_format_api, declare),
         FASTLLM_REQUIRE(fastllm_format_api, write), FASTLLM_REQUIRE(fastllm_format_api, finish)});
    if (shards) require({FASTLLM_REQUIRE(fastllm_format_api, write_shard)});
  }
  return api;
}

// What all proxies of one format share.
struct Shared {
  std::shared_ptr<const Identity> identity;
  fastllm_format_api api;
  std::string type;

  template <class... P, class... A>
  void call(const char* what, const char* detail, fastllm_status (*function)(P...),
            A... arguments) const {
    call_status(*identity, what, -1, detail, function, arguments...);
  }
  void need(uint32_t cap, const char* verb) const {
    if (!(api.caps & cap))
      throw Error(Status::kUnsupported,
                  fmt::format("the checkpoint format {} cannot {}", type, verb));
  }
  [[noreturn]] void fault(const char* what, const char* detail, const std::string& text) const {
    CallScope scope(*identity, what, -1, detail);
    throw_fault(text);
  }
};
using SharedPtr = std::shared_ptr<const Shared>;

class ReaderProxy final : public checkpoint::Reader {
 public:
  ReaderProxy(SharedPtr shared, const std::filesystem::path& path)
      : shared_(std::move(shared)), path_(path.string()), tree_(metadata_) {
    shared_->call("open", path_.c_str(), shared_->api.open, path_.c_str(), tree_.handle(),
                  &handle_);
    if (!handle_) shared_->fault("open", path_.c_str(), "returned FASTLLM_OK and no reader");
  }
  ~ReaderProxy() override {
    if (handle_) call_release(*shared_->identity, "close", shared_->api.close, handle_);
  }
  const config::Node& metadata() const override { return metadata_; }

  const fastllm_world* world() override {
    if (!(shared_->api.caps & FASTLLM_CAN_SHARDS)) return nullptr;
    return call_value(*shared_->identity, "world", path_.c_str(), shared_->api.world, handle_);
  }

  std::vector<checkpoint::StoredTensor> list() override {
    fastllm_sink sink(Describing::kTensors);
    shared_->call("list", path_.c_str(), shared_->api.list, handle_, emit_table(), &sink);
    try {
      sink.check();
    } catch (const Error& e) {
      shared_->fault("list", path_.c_str(), e.what());
    }
    return std::move(sink.tensors);
  }

  void read(const std::string& state, const std::string& name, const fastllm_box* box,
            DLTensor* into) override {
    if (box) shared_->need(FASTLLM_CAN_SLICE, "read parts of a tensor");
    TensorGuard guard({&into, 1});
    shared_->call("read", name.c_str(), shared_->api.read, handle_, state.c_str(), name.c_str(),
                  box, into);
    check_unchanged(guard, "read", name);
  }

  void read_shard(int rank, const std::string& state, DLTensor* into) override {
    shared_->need(FASTLLM_CAN_SHARDS, "read whole shards");
    TensorGuard guard({&into, 1});
    shared_->call("read_shard", state.c_str(), shared_->api.read_shard, handle_, int32_t(rank),
                  state.c_str(), into);
    check_unchanged(guard, "read_shard", state);
  }

 private:
  void check_unchanged(const TensorGuard& guard, const char* what, const std::string& name) const {
    if (guard.changed() >= 0)
      shared_->fault(
          what, name.c_str(),
          "changed the description of the tensor it had to fill; only its data may be written");
  }

  SharedPtr shared_;
  std::string path_;
  config::Node metadata_ = config::Node::map();
  ConfigTree tree_;  // stays until close
  fastllm_reader* handle_ = nullptr;
};

class WriterProxy final : public checkpoint::Writer {
 public:
  WriterProxy(SharedPtr shared, const std::filesystem::path& directory,
              const config::Node& metadata, int rank)
      : shared_(std::move(shared)),
        path_(directory.string()),
        metadata_(metadata),
        tree_(metadata_) {
    shared_->call("create", path_.c_str(), shared_->api.create, path_.c_str(), tree_.handle(),
                  int32_t(rank), &handle_);
    if (!handle_) shared_->fault("create", path_.c_str(), "returned FASTLLM_OK and no writer");
  }
  ~WriterProxy() override {
    if (!handle_) return;
    try {
      finish(false);
    } catch (...) {
      log_swallowed();
    }
  }

  void declare(const std::string& state, const model::Port& port) override {
    fastllm_port raw{};
    raw.size = sizeof raw;
    raw.flags = port.flags;
    raw.name = port.name.c_str();
    raw.dtype = port.dtype;
    raw.ndim = int32_t(port.shape.size());
    raw.shape = port.shape.data();
    shared_->call("declare", port.name.c_str(), shared_->api.declare, handle(), state.c_str(),
                  &raw);
  }

  void write(const std::string& state, const std::string& name, const fastllm_box* box,
             const DLTensor* from) override {
    if (box) shared_->need(FASTLLM_CAN_SLICE, "write parts of a tensor");
    shared_->call("write", name.c_str(), shared_->api.write, handle(), state.c_str(), name.c_str(),
                  box, from);
  }

  void write_shard(const std::string& state, const DLTensor* from) override {
    shared_->need(FASTLLM_CAN_SHARDS, "write whole shards");
    shared_->call("write_shard", state.c_str(), shared_->api.write_shard, handle(), state.c_str(),
                  from);
  }

  void finish(bool keep) override {
    fastllm_writer* writer = handle();
    handle_ = nullptr;  // finish frees, also on failure
    shared_->call("finish", path_.c_str(), shared_->api.finish, writer, int32_t(keep));
  }

 private:
  fastllm_writer* handle() const {
    FASTLLM_ASSERT(handle_ && "the writer is not finished");
    return handle_;
  }

  SharedPtr shared_;
  std::string path_;
  config::Node metadata_;
  ConfigTree tree_;  // stays until finish
  fastllm_writer* handle_ = nullptr;
};

class FormatProxy final : public checkpoint::Format {
 public:
  FormatProxy(std::shared_ptr<const Identity> identity, const fastllm_format_api* theirs) {
    auto api = copy_table(theirs);
    if (!is_identifier(std::string_view(api.type, strnlen(api.type, 1024)))) {
      throw Error(Status::kInternal,
                  "expected fastllm_format_api.type to be letters, digits and _ . - /, found "
                  "something else");
    }
    for (const char* const* alias = api.aliases; alias && *alias; ++alias) {
      if (aliases_.size() == kMaxAliases)
        throw Error(Status::kInternal,
                    "expected fastllm_format_api.aliases to end with NULL, found no end");
      aliases_.emplace_back(*alias);
    }
    shared_ = std::make_shared<const Shared>(Shared{std::move(identity), api, api.type});
    if (!api.fields) return;
    fastllm_sink sink(Describing::kFields);
    shared_->call("fields", nullptr, api.fields, emit_table(), &sink);
    sink.check();
    fields_ = std::move(sink.fields);
  }

  const std::string& type() const override { return shared_->type; }
  const std::vector<std::string>& aliases() const override { return aliases_; }
  uint32_t caps() const override { return shared_->api.caps; }
  int64_t version() const override { return shared_->api.version; }
  const std::vector<config::Field>& fields() const override { return fields_; }

  int detect(const std::filesystem::path& path) override {
    if (!(caps() & FASTLLM_CAN_LOAD)) return 0;
    std::string text = path.string();
    int32_t score = 0;
    shared_->call("detect", text.c_str(), shared_->api.detect, text.c_str(), &score);
    if (score < 0 || score > 100)
      shared_->fault("detect", text.c_str(),
                     fmt::format("expected a score of 0 to 100, found {}", score));
    return score;
  }

  std::unique_ptr<checkpoint::Reader> open(const std::filesystem::path& path) override {
    shared_->need(FASTLLM_CAN_LOAD, "load");
    return std::make_unique<ReaderProxy>(shared_, path);
  }

  std::unique_ptr<checkpoint::Writer> create(const std::filesystem::path& directory,
                                             const config::Node& metadata, int rank) override {
    shared_->need(FASTLLM_CAN_SAVE, "save");
    return std::make_unique<WriterProxy>(shared_, directory, metadata, rank);
  }

 private:
  static constexpr size_t kMaxAliases = 64;
  SharedPtr shared_;
  std::vector<std::string> aliases_;
  std::vector<config::Field> fields_;
};

}  // namespace

std::unique_ptr<checkpoint::Format> make_format(std::shared_ptr<const Identity> identity,
                                                const fastllm_format_api* theirs) {
  return std::make_unique<FormatProxy>(std::move(identity), theirs);
}

}  // namespace fastllm::plugin
