// The door of libfastllm_nccl.so.
#include <fmt/format.h>

#include <string_view>

#include "core/base/error.hpp"
#include "core/cuda/error.hpp"
#include "core/cuda/nccl/communicator.hpp"
#include "core/distributed/device_backend.hpp"

namespace fastllm::cuda {
namespace {

class NcclBackend final : public distributed::DeviceBackend {
 public:
  void require_device(int device) override {
    if (const auto why = why_no_device())
      throw Error(Status::kUnavailable,
                  *why + "; install the driver (nvidia-smi shows it), or run on the processor");
    int count = 0;
    check(cudaGetDeviceCount(&count), "the number of CUDA devices");
    if (device < 0 || device >= count)
      throw Error(
          Status::kUnavailable,
          fmt::format("expected CUDA device {}, found {} of them (from 0); start as many ranks "
                      "on a computer as it has GPUs, and see CUDA_VISIBLE_DEVICES",
                      device, count));
    if (const auto why = why_no_device(device))
      throw Error(Status::kUnavailable, fmt::format("CUDA device {}: {}", device, *why));
  }
  std::unique_ptr<distributed::Communicator> open_communicator(
      distributed::Store& store, const distributed::Group& group, int device,
      std::chrono::milliseconds timeout, distributed::ExchangeHooks hooks) override {
    require_device(device);
    return make_nccl(store, group, device, timeout, std::move(hooks));
  }
};

}  // namespace
}  // namespace fastllm::cuda

extern "C" __attribute__((visibility("default"))) fastllm::distributed::DeviceBackend*
fastllm_device_backend(const char* built_for) {
  static fastllm::cuda::NcclBackend backend;
  return std::string_view(built_for) == FASTLLM_BACKEND_VERSION ? &backend : nullptr;
}
