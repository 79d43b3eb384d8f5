// Rules across blocks.
#include <fmt/format.h>

#include <limits>

#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {
namespace {

using config::Node;

// "part of": every iteration of `a` must be one of `b`.
void check_sub_interval(Reader& reader, const std::string& a_path, const Interval& a,
                        const std::string& b_path, const Interval& b) {
  if (a.is_sub_interval_of(b)) return;
  if (b.seconds && !b.interval) return;  // what is saved by time is saved at a stop, too
  if (!b.interval) {
    reader.problems.add(
        a_path + ".interval",
        fmt::format("is not a sub-interval of {}, whose interval is null; write {}.interval: {}",
                    b_path, b_path, *a.interval));
    return;
  }
  const int64_t below = *a.interval - *a.interval % *b.interval;
  if (*a.interval % *b.interval != 0) {
    const std::string fit = below > 0 ? fmt::format("{} or {}", below, below + *b.interval)
                                      : fmt::format("{}", *b.interval);
    reader.problems.add(
        a_path + ".interval",
        fmt::format("is not a sub-interval of {}: expected a multiple of {}.interval ({}), found "
                    "{}; write {}",
                    b_path, b_path, *b.interval, *a.interval, fit));
  }
  const int64_t rest = b.offset % *b.interval;
  if (a.offset % *b.interval != rest) {
    reader.problems.add(
        a_path + ".offset",
        fmt::format("is not a sub-interval of {}: expected an offset that leaves {} when divided "
                    "by {}.interval ({}), as {}.offset does, found {}; write {}",
                    b_path, rest, b_path, *b.interval, b_path, a.offset, rest));
  }
}

// An ability of the formats that configurations name (docs/compatibility.md).
bool holds_optimizer_state(const std::string& format) {
  return format == "distributed" || format == "fast_llm";
}

void check_optimizer_state(Reader& reader, const std::string& key, const std::string& format_key) {
  const std::string format = reader.get<std::string>(format_key);
  if (!reader.get<bool>(key) || holds_optimizer_state(format)) return;
  reader.problems.add(
      key,
      fmt::format("expected false, since {} is {}, which holds no optimizer state, found true; "
                  "write false, or {}: distributed",
                  format_key, format, format_key));
}

// Samples and tokens of so many steps must be numbers. Gives whether there are any.
bool check_steps(Reader& reader, const std::string& path, int64_t steps,
                 const BatchSettings& batch) {
  int64_t samples = 0, tokens = 0;
  if (!__builtin_mul_overflow(steps, batch.batch_size, &samples) &&
      !__builtin_mul_overflow(samples, batch.sequence_length, &tokens))
    return samples != 0;
  reader.problems.add(
      path, fmt::format("expected a number of tokens that fits in 64 bits, found {} steps of {} "
                        "samples of {} tokens",
                        steps, batch.batch_size, batch.sequence_length));
  return false;
}

// Only a model with a table of positions has a longest sequence.
void check_positions(Reader& reader, const BatchSettings& batch) {
  const Node* positions = reader.root().find("model.base_model.use_position_embeddings");
  const Node* rows = reader.root().find("model.base_model.max_position_embeddings");
  if (!positions || positions->kind() != Node::Kind::kBool || !positions->as_bool()) return;
  if (!rows || rows->kind() != Node::Kind::kInt || rows->as_int() >= batch.sequence_length) return;
  reader.problems.add(
      "batch.sequence_length",
      fmt::format(
          "expected at most model.base_model.max_position_embeddings ({}), found {}; shorten "
          "the sequence or enlarge the table",
          rows->as_int(), batch.sequence_length));
}

}  // namespace

void check_intervals(Reader& reader, const TrainingSettings& training) {
  check_sub_interval(reader, "training.shutdown", training.shutdown, "training.checkpoint",
                     training.checkpoint.when);
  check_sub_interval(reader, "training.wandb.alert", reader.read_interval("training.wandb.alert"),
                     "training.logs", training.logs);
}

void check_formats(Reader& reader) {
  const std::string exported = "training.export.format", state = "training.export.optimizer_state";
  if (reader.node(state).is_null()) {
    reader.fill(state, Node::boolean(holds_optimizer_state(reader.get<std::string>(exported))));
  }
  check_optimizer_state(reader, state, exported);
  check_optimizer_state(reader, "pretrained.optimizer_state", "pretrained.format");
}

void check_sizes(Reader& reader, const TrainingSettings& training, const BatchSettings& batch) {
  if (int64_t tokens = 0;
      __builtin_mul_overflow(batch.batch_size, batch.sequence_length, &tokens)) {
    reader.problems.add(
        "batch", fmt::format("expected a number of tokens in a batch that fits in 64 bits, found "
                             "{} samples of {} tokens; make one of them smaller",
                             batch.batch_size, batch.sequence_length));
    return;
  }
  bool any = check_steps(reader, "training.train_iters", training.train_iters, batch);
  any |= check_steps(reader, "training.test_iters", training.test_iters, batch);
  for (const ValidationSet& set : training.validation) {
    int64_t evaluations = set.when.count(training.train_iters) + 1, steps = 0;
    if (__builtin_mul_overflow(evaluations, set.iterations, &steps))
      steps = std::numeric_limits<int64_t>::max();
    check_steps(reader, set.key() + ".iterations", steps, batch);
  }
  if (any) check_positions(reader, batch);
}

}  // namespace fastllm::train
