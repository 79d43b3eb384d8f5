#include "core/cuda/stream.hpp"

#include <fmt/format.h>

#include "core/cuda/error.hpp"

namespace fastllm::cuda {

OnDevice::OnDevice(int device) {
  check(cudaGetDevice(&before_), "a CUDA device");
  if (device == before_) return;
  check(cudaSetDevice(device), fmt::format("CUDA device {}", device));
  changed_ = true;
}
// Setting a device makes a context on it: not where nothing was changed.
OnDevice::~OnDevice() {
  if (changed_) cudaSetDevice(before_);
}

Event::Event(int device) {
  const OnDevice on(device);
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
        fmt::format("an event on CUDA device {}", device));
  event_.reset(event);
}
void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(event_.get(), stream), "an event in a CUDA stream");
}

Stream::Stream(int device) : device_(device) {
  const OnDevice on(device);
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
        fmt::format("a stream on CUDA device {}", device));
  stream_.reset(stream);
}
void Stream::wait(const Event& event) {
  check(cudaStreamWaitEvent(stream_.get(), event.get(), 0), "a CUDA stream to wait for an event");
}
void Stream::synchronize() {
  check(cudaStreamSynchronize(stream_.get()),
        fmt::format("the work of a stream on CUDA device {} to succeed", device_));
}

}  // namespace fastllm::cuda
