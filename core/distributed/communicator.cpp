// Checks what callers pass, once for all kinds of communicators; and the group of one rank.
#include "core/distributed/communicator.hpp"

#include <fmt/format.h>

#include <cstring>
#include <numeric>

#include "core/base/text.hpp"

namespace fastllm::distributed {
namespace {

bool is_type(DLDataType type) {
  return is_compute_dtype(type) || same_dtype(type, kInt64) || same_dtype(type, kUint8);
}

[[noreturn]] void refuse(Operation operation, const Group& group, const std::string& sentence) {
  throw Error(Status::kInvalid, fmt::format("{} over group {}: {}", operation_name(operation),
                                            group.key(), sentence));
}

class Checks {
 public:
  Checks(Operation operation, const Group& group) : operation_(operation), group_(group) {}

  void type(DLDataType given) const {
    if (!is_type(given)) {
      fail(fmt::format("expected float32, bfloat16, float16, int64 or uint8, found {}",
                       dtype_text(given)));
    }
  }
  void equal_types(DLDataType in, DLDataType out) const {
    if (!same_dtype(in, out))
      fail(fmt::format("expected one type, found {} and {}", dtype_text(in), dtype_text(out)));
  }
  void reduction(DLDataType given, Reduce op) const {
    if (op == Reduce::kMean && !is_compute_dtype(given))
      fail(fmt::format("expected a float type for a mean, found {}", dtype_text(given)));
  }
  void times(int64_t part, int64_t whole) const {
    if (part < 0 || whole != part * group_.size()) {
      fail(fmt::format("expected {} times {} elements, found {}", group_.size(), part, whole));
    }
  }
  void rank(int given, bool may_be_own) const {
    if (given < 0 || given >= group_.size() || (!may_be_own && given == group_.rank))
      fail(fmt::format("expected {} rank of the {} in the group, found {}",
                       may_be_own ? "a" : "another", group_.size(), given));
  }
  void counts(std::span<const int64_t> parts, int64_t whole) const {
    if (parts.empty()) return times(whole / group_.size(), whole);
    int64_t sum = 0;
    for (int64_t part : parts) {
      if (part < 0) fail(fmt::format("expected counts from 0, found {}", part));
      sum += part;
    }
    if (int(parts.size()) != group_.size() || sum != whole) {
      fail(fmt::format("expected {} counts that add up to {}, found {} that add up to {}",
                       group_.size(), whole, parts.size(), sum));
    }
  }

 private:
  [[noreturn]] void fail(const std::string& sentence) const {
    refuse(operation_, group_, sentence);
  }
  Operation operation_;
  const Group& group_;
};

void copy(const ConstMemory& in, const Memory& out) {
  if (in.data != out.data && in.count > 0) std::memmove(out.data, in.data, size_t(in.bytes()));
}

}  // namespace

Pending Communicator::all_reduce(const Memory& inout, Reduce op) {
  const Checks check(Operation::kAllReduce, group_);
  check.type(inout.type);
  check.reduction(inout.type, op);
  return size() == 1 || inout.count == 0 ? Pending() : start_all_reduce(inout, op);
}

Pending Communicator::all_gather(const ConstMemory& in, const Memory& out) {
  const Checks check(Operation::kAllGather, group_);
  check.type(in.type);
  check.equal_types(in.type, out.type);
  check.times(in.count, out.count);
  if (size() > 1 && in.count > 0) return start_all_gather(in, out);
  copy(in, out);
  return {};
}

Pending Communicator::reduce_scatter(const ConstMemory& in, const Memory& out, Reduce op) {
  const Checks check(Operation::kReduceScatter, group_);
  check.type(in.type);
  check.reduction(in.type, op);
  if (!(is_compute_dtype(in.type) && is_float32(out.type) && size() > 1))
    check.equal_types(in.type, out.type);
  check.times(out.count, in.count);
  if (size() > 1 && out.count > 0) return start_reduce_scatter(in, out, op);
  copy(in, out);
  return {};
}

Pending Communicator::broadcast(const Memory& inout, int root) {
  const Checks check(Operation::kBroadcast, group_);
  check.type(inout.type);
  check.rank(root, true);
  return size() == 1 || inout.count == 0 ? Pending() : start_broadcast(inout, root);
}

Pending Communicator::all_to_all(const ConstMemory& in, std::span<const int64_t> in_counts,
                                 const Memory& out, std::span<const int64_t> out_counts) {
  const Checks check(Operation::kAllToAll, group_);
  check.type(in.type);
  check.equal_types(in.type, out.type);
  check.counts(in_counts, in.count);
  check.counts(out_counts, out.count);
  const int64_t kept_in = in_counts.empty() ? in.count / size() : in_counts[size_t(rank())];
  const int64_t kept_out = out_counts.empty() ? out.count / size() : out_counts[size_t(rank())];
  if (kept_in != kept_out) {
    refuse(Operation::kAllToAll, group_,
           fmt::format("expected as many elements from this rank as for it, found {} and {}",
                       kept_out, kept_in));
  }
  if (size() > 1) return start_all_to_all(in, in_counts, out, out_counts);
  copy(in, out);
  return {};
}

Pending Communicator::send(const ConstMemory& in, int to) {
  const Checks check(Operation::kSend, group_);
  check.type(in.type);
  check.rank(to, false);
  return in.count == 0 ? Pending() : start_send(in, to);
}

Pending Communicator::receive(const Memory& out, int from) {
  const Checks check(Operation::kReceive, group_);
  check.type(out.type);
  check.rank(from, false);
  return out.count == 0 ? Pending() : start_receive(out, from);
}

void Communicator::barrier() {
  if (size() > 1) run_barrier();
}

std::string traffic_text(std::span<const Communicator* const> groups) {
  std::string lines;
  int64_t bytes = 0;
  for (const Communicator* group : groups) {
    bytes += group->traffic().bytes();
    for (int o = 0; o < kOperations; ++o) {
      const Traffic::Line& line = group->traffic().of(Operation(o));
      if (line.bytes == 0) continue;
      lines += fmt::format("{}{}: {} {} in {} calls", lines.empty() ? "" : "; ",
                           group->group().name, operation_name(Operation(o)),
                           with_commas(double(line.bytes), 0), with_commas(double(line.calls), 0));
    }
  }
  return fmt::format("Sent to other ranks: {} bytes ({})", with_commas(double(bytes), 0),
                     lines.empty() ? "nothing" : lines);
}

namespace {

// Never called: all that one rank needs is done before.
class Single final : public Communicator {
 public:
  explicit Single(Group group) : Communicator(std::move(group)) {}

 private:
  static Pending never() {
    throw Error(Status::kInternal, "a group of one rank was to communicate");
  }
  Pending start_all_reduce(const Memory&, Reduce) override { return never(); }
  Pending start_all_gather(const ConstMemory&, const Memory&) override { return never(); }
  Pending start_reduce_scatter(const ConstMemory&, const Memory&, Reduce) override {
    return never();
  }
  Pending start_broadcast(const Memory&, int) override { return never(); }
  Pending start_all_to_all(const ConstMemory&, std::span<const int64_t>, const Memory&,
                           std::span<const int64_t>) override {
    return never();
  }
  Pending start_send(const ConstMemory&, int) override { return never(); }
  Pending start_receive(const Memory&, int) override { return never(); }
  void run_barrier() override {}
};

}  // namespace

std::unique_ptr<Communicator> make_single(Group group) {
  FASTLLM_ASSERT(group.size() == 1);
  return std::make_unique<Single>(std::move(group));
}

}  // namespace fastllm::distributed
