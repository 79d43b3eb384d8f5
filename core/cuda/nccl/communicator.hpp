// A group's collectives over NCCL. One thread at a time.
#pragma once

#include <nccl.h>

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>

#include "core/cuda/memory.hpp"
#include "core/cuda/stream.hpp"
#include "core/distributed/communicator.hpp"
#include "core/distributed/exchange.hpp"
#include "core/distributed/store.hpp"

namespace fastllm::cuda {

// One NCCL communicator and the stream that its calls run in, one after the other.
class Lane {
 public:
  // key: of the store, where rank 0 puts the id by which the members find each other.
  Lane(distributed::Store& store, const std::string& key, const distributed::Group& group,
       int device, std::chrono::milliseconds timeout);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // Puts one call into the lane's stream, behind what `stream` holds. call: ncclResult_t(comm, stream);
  // before and after: other work of the lane's stream, given it. NCCL may take a call later than it
  // returns: what comes after is put in when it has.
  template <class Before, class Call, class After>
  void run(void* stream, Before&& before, Call&& call, After&& after) {
    const OnDevice on(stream_.device());  // kernels start on the thread's device alone
    begin(static_cast<cudaStream_t>(stream));
    before(stream_.get());
    settle(call(comm_.get(), stream_.get()));
    after(stream_.get());
    finished_.record(stream_.get());
  }
  // What comes next in `stream` begins after the last call. Throws std::runtime_error where NCCL has
  // found that a rank or a link is gone.
  void join(void* stream);
  // The host waits for all calls, as long as none is found to have failed.
  void synchronize();
  cudaStream_t stream() const { return stream_.get(); }

 private:
  void begin(cudaStream_t stream);
  void settle(ncclResult_t result);  // until NCCL has taken the call

  struct Abort {
    void operator()(ncclComm_t comm) const noexcept { ncclCommAbort(comm); }
  };
  Stream stream_;
  Event ready_, finished_;
  std::unique_ptr<std::remove_pointer_t<ncclComm_t>, Abort> comm_;
  std::chrono::milliseconds timeout_;
};

std::unique_ptr<distributed::Communicator> make_nccl(distributed::Store& store,
                                                     const distributed::Group& group, int device,
                                                     std::chrono::milliseconds timeout,
                                                     distributed::ExchangeHooks hooks);

}  // namespace fastllm::cuda
