// What the ranks of one group do together, over plain memory. All ranks of a group make the same
// calls in the same order. Each call returns at once; its memory belongs to it until wait() returns.
// Sums are made in the order of the ranks, in float32 for 16-bit types: the same bits on every rank
// and in every run.
#pragma once

#include <dlpack/dlpack.h>
#include <fastllm/collectives.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/base/tensor.hpp"
#include "core/distributed/groups.hpp"
#include "core/distributed/traffic.hpp"

namespace fastllm::distributed {

inline constexpr DLDataType kInt64{kDLInt, 64, 1}, kUint8{kDLUInt, 8, 1};

enum class Reduce { kSum = FASTLLM_SUM, kMax = FASTLLM_MAX, kMean = FASTLLM_MEAN };

struct Memory {
  void* data = nullptr;
  int64_t count = 0;  // elements
  DLDataType type = kFloat32;
  DLDevice device{kDLCPU, 0};
  void* stream = nullptr;  // of the device; null: the processor, in order of the calls
  int64_t bytes() const { return count * (type.bits / 8); }
};
struct ConstMemory {
  const void* data = nullptr;
  int64_t count = 0;
  DLDataType type = kFloat32;
  DLDevice device{kDLCPU, 0};
  void* stream = nullptr;
  ConstMemory() = default;
  ConstMemory(const void* d, int64_t n, DLDataType t) : data(d), count(n), type(t) {}
  ConstMemory(const Memory& m)  // NOLINT: every memory can be read
      : data(m.data), count(m.count), type(m.type), device(m.device), stream(m.stream) {}
  int64_t bytes() const { return count * (type.bits / 8); }
};

// A call that failed because of others: one of them ended, hangs, or the network broke. What is at the
// root of it is for FailureWatch to find out.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(std::string text) : Error(Status::kUnavailable, std::move(text)) {}
};

// A piece of communication under way.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;  // throws what went wrong; once
};

// Waits when it goes, since the memory must not be freed under it.
class [[nodiscard]] Pending {
 public:
  Pending() = default;  // done
  explicit Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}
  Pending(Pending&&) noexcept = default;
  Pending& operator=(Pending&& other) noexcept {
    drop();
    work_ = std::move(other.work_);
    return *this;
  }
  ~Pending() { drop(); }
  void wait() {
    if (auto work = std::move(work_)) work->wait();
  }
  // Gives it up: for one that may never end, since this rank has failed. The memory is free then.
  void abandon() noexcept { work_.reset(); }

 private:
  void drop() noexcept {
    try {
      wait();
    } catch (...) {  // told by the next call over the group
    }
  }
  std::unique_ptr<Work> work_;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  const Group& group() const { return group_; }
  int rank() const { return group_.rank; }
  int size() const { return group_.size(); }
  const Traffic& traffic() const { return traffic_; }  // since the beginning

  // Float types, int64 and uint8; kMean only of float types.
  Pending all_reduce(const Memory& inout, Reduce op);
  // out holds size() times as many elements. `in` may be this rank's part of out.
  Pending all_gather(const ConstMemory& in, const Memory& out);
  // in holds size() times as many elements. out may be this rank's part of in, or float32 where in
  // has 16 bits.
  Pending reduce_scatter(const ConstMemory& in, const Memory& out, Reduce op);
  Pending broadcast(const Memory& inout, int root);
  // Elements for and from each rank; empty: equally many.
  Pending all_to_all(const ConstMemory& in, std::span<const int64_t> in_counts, const Memory& out,
                     std::span<const int64_t> out_counts);
  // To and from ranks inside the group; between two ranks messages keep their order.
  Pending send(const ConstMemory& in, int to);
  Pending receive(const Memory& out, int from);
  void barrier();

 protected:
  explicit Communicator(Group group) : group_(std::move(group)) {}
  void count(Operation operation, int64_t bytes) { traffic_.add(operation, bytes); }

 private:
  // Arguments were checked. Sizes are at least 2 and counts at least 1.
  virtual Pending start_all_reduce(const Memory& inout, Reduce op) = 0;
  virtual Pending start_all_gather(const ConstMemory& in, const Memory& out) = 0;
  virtual Pending start_reduce_scatter(const ConstMemory& in, const Memory& out, Reduce op) = 0;
  virtual Pending start_broadcast(const Memory& inout, int root) = 0;
  virtual Pending start_all_to_all(const ConstMemory& in, std::span<const int64_t> in_counts,
                                   const Memory& out, std::span<const int64_t> out_counts) = 0;
  virtual Pending start_send(const ConstMemory& in, int to) = 0;
  virtual Pending start_receive(const Memory& out, int from) = 0;
  virtual void run_barrier() = 0;

  Group group_;
  Traffic traffic_;
};

// "Sent to other ranks: 1,234 bytes (data: reduce_scatter 1,000 in 2 calls; ...)".
std::string traffic_text(std::span<const Communicator* const> groups);

// A group of one rank: collectives copy.
std::unique_ptr<Communicator> make_single(Group group);

}  // namespace fastllm::distributed
