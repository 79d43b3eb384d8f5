// Free lists by size over the system's aligned allocation.
// Large blocks start on a large page and ask for such pages: a first step then takes far fewer page
// faults.
#include "core/train/executor/activation_pool.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) (void)(begin), (void)(bytes)
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) (void)(begin), (void)(bytes)
#endif

namespace fastllm::train {
namespace {

constexpr int64_t kAlignment = 64, kLargePage = int64_t(1) << 21;

}  // namespace

int64_t ActivationPool::block_bytes(int64_t bytes) {
  const int64_t unit = bytes >= kLargePage ? kLargePage : kAlignment;
  return (bytes + unit - 1) / unit * unit;
}

ActivationPool::~ActivationPool() {
  for (auto& [size, blocks] : free_)
    for (void* block : blocks) {
      ASAN_UNPOISON_MEMORY_REGION(block, size_t(size));
      std::free(block);
    }
}

void* ActivationPool::take(int64_t bytes) {
  if (bytes == 0) return nullptr;
  const int64_t size = block_bytes(bytes);
  std::vector<void*>& blocks = free_[size];
  void* block = nullptr;
  if (!blocks.empty()) {
    block = blocks.back();
    blocks.pop_back();
    ASAN_UNPOISON_MEMORY_REGION(block, size_t(size));
  } else {
    block = std::aligned_alloc(size_t(size >= kLargePage ? kLargePage : kAlignment), size_t(size));
    if (!block)
      throw Error(Status::kOutOfMemory,
                  fmt::format("expected {} of memory for an activation beside the {} in use, the "
                              "system gave none; lower "
                              "batch.micro_batch_size or turn on recomputation",
                              mib_text(bytes), mib_text(in_use_)));
    if (size >= kLargePage) madvise(block, size_t(size), MADV_HUGEPAGE);
    ++allocations_;
  }
  in_use_ += size;
  peak_ = std::max(peak_, in_use_);
  return block;
}

void ActivationPool::give(void* block, int64_t bytes) {
  if (!block) return;
  const int64_t size = block_bytes(bytes);
#ifndef NDEBUG
  std::memset(block, 0xff, size_t(size));
#endif
  ASAN_POISON_MEMORY_REGION(block, size_t(size));
  in_use_ -= size;
  free_[size].push_back(block);
}

}  // namespace fastllm::train
