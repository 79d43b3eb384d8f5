// Memory that ends exactly before a page that may not be touched: one byte too far is a crash, not luck.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <stdexcept>

namespace fastllm::testing {

class GuardedMemory {
 public:
  explicit GuardedMemory(size_t bytes) {
    size_t page = size_t(::sysconf(_SC_PAGESIZE));
    size_t usable = (bytes + page - 1) / page * page;
    mapped_ = usable + page;
    void* pages =
        ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::runtime_error("mmap failed");
    pages_ = static_cast<char*>(pages);
    if (::mprotect(pages_ + usable, page, PROT_NONE) != 0)
      throw std::runtime_error("mprotect failed");
    data_ = pages_ + usable - bytes;
  }
  ~GuardedMemory() { ::munmap(pages_, mapped_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  void* data() { return data_; }

 private:
  char* pages_;
  size_t mapped_;
  char* data_;
};

// The first `bytes` bytes of a struct that begins with `size`, which says so; nothing readable follows.
template <class T>
class CutTable {
 public:
  CutTable(const T& whole, uint32_t bytes) : memory_(bytes) {
    std::memcpy(memory_.data(), &whole, bytes);
    std::memcpy(memory_.data(), &bytes, sizeof bytes);
  }
  const T* get() { return static_cast<const T*>(memory_.data()); }

 private:
  GuardedMemory memory_;
};

}  // namespace fastllm::testing
