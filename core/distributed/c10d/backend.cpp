// c10d's store and Gloo's messages behind core/distributed/backend.hpp. The only source of the core
// that sees LibTorch. Nothing of LibTorch leaves it, its exceptions neither.
#include <ATen/ops/from_blob.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "core/distributed/backend.hpp"

namespace fastllm::distributed {
namespace {

// The first line of what LibTorch says, without the source file in front; behind it comes a trace.
std::string first_line(const std::exception& e) {
  std::string_view text = e.what();
  if (const auto* error = dynamic_cast<const c10::Error*>(&e))
    text = error->what_without_backtrace();
  text = text.substr(0, std::min(text.find('\n'), size_t(300)));
  const size_t source = text.find("] ");
  if (text.starts_with('[') && source != text.npos) text.remove_prefix(source + 2);
  return std::string(text);
}

template <class Lost, class Body>
auto translated(Body&& body) {
  try {
    return body();
  } catch (const std::exception& e) {
    throw Lost(first_line(e));
  }
}

class C10dStore final : public Store {
 public:
  explicit C10dStore(const StoreAddress& address) {
    c10d::TCPStoreOptions options;
    options.port = std::uint16_t(address.port);
    options.isServer = address.listening.has_value();
    options.masterListenFd = address.listening;
    options.waitWorkers = false;
    options.timeout = address.timeout;
    store_ = c10::make_intrusive<c10d::PrefixStore>(
        address.prefix, c10::make_intrusive<c10d::TCPStore>(address.host, options));
  }

  const c10::intrusive_ptr<c10d::Store>& c10d_store() const { return store_; }

  void set(const std::string& key, const std::string& value) override {
    translated<StoreLost>(
        [&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }
  std::optional<std::string> get(const std::string& key) override {
    return translated<StoreLost>([&]() -> std::optional<std::string> {
      if (!store_->check({key})) return std::nullopt;
      const std::vector<uint8_t> value = store_->get(key);
      return std::string(value.begin(), value.end());
    });
  }
  bool has(std::span<const std::string> keys) override {
    return translated<StoreLost>(
        [&] { return store_->check(std::vector<std::string>(keys.begin(), keys.end())); });
  }
  int64_t add(const std::string& key, int64_t amount) override {
    return translated<StoreLost>([&] { return store_->add(key, amount); });
  }
  void remove(const std::string& key) override {
    translated<StoreLost>([&] { store_->deleteKey(key); });
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

class GlooWork final : public Work {
 public:
  explicit GlooWork(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  void wait() override {
    translated<std::runtime_error>([&] { work_->wait(); });
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

class GlooMessages final : public Messages {
 public:
  explicit GlooMessages(c10::intrusive_ptr<c10d::ProcessGroupGloo> group)
      : group_(std::move(group)) {}

  std::unique_ptr<Work> send(const void* data, int64_t bytes, int to, uint32_t tag) override {
    return translated<std::runtime_error>([&] {
      std::vector<at::Tensor> tensors{view(const_cast<void*>(data), bytes)};
      return std::make_unique<GlooWork>(group_->send(tensors, to, int(tag)));
    });
  }
  std::unique_ptr<Work> receive(void* data, int64_t bytes, int from, uint32_t tag) override {
    return translated<std::runtime_error>([&] {
      std::vector<at::Tensor> tensors{view(data, bytes)};
      return std::make_unique<GlooWork>(group_->recv(tensors, from, int(tag)));
    });
  }

 private:
  static at::Tensor view(void* data, int64_t bytes) {
    return at::from_blob(data, {bytes}, at::kByte);
  }
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

// As PyTorch chooses, but for a run on one computer, which needs no other interface than its own.
std::shared_ptr<gloo::transport::Device> device_for(const std::string& master_host) {
  using c10d::ProcessGroupGloo;
  if (const char* name = std::getenv("GLOO_SOCKET_IFNAME"); name && *name)
    return ProcessGroupGloo::createDeviceForInterface(name);
  if (master_host == "127.0.0.1" || master_host == "localhost")
    return ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  return ProcessGroupGloo::createDefaultDevice();
}

class C10dBackend final : public Backend {
 public:
  std::unique_ptr<Store> open_store(const StoreAddress& address) override {
    return translated<StoreLost>([&] { return std::make_unique<C10dStore>(address); });
  }
  std::unique_ptr<Messages> open_messages(Store& store, const Group& group,
                                          const std::string& master_host,
                                          std::chrono::milliseconds timeout) override {
    return translated<std::runtime_error>([&] {
      auto options = c10d::ProcessGroupGloo::Options::create(timeout);
      options->devices.push_back(device_for(master_host));
      options->threads = 1;  // for collectives, of which none is used
      auto prefixed = c10::make_intrusive<c10d::PrefixStore>(
          group.key() + "/", dynamic_cast<C10dStore&>(store).c10d_store());
      return std::make_unique<GlooMessages>(
          c10::make_intrusive<c10d::ProcessGroupGloo>(prefixed, group.rank, group.size(), options));
    });
  }
};

}  // namespace
}  // namespace fastllm::distributed

extern "C" __attribute__((visibility("default"))) fastllm::distributed::Backend*
fastllm_distributed_backend(const char* built_for) {
  // What goes wrong is told by the host, in a sentence; LibTorch would add traces of its functions.
  ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);
  c10::initLogging();
  static fastllm::distributed::C10dBackend backend;
  return std::string_view(built_for) == FASTLLM_BACKEND_VERSION ? &backend : nullptr;
}
