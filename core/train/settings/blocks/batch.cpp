// Two of the sizes of a batch give the others; what does not divide is named with what would.
#include <fmt/format.h>

#include "core/train/settings/blocks/blocks.hpp"

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

// Samples into micro-batches, over the ranks.
Resolution resolve_samples(Reader& reader, const DistributedSettings& ranks) {
  Resolution sizes(reader.root(), ranks.batch_data_parallel, ranks.pipeline_parallel,
                   reader.problems);
  sizes.run();
  if (sizes.sequential > kMostMicroBatches) {  // nullopt is less than any
    reader.problems.add("batch.batch_size",
                        fmt::format("expected at most {} micro-batches a step, found {}; enlarge "
                                    "batch.micro_batch_size or make the batch smaller",
                                    kMostMicroBatches, *sizes.sequential));
  }
  const std::string key = "batch.sequential_micro_batches";
  const Size given = reader.optional<int64_t>(key);
  if (given && sizes.sequential && given != sizes.sequential) {
    reader.note(key, fmt::format("{} is replaced by {}, which follows from the other sizes", *given,
                                 *sizes.sequential));
  }
  return sizes;
}

void check_order(Reader& reader, const BatchSettings& batch, int64_t pipeline_parallel) {
  const std::string key = "batch.depth_first_micro_batches";
  if (pipeline_parallel > 1 && batch.depth_first_micro_batches > 1) {
    reader.problems.add(
        key, fmt::format("expected 1, since model.distributed.pipeline_parallel is {}, found {}; "
                         "write {} as batch.breadth_first_micro_batches instead",
                         pipeline_parallel, batch.depth_first_micro_batches,
                         batch.sequential_micro_batches));
  }
  if (batch.depth_first_micro_batches > 1 && batch.breadth_first_micro_batches > 1) {
    reader.note(key,
                "micro-batches go partly one after the other, partly stage by stage, which "
                "costs the memory of the one and the gathering of the other");
  }
  if (batch.sequential_micro_batches < pipeline_parallel) {
    reader.note("batch.batch_size",
                fmt::format("{} micro-batches keep {} pipeline-parallel ranks waiting; at least as "
                            "many micro-batches as ranks, better several times as many, do not",
                            batch.sequential_micro_batches, pipeline_parallel));
  }
}

// Tokens of a sample into pieces.
int64_t read_micro_sequence(Reader& reader, int64_t length) {
  const std::string key = "batch.micro_sequence_length";
  const int64_t micro_length = reader.optional<int64_t>(key).value_or(length);
  if (length % micro_length != 0) {
    reader.problems.add(
        key, fmt::format("expected a divisor of batch.sequence_length ({}), found {}: {}%{}!=0",
                         length, micro_length, length, micro_length));
  }
  return micro_length;
}

// Sequence-data parallel ranks have equal parts of each sample; sequence-tensor parallel ones, of the
// tokens that a data-parallel rank has of a micro-batch.
void check_tokens(Reader& reader, const BatchSettings& batch, const DistributedSettings& ranks) {
  if (ranks.data_parallel % ranks.sequence_data_parallel != 0) return;  // said already
  if (const int64_t part = batch.micro_sequence_length % ranks.sequence_data_parallel; part != 0) {
    reader.problems.add(
        "batch.sequence_length",
        fmt::format("expected a multiple of model.distributed.sequence_data_parallel ({0}), the "
                    "ranks that share each sample, found {1}: {1}%{0}={2}; choose another length",
                    ranks.sequence_data_parallel, batch.micro_sequence_length, part));
    return;
  }
  if (!ranks.sequence_tensor_parallel) return;
  const int64_t parts = ranks.tensor_parallel * ranks.sequence_data_parallel;
  const int64_t samples = batch.micro_batch_size, length = batch.micro_sequence_length;
  // The remainder of the product, which may not fit in 64 bits.
  if ((samples % parts) * (length % parts) % parts == 0) return;
  reader.problems.add(
      "batch.sequence_length",
      fmt::format("expected batch.micro_batch_size times the sequence length to be a multiple of "
                  "{}, the ranks that share its tokens with "
                  "model.distributed.sequence_tensor_parallel, found {} times {}; choose another "
                  "length or write sequence_tensor_parallel: false",
                  parts, samples, length));
}

}  // namespace

BatchSettings read_batch(Reader& reader, const DistributedSettings& ranks) {
  const Resolution sizes = resolve_samples(reader, ranks);
  BatchSettings batch;
  reader.read("batch", {{"sequence_length", batch.sequence_length},
                        {"cross_document_attention", batch.cross_document_attention}});
  // What is there in other words stays as it was written.
  auto put = [&](const char* key, const Size& value) {
    const std::string path = std::string("batch.") + key;
    if (value && !(reader.node(path) == Node::integer(*value)))
      reader.fill(path, Node::integer(*value));
    return value.value_or(1);
  };
  batch.micro_sequence_length =
      put("micro_sequence_length", read_micro_sequence(reader, batch.sequence_length));
  batch.micro_batch_size = put("micro_batch_size", sizes.micro);
  batch.depth_first_micro_batches = put("depth_first_micro_batches", sizes.depth);
  batch.breadth_first_micro_batches = put("breadth_first_micro_batches", sizes.breadth);
  batch.sequential_micro_batches = put("sequential_micro_batches", sizes.sequential);
  batch.batch_size = put("batch_size", sizes.total);
  check_order(reader, batch, ranks.pipeline_parallel);
  check_tokens(reader, batch, ranks);
  return batch;
}

}  // namespace fastllm::train
