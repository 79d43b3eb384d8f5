// Aligned CPU memory with a cache by classes of size. Deleters run on any thread and touch no plugin.
#include "core/plugin/host_memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <bit>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/base/error.hpp"
#include "core/plugin/host_services.hpp"

namespace fastllm::plugin {
namespace {

constexpr size_t kAlignment = 64;              // a cache line; AVX-512 loads
constexpr size_t kLargePage = 1 << 21;         // larger blocks are whole pages of this size
constexpr uint64_t kMaxCachedBytes = 1 << 30;  // beyond it freed blocks go back to the system
constexpr int32_t kMaxDims = 64;               // LibTorch's own bound

struct Cache {
  struct Block {
    uint64_t bytes;
    void* data;
  };
  std::mutex mutex;
  std::list<Block> blocks;  // longest unused first
  std::unordered_multimap<uint64_t, std::list<Block>::iterator> by_bytes;
  uint64_t bytes = 0;

  // A block of that size, out of the cache; null: none.
  void* take(uint64_t wanted) {
    const auto found = by_bytes.find(wanted);
    if (found == by_bytes.end()) return nullptr;
    void* data = found->second->data;
    blocks.erase(found->second);
    by_bytes.erase(found);
    bytes -= wanted;
    return data;
  }
  void drop_oldest() {
    const auto oldest = blocks.begin();
    auto [at, end] = by_bytes.equal_range(oldest->bytes);
    while (at->second != oldest) ++at;
    by_bytes.erase(at);
    bytes -= oldest->bytes;
    std::free(oldest->data);
    blocks.erase(oldest);
  }
};
Cache& cache() {
  static auto* instance = new Cache;  // deleters may run while the process ends
  return *instance;
}

size_t alignment_of(uint64_t bytes) { return bytes >= kLargePage ? kLargePage : kAlignment; }

// Eight classes of size between powers of two: sizes that vary a little, with the documents in a batch
// say, use the same blocks again. What is rounded up is not touched.
uint64_t class_of(uint64_t bytes) {
  const uint64_t step = std::max<uint64_t>(std::bit_floor(bytes) / 8, alignment_of(bytes));
  return (bytes + step - 1) / step * step;
}

void* take_block(uint64_t bytes) {
  {
    std::lock_guard lock(cache().mutex);
    if (void* block = cache().take(bytes)) return block;
  }
  void* block = std::aligned_alloc(alignment_of(bytes), bytes);
  if (!block)
    throw Error(Status::kOutOfMemory, fmt::format("cannot allocate {} bytes for a plugin", bytes));
  if (bytes >= kLargePage) madvise(block, bytes, MADV_HUGEPAGE);  // far fewer page faults
  return block;
}

// What is above the bound goes back to the system, the longest unused first.
void give_block(void* block, uint64_t bytes) noexcept {
  if (bytes > kMaxCachedBytes) return std::free(block);
  auto& c = cache();
  std::lock_guard lock(c.mutex);
  bool listed = false;
  try {
    c.blocks.push_back({bytes, block});
    listed = true;
    c.by_bytes.emplace(bytes, std::prev(c.blocks.end()));
    c.bytes += bytes;
  } catch (...) {  // no memory for the entry
    if (listed) c.blocks.pop_back();
    std::free(block);
    return;
  }
  while (c.bytes > kMaxCachedBytes) c.drop_oldest();
}

// What `out` points at, with everything it refers to.
struct Managed {
  DLManagedTensorVersioned tensor{};
  std::vector<int64_t> shape, strides;
  uint64_t bytes = 0;
};

void delete_managed(DLManagedTensorVersioned* tensor) {
  if (!tensor) return;
  std::unique_ptr<Managed> managed(static_cast<Managed*>(tensor->manager_ctx));
  if (managed->tensor.dl_tensor.data) give_block(managed->tensor.dl_tensor.data, managed->bytes);
}

}  // namespace

uint64_t tensor_bytes(const DLTensor& tensor) {
  if (tensor.dtype.lanes != 1 || tensor.dtype.bits == 0) {
    throw Error(Status::kUnsupported,
                fmt::format("expected a tensor of one lane and at least one bit an element, found "
                            "dtype code {}, {} bits, {} lanes",
                            tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes));
  }
  if (tensor.ndim < 0 || tensor.ndim > kMaxDims || (tensor.ndim > 0 && !tensor.shape)) {
    throw Error(Status::kInvalid, fmt::format("expected a tensor of 0 to {} dimensions, found {}",
                                              kMaxDims, tensor.ndim));
  }
  uint64_t elements = 1;
  bool overflow = false, empty = false;
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0) {
      throw Error(Status::kInvalid,
                  fmt::format("expected dimensions of 0 or more, found {} in dimension {}",
                              tensor.shape[i], i));
    }
    empty |= tensor.shape[i] == 0;
    overflow |= __builtin_mul_overflow(elements, uint64_t(tensor.shape[i]), &elements);
  }
  if (empty) return 0;
  uint64_t bits = 0;
  overflow |= __builtin_mul_overflow(elements, uint64_t(tensor.dtype.bits), &bits);
  if (overflow || bits > uint64_t(std::numeric_limits<int64_t>::max()) - 7) {
    throw Error(Status::kInvalid,
                "expected a tensor whose bits can be counted in 64 bits, found a larger one");
  }
  return (bits + 7) / 8;
}

fastllm_status alloc_service(const DLTensor* like, void*, DLManagedTensorVersioned** out) {
  return host_function([&] {
    if (!like || !out)
      throw Error(Status::kInvalid,
                  "expected a tensor and a place for the result in host->alloc, found NULL");
    if (like->device.device_type != kDLCPU) {
      throw Error(Status::kUnsupported,
                  fmt::format("this host allocates on the CPU only; asked for device type {}",
                              int(like->device.device_type)));
    }
    auto managed = std::make_unique<Managed>();
    uint64_t bytes = tensor_bytes(*like);
    managed->bytes = class_of(bytes);
    managed->shape.assign(like->shape, like->shape + like->ndim);
    managed->strides.assign(managed->shape.size(), 1);
    for (size_t i = managed->shape.size(); i-- > 1;) {
      managed->strides[i - 1] = managed->strides[i] * std::max<int64_t>(managed->shape[i], 1);
    }
    auto& tensor = managed->tensor;
    tensor.version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
    tensor.manager_ctx = managed.get();
    tensor.deleter = delete_managed;
    tensor.dl_tensor.device = {kDLCPU, 0};
    tensor.dl_tensor.ndim = like->ndim;
    tensor.dl_tensor.dtype = like->dtype;
    tensor.dl_tensor.shape = managed->shape.data();
    tensor.dl_tensor.strides = managed->strides.data();
    if (bytes > 0) tensor.dl_tensor.data = take_block(managed->bytes);
    *out = &managed.release()->tensor;
  });
}

uint64_t cached_bytes() {
  auto& c = cache();
  std::lock_guard lock(c.mutex);
  return c.bytes;
}

void release_cached_memory() {
  auto& c = cache();
  std::lock_guard lock(c.mutex);
  while (!c.blocks.empty()) c.drop_oldest();
}

}  // namespace fastllm::plugin
