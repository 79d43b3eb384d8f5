// Gathering: a block a row. Scattering: rows of one index are added in the order they come in, as on
// the processor, and without atomic operations: a stable radix sort (Merrill & Grimshaw 2011, as CUB
// has it) brings them together, and the first of each run adds the run. A frequent index is a long
// chain of additions, but not of reads: those do not wait for each other.
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/common.cuh"

namespace fastllm::gpt::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint32_t kElsewhere = 0xffffffffu;  // the key of an index that the table does not hold

template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void gather(TableRowsOf<Element> first,
                                                   TableRowsOf<Element> second, int64_t width,
                                                   Dropout dropout, Element* out) {
  const int64_t row = blockIdx.x;
  const Element* const a = first.row(row, width);
  const Element* const b = a && second.table ? second.row(row, width) : nullptr;
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < width; at += int64_t(blockDim.x) * kCount) {
    float values[kCount] = {}, added[kCount] = {};
    if (a) load<kCount>(a + at, values);
    if (b) load<kCount>(b + at, added);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] += added[i];
      if (dropout.active()) values[i] *= dropout.factor_at(uint64_t(row * width + at + i));
    }
    store<kCount>(out + row * width + at, values);
  }
}

__global__ __launch_bounds__(kThreads) void make_keys(const int64_t* indices, int64_t count,
                                                      int64_t first, int64_t held, uint32_t* keys,
                                                      uint32_t* rows) {
  const int64_t row = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (row >= count) return;
  const int64_t index = indices[row] - first;
  keys[row] = index >= 0 && index < held ? uint32_t(index) : kElsewhere;
  rows[row] = uint32_t(row);
}

// Behind the last key equal to that of `begin`.
__device__ inline int64_t end_of_run(const uint32_t* keys, int64_t begin, int64_t count) {
  const uint32_t key = keys[begin];
  int64_t low = begin + 1, high = count;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] == key)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Grid: places in the order of keys.
template <class Element, int kCount>
__global__ __launch_bounds__(kThreads) void add_runs(const Element* values, const uint32_t* keys,
                                                     const uint32_t* rows, int64_t count,
                                                     int64_t width, Dropout dropout, float* table) {
  const int64_t begin = blockIdx.x;
  const uint32_t key = keys[begin];
  if (key == kElsewhere || (begin > 0 && keys[begin - 1] == key)) return;
  const int64_t end = end_of_run(keys, begin, count);
  float* const to = table + int64_t(key) * width;
  for (int64_t at = int64_t(threadIdx.x) * kCount; at < width; at += int64_t(blockDim.x) * kCount) {
    float sums[kCount];
    load<kCount>(to + at, sums);
#pragma unroll 4
    for (int64_t place = begin; place < end; ++place) {
      const int64_t element = int64_t(rows[place]) * width + at;
      float some[kCount];
      load<kCount>(values + element, some);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        sums[i] += dropout.active() ? some[i] * dropout.factor_at(uint64_t(element + i)) : some[i];
    }
    store<kCount>(to + at, sums);
  }
}

// The parts of the scratch memory; each begins at a multiple of 256 bytes.
struct Sorting {
  uint32_t *keys, *sorted_keys, *rows, *sorted_rows;
  void* temporary;
  size_t temporary_bytes = 0;

  static int64_t part(int64_t count) {
    return (count * int64_t(sizeof(uint32_t)) + 255) / 256 * 256;
  }

  explicit Sorting(int64_t count, void* scratch = nullptr) {
    char* at = static_cast<char*>(scratch);
    for (uint32_t** array : {&keys, &sorted_keys, &rows, &sorted_rows}) {
      *array = reinterpret_cast<uint32_t*>(at);
      if (at) at += part(count);
    }
    temporary = nullptr;
    sort(count, nullptr);  // asks for its size
    temporary = at;
  }
  void sort(int64_t count, cudaStream_t stream) {
    const cudaError_t error =
        cub::DeviceRadixSort::SortPairs(temporary, temporary_bytes, keys, sorted_keys, rows,
                                        sorted_rows, int(count), 0, 32, stream);
    if (error != cudaSuccess)
      sdk::fail(FASTLLM_INTERNAL,
                std::string("expected the sort of rows for scatter_rows to start, "
                            "found ") +
                    cudaGetErrorName(error) + " (" + cudaGetErrorString(error) +
                    "); an earlier call may have caused it: "
                    "CUDA_LAUNCH_BLOCKING=1 tells which");
  }
};

}  // namespace

template <class Element>
void gather_rows(const TableRowsOf<Element>& first, const TableRowsOf<Element>& second,
                 int64_t count, int64_t width, const Dropout& dropout, Element* out,
                 cudaStream_t stream) {
  if (count == 0 || width == 0) return;
  with_packs<Element>(packable<Element>({first.table, second.table, out}, {width}), [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    gather<Element, kCount><<<unsigned(count), threads_for(width, kCount, kThreads), 0, stream>>>(
        first, second, width, dropout, out);
    check_launch("gather_rows");
  });
}

int64_t scatter_rows_scratch(int64_t count) {
  if (count == 0) return 0;
  return 4 * Sorting::part(count) + int64_t(Sorting(count).temporary_bytes);
}

template <class Element>
void scatter_rows(const Element* rows, const int64_t* indices, int64_t count, int64_t width,
                  const Dropout& dropout, float* table, int64_t first, int64_t held, void* scratch,
                  cudaStream_t stream) {
  if (count == 0 || width == 0) return;
  Sorting sorting(count, scratch);
  make_keys<<<unsigned((count + kThreads - 1) / kThreads), kThreads, 0, stream>>>(
      indices, count, first, held, sorting.keys, sorting.rows);
  check_launch("scatter_rows");
  sorting.sort(count, stream);
  const bool packs = packable<Element>({rows}, {width}) && packable<float>({table}, {width});
  with_packs<Element>(packs, [&](auto pack) {
    constexpr int kCount = decltype(pack)::value;
    add_runs<Element, kCount><<<unsigned(count), threads_for(width, kCount, kThreads), 0, stream>>>(
        rows, sorting.sorted_keys, sorting.sorted_rows, count, width, dropout, table);
    check_launch("scatter_rows");
  });
}

#define INSTANTIATE(Element)                                                                    \
  template void gather_rows<Element>(const TableRowsOf<Element>&, const TableRowsOf<Element>&,  \
                                     int64_t, int64_t, const Dropout&, Element*, cudaStream_t); \
  template void scatter_rows<Element>(const Element*, const int64_t*, int64_t, int64_t,         \
                                      const Dropout&, float*, int64_t, int64_t, void*,          \
                                      cudaStream_t);
FASTLLM_FOR_ELEMENTS(INSTANTIATE)

}  // namespace fastllm::gpt::cuda
