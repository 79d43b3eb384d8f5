// Anonymous mappings, and the system's own way to make pages of them zero.
#include "core/shard/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::shard {

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
  if (begin == end) return;  // perhaps of no memory at all
  const int64_t page = sysconf(_SC_PAGESIZE);
  const int64_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first >= last || madvise(data_ + first, size_t(last - first), MADV_DONTNEED) != 0) {
    std::memset(data_ + begin, 0, size_t(end - begin));
    return;
  }
  std::memset(data_ + begin, 0, size_t(first - begin));
  std::memset(data_ + last, 0, size_t(end - last));
}

}  // namespace fastllm::shard
