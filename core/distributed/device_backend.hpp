// The library that talks between the GPUs of a run, beside the one that talks between its processes
// (backend.hpp), whose store brings the ranks together. Opened at run time by runs on GPUs alone.
#pragma once

#include <chrono>
#include <memory>

#include "core/distributed/communicator.hpp"
#include "core/distributed/exchange.hpp"
#include "core/distributed/store.hpp"

namespace fastllm::distributed {

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  // Whether and why there is no GPU to work on: throws Error(kUnavailable) with a sentence.
  virtual void require_device(int device) = 0;
  // Waits until all members have come, timeout at most. Memory of its calls is on that device of this
  // process. A call returns when its work is in order: it begins after what memory.stream holds by
  // then, and what is put into memory.stream after wait() begins after it. The host waits for neither.
  // Sums are in float32 for 16-bit types, in an order that NCCL chooses: the same bits on every rank,
  // and in every run on the same ranks, GPUs and links.
  virtual std::unique_ptr<Communicator> open_communicator(Store& store, const Group& group,
                                                          int device,
                                                          std::chrono::milliseconds timeout,
                                                          ExchangeHooks hooks) = 0;
};

// Loads it at the first call; stays. Throws Error with what to do when it cannot be had.
DeviceBackend& load_device_backend();

// The one symbol of the library. `built_for`: version and build of the caller, to match its own.
#define FASTLLM_DEVICE_BACKEND_SYMBOL "fastllm_device_backend"
using DeviceBackendEntry = DeviceBackend*(const char* built_for);

}  // namespace fastllm::distributed
