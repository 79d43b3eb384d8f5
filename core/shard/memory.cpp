// Anonymous mappings and parallel element-wise passes over them. Results do not depend on the
// number of threads.
#include "core/shard/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::shard {
namespace {

constexpr int64_t kChunk = int64_t(1) << 16;  // elements a thread takes at once: 256 KiB

template <typename Body>
void in_chunks(int64_t n, Body&& body) {
  const int64_t chunks = (n + kChunk - 1) / kChunk;
#pragma omp parallel for schedule(static) if (chunks > 1)
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t begin = c * kChunk;
    body(begin, std::min(n, begin + kChunk) - begin);
  }
}

}  // namespace

Memory::Memory(int64_t bytes, const char* what) {
  if (bytes == 0) return;
  FASTLLM_ASSERT(bytes > 0);
  void* data =
      mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw Error(Status::kOutOfMemory,
                fmt::format("expected {} bytes ({:.2f} GiB) of memory for {}, the system gave none "
                            "({}); use a smaller model, more "
                            "ranks, or a machine with more memory",
                            bytes, double(bytes) / (int64_t(1) << 30), what, errno_text(errno)));
  madvise(data, size_t(bytes),
          MADV_HUGEPAGE);  // a wish; systems without it say no and nothing is lost
  data_ = static_cast<std::byte*>(data);
  bytes_ = bytes;
}

Memory::~Memory() {
  if (data_) munmap(data_, size_t(bytes_));
}

void Memory::zero(int64_t begin, int64_t end) {
  FASTLLM_ASSERT(begin >= 0 && begin <= end && end <= bytes_);
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first >= last || madvise(data_ + first, size_t(last - first), MADV_DONTNEED) != 0) {
    std::memset(data_ + begin, 0, size_t(end - begin));
    return;
  }
  std::memset(data_ + begin, 0, size_t(first - begin));
  std::memset(data_ + last, 0, size_t(end - last));
}

void copy(float* to, const float* from, int64_t n) {
  in_chunks(n, [=](int64_t begin, int64_t count) {
    std::memcpy(to + begin, from + begin, size_t(count) * sizeof(float));
  });
}

void add(float* to, const float* from, int64_t n) {
  in_chunks(n, [=](int64_t begin, int64_t count) {
    float* __restrict t = to + begin;
    const float* __restrict f = from + begin;
    for (int64_t i = 0; i < count; ++i) t[i] += f[i];
  });
}

void fill_zero(float* to, int64_t n) {
  in_chunks(n, [=](int64_t begin, int64_t count) {
    std::memset(to + begin, 0, size_t(count) * sizeof(float));
  });
}

}  // namespace fastllm::shard
