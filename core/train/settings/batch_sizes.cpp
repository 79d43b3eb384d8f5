// Two of the sizes of a batch give the others; what does not divide is named with what would.
#include "core/train/settings/batch_sizes.hpp"

#include <fmt/format.h>

namespace fastllm::train {
namespace {

using config::Node;
using Size = std::optional<int64_t>;

class Resolution {
 public:
  Resolution(Node& root, int64_t batch_data_parallel, int64_t pipeline_parallel, Problems& problems)
      : root_(root),
        ranks_(batch_data_parallel),
        pipeline_(pipeline_parallel),
        problems_(problems) {
    micro = get("micro_batch_size");
    depth = get("depth_first_micro_batches");
    breadth = get("breadth_first_micro_batches");
    total = get("batch_size");
  }

  void run() {
    if (total && micro)
      both_given();
    else
      one_missing();
  }

  Size micro, depth, breadth, sequential, total;

 private:
  Size get(const char* key) { return root_.get_optional<int64_t>(std::string("batch.") + key); }

  // a / b, exact. Else a problem at `key` that says the remainder and what would fit; factors: what
  // b is made of.
  Size divide(const char* key, int64_t a, int64_t b, const std::string& factors) {
    if (a % b == 0) return a / b;
    int64_t below = a - a % b;
    std::string fit = below > 0 ? fmt::format("{} or {}", below, below + b) : fmt::format("{}", b);
    problems_.add(fmt::format("batch.{}", key),
                  fmt::format("expected a multiple of {} = {}, found {}: {}%{}!=0; write {}",
                              factors, b, a, a, b, fit));
    return std::nullopt;
  }

  Size multiply(const Size& a, const Size& b) {
    int64_t product = 0;
    if (!a || !b) return std::nullopt;
    if (__builtin_mul_overflow(*a, *b, &product)) {
      problems_.add(
          "batch",
          fmt::format("expected sizes whose product fits in 64 bits, found {} times {}", *a, *b));
      return std::nullopt;
    }
    return product;
  }

  void one_missing() {
    if (!depth) depth = 1;
    if (!breadth) breadth = 1;
    sequential = multiply(depth, breadth);
    if (!micro && !total) micro = 1;
    Size rest = multiply(sequential, ranks_);
    if (!rest) return;
    if (!total)
      total = multiply(micro, rest);
    else
      micro = divide("batch_size", *total, *rest,
                     "the number of micro-batches times data-parallel ranks");
  }

  void both_given() {
    Size samples = multiply(micro, ranks_);
    if (!samples) return;
    sequential =
        divide("batch_size", *total, *samples, "batch.micro_batch_size times data-parallel ranks");
    if (!sequential) return;
    if (!depth && !breadth) {
      depth = pipeline_ > 1 ? 1 : *sequential;
      breadth = pipeline_ > 1 ? *sequential : 1;
    } else if (!depth) {
      depth = quotient("breadth_first_micro_batches", *breadth);
    } else if (!breadth) {
      breadth = quotient("depth_first_micro_batches", *depth);
    } else if (multiply(depth, breadth) != sequential) {
      problems_.add(
          "batch.depth_first_micro_batches",
          fmt::format(
              "expected depth_first_micro_batches times breadth_first_micro_batches to be {}, "
              "what batch_size and micro_batch_size ask for, found {} times {}; leave one out",
              *sequential, *depth, *breadth));
    }
  }

  Size quotient(const char* key, int64_t given) {
    if (*sequential % given == 0) return *sequential / given;
    problems_.add(fmt::format("batch.{}", key),
                  fmt::format("expected a divisor of the {} micro-batches that batch_size and "
                              "micro_batch_size ask for, found {}: {}%{}!=0",
                              *sequential, given, *sequential, given));
    return std::nullopt;
  }

  Node& root_;
  int64_t ranks_, pipeline_;
  Problems& problems_;
};

}  // namespace

BatchSettings resolve_batch(Node& root, int64_t batch_data_parallel, int64_t pipeline_parallel,
                            Problems& problems, std::vector<std::string>& notes) {
  Resolution sizes(root, batch_data_parallel, pipeline_parallel, problems);
  sizes.run();
  if (sizes.sequential > kMostMicroBatches) {  // nullopt is less than any
    problems.add("batch.batch_size",
                 fmt::format("expected at most {} micro-batches a step, found {}; enlarge "
                             "batch.micro_batch_size or make the batch smaller",
                             kMostMicroBatches, *sizes.sequential));
  }

  Size given = root.get_optional<int64_t>("batch.sequential_micro_batches");
  if (given && sizes.sequential && given != sizes.sequential) {
    notes.push_back(fmt::format("{}: {} is replaced by {}, which follows from the other sizes",
                                config::where(root, "batch.sequential_micro_batches"), *given,
                                *sizes.sequential));
  }
  int64_t length = root.get<int64_t>("batch.sequence_length");
  int64_t micro_length = root.get_optional<int64_t>("batch.micro_sequence_length").value_or(length);
  if (length % micro_length != 0) {
    problems.add("batch.micro_sequence_length",
                 fmt::format("expected a divisor of batch.sequence_length ({}), found {}: {}%{}!=0",
                             length, micro_length, length, micro_length));
  }

  auto put = [&](const char* key, const Size& value) {
    Node& node = *root.find(std::string("batch.") + key);
    if (value && !(node == Node::integer(*value))) node = Node::integer(*value);
    return value.value_or(1);
  };
  BatchSettings batch;
  batch.micro_batch_size = put("micro_batch_size", sizes.micro);
  batch.depth_first_micro_batches = put("depth_first_micro_batches", sizes.depth);
  batch.breadth_first_micro_batches = put("breadth_first_micro_batches", sizes.breadth);
  batch.sequential_micro_batches = put("sequential_micro_batches", sizes.sequential);
  batch.batch_size = put("batch_size", sizes.total);
  batch.sequence_length = length;
  batch.micro_sequence_length = put("micro_sequence_length", micro_length);
  batch.cross_document_attention = root.get<bool>("batch.cross_document_attention");
  return batch;
}

}  // namespace fastllm::train
