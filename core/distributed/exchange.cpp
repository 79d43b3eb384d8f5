#include "core/distributed/exchange.hpp"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "core/distributed/reduce.hpp"

namespace fastllm::distributed {
namespace {

// Tags of messages between two ranks only; the others are of calls that all ranks make.
constexpr uint32_t kPairTag = uint32_t(1) << 30;

std::byte* at(void* data, int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }
const std::byte* at(const void* data, int64_t bytes) {
  return static_cast<const std::byte*>(data) + bytes;
}

struct Scratch {
  std::unique_ptr<std::byte[]> data;
  int64_t bytes = 0;
};

class Exchange final : public Communicator {
 public:
  Exchange(Group group, std::unique_ptr<Messages> messages, ExchangeHooks hooks)
      : Communicator(std::move(group)),
        messages_(std::move(messages)),
        hooks_(std::move(hooks)),
        sent_to_(size_t(size()), 0),
        received_from_(size_t(size()), 0) {}

 private:
  // One call: its messages under way, and what is done when they have arrived.
  class Call final : public Work {
   public:
    Call(Exchange& owner, Operation operation)
        : owner_(owner), operation_(operation), number_(owner.next_number(operation)) {
      if (owner.hooks_.begin) owner.hooks_.begin(owner.group(), operation, number_);
    }
    // Messages still under way are those of a call that failed: they are given up.
    ~Call() override { owner_.keep(std::move(scratch_)); }

    uint32_t tag(uint32_t phase = 0) const {
      return (uint32_t(number_) * 2 + phase) & (kPairTag - 1);
    }
    void send(const void* data, int64_t bytes, int to, uint32_t tag) {
      if (bytes == 0) return;
      run([&] { under_way_.push_back(owner_.messages_->send(data, bytes, to, tag)); });
      sent_ += bytes;
    }
    void receive(void* data, int64_t bytes, int from, uint32_t tag) {
      if (bytes == 0) return;
      run([&] { under_way_.push_back(owner_.messages_->receive(data, bytes, from, tag)); });
    }
    void join() {
      while (!under_way_.empty()) {
        auto work = std::move(under_way_.back());
        under_way_.pop_back();
        run([&] { work->wait(); });
      }
    }
    void wait() override {
      join();
      if (finish) finish();
      owner_.count(operation_, sent_);
    }
    std::byte* make_scratch(int64_t bytes) {
      scratch_ = owner_.take_scratch(bytes);
      return scratch_.data.get();
    }

    std::function<void()> finish;

   private:
    template <class Body>
    void run(Body&& body) {
      try {
        body();
      } catch (const std::exception& e) {
        const std::string reason = e.what();
        if (owner_.hooks_.failed) owner_.hooks_.failed(owner_.group(), operation_, number_, reason);
        throw CommunicationError(fmt::format("{} over group {} ({}): {}",
                                             operation_name(operation_), owner_.group().key(),
                                             ranks_text(owner_.group().members), reason));
      }
    }

    Exchange& owner_;
    Operation operation_;
    int64_t number_;
    int64_t sent_ = 0;
    Scratch scratch_;
    std::vector<std::unique_ptr<Work>> under_way_;
  };

  // Collectives are counted apart: their numbers are equal on all ranks.
  int64_t next_number(Operation operation) {
    const bool pair = operation == Operation::kSend || operation == Operation::kReceive;
    return pair ? ++pair_calls_ : ++collectives_;
  }
  Scratch take_scratch(int64_t bytes) {
    Scratch scratch;
    if (!spare_.empty()) {
      scratch = std::move(spare_.back());
      spare_.pop_back();
    }
    if (scratch.bytes < bytes)
      scratch = {std::make_unique_for_overwrite<std::byte[]>(size_t(bytes)), bytes};
    return scratch;
  }
  void keep(Scratch scratch) {
    if (scratch.bytes > 0) spare_.push_back(std::move(scratch));
  }

  // Other ranks, beginning behind this one, so that not all send to the same one at first.
  template <class Body>
  void each_other(Body&& body) const {
    for (int k = 1; k < size(); ++k) body((rank() + k) % size());
  }

  static Pending pending(std::unique_ptr<Call> call) { return Pending(std::move(call)); }

  // Bytes [begin(r), begin(r + 1)) of `out` from rank r, the own ones to all others.
  template <class Begin>
  void gather(Call& call, const void* own, void* out, uint32_t tag, Begin&& begin) {
    each_other([&](int r) { call.receive(at(out, begin(r)), begin(r + 1) - begin(r), r, tag); });
    each_other([&](int r) { call.send(own, begin(rank() + 1) - begin(rank()), r, tag); });
  }

  // Where in a scratch the term of another rank lies, each of `bytes`.
  std::byte* slot(std::byte* scratch, int r, int64_t bytes) const {
    return scratch + (r < rank() ? r : r - 1) * bytes;
  }
  // By rank, the own one among them.
  std::vector<const void*> terms(std::byte* scratch, const void* own, int64_t bytes) const {
    std::vector<const void*> result;
    for (int r = 0; r < size(); ++r) result.push_back(r == rank() ? own : slot(scratch, r, bytes));
    return result;
  }

  Pending start_all_gather(const ConstMemory& in, const Memory& out) override {
    auto call = std::make_unique<Call>(*this, Operation::kAllGather);
    const int64_t bytes = in.bytes();
    gather(*call, in.data, out.data, call->tag(), [&](int r) { return r * bytes; });
    if (void* own = at(out.data, rank() * bytes); own != in.data)
      std::memcpy(own, in.data, size_t(bytes));
    return pending(std::move(call));
  }

  Pending start_reduce_scatter(const ConstMemory& in, const Memory& out, Reduce op) override {
    auto call = std::make_unique<Call>(*this, Operation::kReduceScatter);
    const int64_t bytes = in.bytes() / size();
    std::byte* const scratch = call->make_scratch(bytes * (size() - 1));
    const uint32_t tag = call->tag();
    each_other([&](int r) { call->receive(slot(scratch, r, bytes), bytes, r, tag); });
    each_other([&](int r) { call->send(at(in.data, r * bytes), bytes, r, tag); });
    call->finish = [this, scratch, in, out, op, bytes] {
      reduce_terms(terms(scratch, at(in.data, rank() * bytes), bytes), in.type, op, out);
    };
    return pending(std::move(call));
  }

  Pending start_all_reduce(const Memory& inout, Reduce op) override {
    auto call = std::make_unique<Call>(*this, Operation::kAllReduce);
    const bool whole = inout.bytes() <= kWholeAllReduce;
    const int64_t element = inout.type.bits / 8;
    auto begin = [this, whole, n = inout.count, element](int r) {
      return whole ? 0 : part_begin(n, size(), r) * element;
    };
    auto part_bytes = [=, this](int r) { return whole ? inout.bytes() : begin(r + 1) - begin(r); };
    const int64_t own_bytes = part_bytes(rank());
    std::byte* const scratch = call->make_scratch(own_bytes * (size() - 1));
    const uint32_t tag = call->tag();
    each_other([&](int r) { call->receive(slot(scratch, r, own_bytes), own_bytes, r, tag); });
    each_other([&](int r) { call->send(at(inout.data, begin(r)), part_bytes(r), r, tag); });
    call->finish = [=, this, &c = *call] {
      Memory own = inout;
      own.data = at(inout.data, begin(rank()));
      own.count = own_bytes / element;
      reduce_terms(terms(scratch, own.data, own_bytes), inout.type, op, own);
      if (whole) return;
      gather(c, own.data, inout.data, c.tag(1), begin);
      c.join();
    };
    return pending(std::move(call));
  }

  Pending start_broadcast(const Memory& inout, int root) override {
    auto call = std::make_unique<Call>(*this, Operation::kBroadcast);
    const uint32_t tag = call->tag();
    if (rank() == root) {
      each_other([&](int r) { call->send(inout.data, inout.bytes(), r, tag); });
    } else {
      call->receive(inout.data, inout.bytes(), root, tag);
    }
    return pending(std::move(call));
  }

  Pending start_all_to_all(const ConstMemory& in, std::span<const int64_t> in_counts,
                           const Memory& out, std::span<const int64_t> out_counts) override {
    auto call = std::make_unique<Call>(*this, Operation::kAllToAll);
    const uint32_t tag = call->tag();
    const int64_t element = in.type.bits / 8;
    auto begins = [&](std::span<const int64_t> counts, int64_t whole) {
      std::vector<int64_t> result{0};
      for (int r = 0; r < size(); ++r)
        result.push_back(result.back() +
                         element * (counts.empty() ? whole / size() : counts[size_t(r)]));
      return result;
    };
    const std::vector<int64_t> from = begins(out_counts, out.count),
                               to = begins(in_counts, in.count);
    each_other([&](int r) {
      call->receive(at(out.data, from[size_t(r)]), from[size_t(r) + 1] - from[size_t(r)], r, tag);
    });
    each_other([&](int r) {
      call->send(at(in.data, to[size_t(r)]), to[size_t(r) + 1] - to[size_t(r)], r, tag);
    });
    const size_t own = size_t(rank());
    if (const int64_t kept = to[own + 1] - to[own]; kept > 0)
      std::memcpy(at(out.data, from[own]), at(in.data, to[own]), size_t(kept));
    return pending(std::move(call));
  }

  Pending start_send(const ConstMemory& in, int to) override {
    auto call = std::make_unique<Call>(*this, Operation::kSend);
    call->send(in.data, in.bytes(), to, kPairTag | (sent_to_[size_t(to)]++ & (kPairTag - 1)));
    return pending(std::move(call));
  }

  Pending start_receive(const Memory& out, int from) override {
    auto call = std::make_unique<Call>(*this, Operation::kReceive);
    call->receive(out.data, out.bytes(), from,
                  kPairTag | (received_from_[size_t(from)]++ & (kPairTag - 1)));
    return pending(std::move(call));
  }

  // Dissemination: after each round a rank has heard of twice as many.
  void run_barrier() override {
    Call call(*this, Operation::kBarrier);
    for (int distance = 1; distance < size(); distance *= 2) {
      std::byte out{}, in{};
      call.receive(&in, 1, (rank() + size() - distance) % size(), call.tag());
      call.send(&out, 1, (rank() + distance) % size(), call.tag());
      call.join();
    }
    call.wait();
  }

  std::unique_ptr<Messages> messages_;
  ExchangeHooks hooks_;
  int64_t collectives_ = 0, pair_calls_ = 0;
  std::vector<uint32_t> sent_to_, received_from_;
  std::vector<Scratch> spare_;  // fresh memory would cost its first touch in every call
};

}  // namespace

std::unique_ptr<Communicator> make_exchange(Group group, std::unique_ptr<Messages> messages,
                                            ExchangeHooks hooks) {
  FASTLLM_ASSERT(group.size() > 1);
  return std::make_unique<Exchange>(std::move(group), std::move(messages), std::move(hooks));
}

}  // namespace fastllm::distributed
