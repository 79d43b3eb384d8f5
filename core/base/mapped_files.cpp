#include "core/base/mapped_files.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace fastllm {
namespace {

// A slot is taken by its flag and visible once it has a beginning; a signal handler only reads.
struct Slot {
  std::atomic<bool> taken;
  std::atomic<uintptr_t> begin;
  size_t size;
  char* path;
};
Slot g_slots[kMostMappedFiles];

}  // namespace

int remember_mapping(const void* data, size_t size, const std::string& path) {
  for (int i = 0; i < kMostMappedFiles; ++i) {
    Slot& slot = g_slots[i];
    if (slot.taken.exchange(true)) continue;
    slot.size = size;
    slot.path = ::strdup(path.c_str());
    slot.begin = reinterpret_cast<uintptr_t>(data);
    return i;
  }
  return -1;
}

void forget_mapping(int number) {
  if (number < 0) return;
  Slot& slot = g_slots[number];
  slot.begin = 0;
  std::free(slot.path);
  slot.path = nullptr;
  slot.taken = false;
}

const char* mapped_file_at(const void* address) noexcept {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Slot& slot : g_slots) {
    const uintptr_t begin = slot.begin;
    if (begin != 0 && at >= begin && at - begin < slot.size) return slot.path;
  }
  return nullptr;
}

}  // namespace fastllm
