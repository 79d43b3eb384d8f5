// Collectives have a lane; messages between two ranks have two more, one for messages to higher ranks
// and one for those to lower ones. Calls in a lane wait for each other, and a lane of one direction
// cannot wait in a circle.
//
// NCCL is told not to block (ncclConfig_t::blocking), so that a rank that never comes is an error
// after the timeout and not a hang. NCCL user guide, "Fault tolerance".
#include "core/cuda/nccl/communicator.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "core/base/error.hpp"
#include "core/cuda/elements.hpp"
#include "core/cuda/error.hpp"

namespace fastllm::cuda {
namespace {

using namespace distributed;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

[[noreturn]] void fail(ncclResult_t result) {
  throw std::runtime_error(fmt::format("NCCL says: {}", ncclGetErrorString(result)));
}

std::string id_from(Store& store, const std::string& key, const Group& group,
                    milliseconds timeout) {
  ncclUniqueId id;
  if (group.rank == 0) {
    if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess) fail(result);
    store.set(key, std::string(id.internal, sizeof id.internal));
  }
  const auto end = steady_clock::now() + timeout;
  for (;;) {
    if (auto value = store.get(key)) return *value;
    if (steady_clock::now() > end)
      throw std::runtime_error(
          fmt::format("rank {} has not come within {} ms", group.members[0], timeout.count()));
    std::this_thread::sleep_for(milliseconds(5));
  }
}

ncclDataType_t nccl_type(DLDataType type) {
  if (same_dtype(type, kInt64)) return ncclInt64;
  if (same_dtype(type, kUint8)) return ncclUint8;
  if (same_dtype(type, kBfloat16)) return ncclBfloat16;
  return same_dtype(type, kFloat16) ? ncclFloat16 : ncclFloat32;
}
ncclRedOp_t nccl_operation(Reduce op) {
  return op == Reduce::kSum ? ncclSum : op == Reduce::kMax ? ncclMax : ncclAvg;
}
// Sums of 16-bit types are made in float32; a maximum needs none.
bool is_widened(DLDataType type, Reduce op) { return type.bits == 16 && op != Reduce::kMax; }

const std::byte* at(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}
std::byte* at(void* data, int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }

class Nccl final : public Communicator {
 public:
  Nccl(Store& store, const Group& of, int device, milliseconds timeout, ExchangeHooks hooks)
      : Communicator(of),
        device_(device),
        hooks_(std::move(hooks)),
        lanes_{Lane(store, of.key() + "/nccl/all", of, device, timeout),
               Lane(store, of.key() + "/nccl/up", of, device, timeout),
               Lane(store, of.key() + "/nccl/down", of, device, timeout)} {}

 private:
  class Call final : public Work {
   public:
    Call(Nccl& owner, Lane& lane, Operation operation, void* stream)
        : owner_(owner),
          lane_(lane),
          operation_(operation),
          number_(owner.numbers_[size_t(operation)]++),
          stream_(stream) {
      if (owner.hooks_.begin) owner.hooks_.begin(owner.group(), operation, number_);
    }
    template <class... Steps>
    void start(Steps&&... steps) {
      told([&] { lane_.run(stream_, steps...); });
    }
    void wait() override {
      told([&] { lane_.join(stream_); });
    }
    template <class Body>
    void told(Body&& body) {
      try {
        body();
      } catch (const std::exception& e) {
        if (owner_.hooks_.failed)
          owner_.hooks_.failed(owner_.group(), operation_, number_, e.what());
        throw CommunicationError(
            fmt::format("{} {} of group {} failed: {}; see what the logs of its other ranks say",
                        operation_name(operation_), number_, owner_.group().key(), e.what()));
      }
    }

   private:
    Nccl& owner_;
    Lane& lane_;
    Operation operation_;
    int64_t number_;
    void* stream_;
  };

  // Steps: Lane::run's. bytes: what this rank sends, as Traffic counts.
  template <class Before, class Body, class After>
  Pending start(Lane& lane, Operation operation, const ConstMemory& memory, int64_t bytes,
                Before&& before, Body&& body, After&& after) {
    auto call = std::make_unique<Call>(*this, lane, operation, memory.stream);
    call->start(before, body, after);
    count(operation, bytes);
    return Pending(std::move(call));
  }
  template <class Body>
  Pending start(Lane& lane, Operation operation, const ConstMemory& memory, int64_t bytes,
                Body&& body) {
    return start(lane, operation, memory, bytes, nothing, body, nothing);
  }
  static void nothing(cudaStream_t) {}
  int64_t sent(Operation operation, const ConstMemory& memory, int root = 0) const {
    return bytes_sent(operation, memory.count, memory.type.bits / 8, size(), rank(), root);
  }
  // float32 memory for the calls in the first lane; those before are done with it when it grows.
  void* wide(int64_t count) {
    if (size_t(count) * 4 > wide_.bytes()) {
      lanes_[0].synchronize();
      wide_ = DeviceMemory(device_, size_t(count) * 4);
    }
    return wide_.data();
  }

  Pending start_all_reduce(const Memory& inout, Reduce op) override {
    const int64_t bytes = sent(Operation::kAllReduce, inout);
    const bool widened = is_widened(inout.type, op);
    void* const data = widened ? wide(inout.count) : inout.data;
    return start(
        lanes_[0], Operation::kAllReduce, inout, bytes,
        [&](cudaStream_t stream) {
          if (widened) copy(data, kFloat32, inout.data, inout.type, inout.count, stream);
        },
        [&](ncclComm_t comm, cudaStream_t stream) {
          return ncclAllReduce(data, data, size_t(inout.count),
                               widened ? ncclFloat32 : nccl_type(inout.type), nccl_operation(op),
                               comm, stream);
        },
        [&](cudaStream_t stream) {
          if (widened) copy(inout.data, inout.type, data, kFloat32, inout.count, stream);
        });
  }
  Pending start_all_gather(const ConstMemory& in, const Memory& out) override {
    return start(lanes_[0], Operation::kAllGather, in, sent(Operation::kAllGather, in),
                 [&](ncclComm_t comm, cudaStream_t stream) {
                   return ncclAllGather(in.data, out.data, size_t(in.bytes()), ncclUint8, comm,
                                        stream);
                 });
  }
  Pending start_reduce_scatter(const ConstMemory& in, const Memory& out, Reduce op) override {
    const ConstMemory part(in.data, out.count, in.type);
    const int64_t bytes = sent(Operation::kReduceScatter, part);
    const bool widened = is_widened(in.type, op);
    // Where a maximum goes from 16 bits to float32, it is widened as well.
    const bool converts = widened || !same_dtype(in.type, out.type);
    if (!converts)
      return start(lanes_[0], Operation::kReduceScatter, in, bytes,
                   [&](ncclComm_t comm, cudaStream_t stream) {
                     return ncclReduceScatter(in.data, out.data, size_t(out.count),
                                              nccl_type(in.type), nccl_operation(op), comm, stream);
                   });
    void* const data = wide(in.count);
    void* const own = at(data, rank() * out.count * 4);
    void* const to = is_float32(out.type) ? out.data : own;
    return start(
        lanes_[0], Operation::kReduceScatter, in, bytes,
        [&](cudaStream_t stream) { copy(data, kFloat32, in.data, in.type, in.count, stream); },
        [&](ncclComm_t comm, cudaStream_t stream) {
          return ncclReduceScatter(data, to, size_t(out.count), ncclFloat32, nccl_operation(op),
                                   comm, stream);
        },
        [&](cudaStream_t stream) {
          if (to == own) copy(out.data, out.type, own, kFloat32, out.count, stream);
        });
  }
  Pending start_broadcast(const Memory& inout, int root) override {
    return start(lanes_[0], Operation::kBroadcast, inout, sent(Operation::kBroadcast, inout, root),
                 [&](ncclComm_t comm, cudaStream_t stream) {
                   return ncclBroadcast(inout.data, inout.data, size_t(inout.bytes()), ncclUint8,
                                        root, comm, stream);
                 });
  }
  Pending start_all_to_all(const ConstMemory& in, std::span<const int64_t> in_counts,
                           const Memory& out, std::span<const int64_t> out_counts) override {
    const int64_t element = in.type.bits / 8;
    const auto of = [&](std::span<const int64_t> counts, int64_t whole, int r) {
      return (counts.empty() ? whole / size() : counts[size_t(r)]) * element;
    };
    const int64_t bytes = in.bytes() - of(in_counts, in.count, rank());
    return start(
        lanes_[0], Operation::kAllToAll, in, bytes, [&](ncclComm_t comm, cudaStream_t stream) {
          ncclGroupStart();
          ncclResult_t result = ncclSuccess;
          const auto keep = [&](ncclResult_t next) {
            if (result == ncclSuccess) result = next;
          };
          int64_t from = 0, to = 0;
          for (int r = 0; r < size(); ++r) {
            const int64_t out_bytes = of(in_counts, in.count, r),
                          in_bytes = of(out_counts, out.count, r);
            if (out_bytes > 0)
              keep(ncclSend(at(in.data, from), size_t(out_bytes), ncclUint8, r, comm, stream));
            if (in_bytes > 0)
              keep(ncclRecv(at(out.data, to), size_t(in_bytes), ncclUint8, r, comm, stream));
            from += out_bytes;
            to += in_bytes;
          }
          keep(ncclGroupEnd());
          return result;
        });
  }
  Lane& towards(int from, int to) { return lanes_[from < to ? 1 : 2]; }
  Pending start_send(const ConstMemory& in, int to) override {
    return start(towards(rank(), to), Operation::kSend, in, sent(Operation::kSend, in),
                 [&](ncclComm_t comm, cudaStream_t stream) {
                   return ncclSend(in.data, size_t(in.bytes()), ncclUint8, to, comm, stream);
                 });
  }
  Pending start_receive(const Memory& out, int from) override {
    return start(towards(from, rank()), Operation::kReceive, out, 0,
                 [&](ncclComm_t comm, cudaStream_t stream) {
                   return ncclRecv(out.data, size_t(out.bytes()), ncclUint8, from, comm, stream);
                 });
  }
  void run_barrier() override {
    const Memory token{wide(1), 1, kFloat32, {kDLCUDA, device_}, lanes_[0].stream()};
    Call call(*this, lanes_[0], Operation::kBarrier, token.stream);
    call.told([&] {
      lanes_[0].run(
          token.stream, nothing,
          [&](ncclComm_t comm, cudaStream_t stream) {
            return ncclAllReduce(token.data, token.data, 1, ncclFloat32, ncclSum, comm, stream);
          },
          nothing);
      lanes_[0].synchronize();
    });
    count(Operation::kBarrier, 0);
  }

  int device_;
  ExchangeHooks hooks_;
  std::array<int64_t, kOperations> numbers_{};
  DeviceMemory wide_;
  std::array<Lane, 3> lanes_;  // of all; of messages to higher ranks, and to lower ones
};

}  // namespace

Lane::Lane(Store& store, const std::string& key, const Group& group, int device,
           milliseconds timeout)
    : stream_(device), ready_(device), finished_(device), timeout_(timeout) {
  const OnDevice on(device);
  ncclUniqueId id;
  const std::string bytes = id_from(store, key, group, timeout);
  FASTLLM_ASSERT(bytes.size() == sizeof id.internal);
  std::memcpy(id.internal, bytes.data(), sizeof id.internal);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = ncclCommInitRankConfig(&comm, group.size(), id, group.rank, &config);
  comm_.reset(comm);
  if (!comm) fail(result);
  settle(result);
}
// A communicator with work under way belongs to a run that has failed: its other ranks will not come.
Lane::~Lane() {
  if (comm_ && cudaStreamQuery(stream_.get()) == cudaSuccess) ncclCommDestroy(comm_.release());
}

void Lane::begin(cudaStream_t stream) {
  ready_.record(stream);
  stream_.wait(ready_);
}

void Lane::settle(ncclResult_t result) {
  const auto end = steady_clock::now() + timeout_;
  while (result == ncclInProgress) {
    if (steady_clock::now() > end)
      throw std::runtime_error(
          fmt::format("the other ranks have not come within {} ms", timeout_.count()));
    std::this_thread::yield();
    if (const ncclResult_t asked = ncclCommGetAsyncError(comm_.get(), &result);
        asked != ncclSuccess)
      fail(asked);
  }
  if (result != ncclSuccess) fail(result);
}

void Lane::join(void* stream) {
  ncclResult_t result = ncclSuccess;
  if (const ncclResult_t asked = ncclCommGetAsyncError(comm_.get(), &result); asked != ncclSuccess)
    fail(asked);
  if (result != ncclSuccess) fail(result);
  check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), finished_.get(), 0),
        "a CUDA stream to wait for a collective");
}

void Lane::synchronize() {
  const auto end = steady_clock::now() + timeout_;
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_.get());
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) check(state, "the collectives of a group to succeed");
    ncclResult_t result = ncclSuccess;
    ncclCommGetAsyncError(comm_.get(), &result);
    if (result != ncclSuccess) fail(result);
    if (steady_clock::now() > end)
      throw std::runtime_error(
          fmt::format("the other ranks have not come within {} ms", timeout_.count()));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::unique_ptr<Communicator> make_nccl(Store& store, const Group& group, int device,
                                        milliseconds timeout, ExchangeHooks hooks) {
  return std::make_unique<Nccl>(store, group, device, timeout, std::move(hooks));
}

}  // namespace fastllm::cuda
