// Order of work on a device. Everything that is given to a stream runs in that order; streams wait for
// each other by events, and the host for neither, but where it says so.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <type_traits>

namespace fastllm::cuda {

// This thread's device, for a scope.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// A point in a stream, without a time.
class Event {
 public:
  explicit Event(int device);
  void record(cudaStream_t stream);
  cudaEvent_t get() const { return event_.get(); }

 private:
  struct Destroy {
    void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
  };
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy> event_;
};

// Never the default stream: it waits for nothing that it was not told to wait for.
class Stream {
 public:
  explicit Stream(int device);
  cudaStream_t get() const { return stream_.get(); }
  int device() const { return device_; }
  // What comes next in this stream waits for what the event was recorded behind.
  void wait(const Event& event);
  // The host waits. Throws what went wrong in the stream.
  void synchronize();

 private:
  struct Destroy {
    void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
  };
  int device_;
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy> stream_;
};

}  // namespace fastllm::cuda
