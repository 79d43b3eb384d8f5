// Page-aligned anonymous memory that costs nothing until touched, and copies of it by several
// threads. Large pages are asked for where the system has them: first touch is then several times
// faster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace fastllm::shard {

class Memory {
 public:
  Memory() = default;
  // Zeroed. Throws Error(kOutOfMemory) that names the bytes; `what` says what they were for
  // ("shards").
  Memory(int64_t bytes, const char* what);
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  // Makes [begin, end) zero by giving whole pages back to the system.
  void zero(int64_t begin, int64_t end);

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// to[i] = from[i]; to[i] += from[i]; to[i] = 0. Ranges do not overlap. Any size; small ones stay on
// this thread.
void copy(float* to, const float* from, int64_t n);
void add(float* to, const float* from, int64_t n);
void fill_zero(float* to, int64_t n);

}  // namespace fastllm::shard
