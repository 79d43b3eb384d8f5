#include "core/distributed/device_backend.hpp"

#include "core/distributed/loaded_library.hpp"

namespace fastllm::distributed {

DeviceBackend& load_device_backend() {
  static DeviceBackend& backend = *static_cast<DeviceBackend*>(open_library(
      {.file = "libfastllm_nccl.so",
       .symbol = FASTLLM_DEVICE_BACKEND_SYMBOL,
       .needed_by = "a run on GPUs",
       .remedy =
           "build the program with -DFASTLLM_WITH_CUDA=ON on a computer with the CUDA toolkit "
           "and NCCL, or run on the processor"}));
  return backend;
}

}  // namespace fastllm::distributed
