// Page-aligned anonymous memory that costs nothing until touched. Large pages are asked for where
// the system has them: first touch is then several times faster.
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

}  // namespace fastllm::shard
