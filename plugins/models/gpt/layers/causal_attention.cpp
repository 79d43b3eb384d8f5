// Blocks of queries against the keys that any of them sees, as library products with one pass over
// the scores between them. Keys outside a block's range, after it, or before its window are never
// touched, so a document mask or a window saves work instead of costing some. The scores of one
// block and head exist at a time; backward makes them again.
//
// Threads take tasks from a queue, the longest first. What a task writes no other task writes, and
// in an order of its own, so the bits do not depend on the number of threads.
#include "layers/causal_attention.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <atomic>
#include <span>

#include "kernels/product.hpp"
#include "kernels/softmax.hpp"

namespace fastllm::gpt {
namespace {

// Queries in a block. Products of 64 rows run as fast as larger ones, and half a block of work is
// wasted above the diagonal.
constexpr int64_t kBlock = 64;
// Tasks of backward that keep a machine busy. With fewer, heads that share a key are tasks of their
// own, each with its own gradient of the key, summed at the end.
constexpr int64_t kEnoughTasks = 8;

// Tokens [begin, end) of the micro-batch.
struct Run {
  int64_t begin, end;
  int64_t length() const { return end - begin; }
};

// A block of queries and the keys that some of them see.
struct Block {
  Run queries, keys;
};

std::vector<Run> longest_first(const at::Tensor& ranges) {
  const std::span ends(ranges.const_data_ptr<int32_t>(), size_t(ranges.numel()));
  std::vector<Run> runs;
  for (size_t i = 1; i < ends.size(); ++i)
    if (ends[i] > ends[i - 1]) runs.push_back({ends[i - 1], ends[i]});
  std::ranges::stable_sort(runs, std::greater{}, &Run::length);
  return runs;
}

// The blocks of a range, from its first query on.
template <class Visit>
void for_each_block(const AttentionShape& shape, const Run& range, Visit&& visit) {
  for (int64_t begin = range.begin; begin < range.end; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, range.end);
    const int64_t first = shape.window > 0 ? begin - shape.window + 1 : range.begin;
    visit(Block{{begin, end}, {std::max(first, range.begin), end}});
  }
}

int64_t most_scores(const AttentionShape& shape, const std::vector<Run>& ranges) {
  int64_t most = 0;
  for (const Run& range : ranges)
    for_each_block(shape, range, [&](const Block& block) {
      most = std::max(most, block.queries.length() * block.keys.length());
    });
  return most;
}

ScoreBlock score_block(const AttentionShape& shape, const Dropout& dropout, const Block& block,
                       int64_t head, int64_t tokens) {
  const auto number = [&](int64_t query) {
    return uint64_t(head * tokens + query) * uint64_t(tokens) + uint64_t(block.keys.begin);
  };
  return {.rows = block.queries.length(),
          .keys = block.keys.length(),
          .diagonal = block.queries.begin - block.keys.begin,
          .window = shape.window > 0 ? shape.window : block.keys.length(),
          .scale = float(shape.scale),
          .dropout = dropout,
          .first_number = number(block.queries.begin),
          .numbers_a_row = uint64_t(tokens)};
}

// Rows of tokens that hold all heads one after the other, at one head.
template <class Float>
struct Heads {
  Float* data;
  int64_t stride;  // from one token to the next

  Float* at(int64_t token) const { return data + token * stride; }
};
Heads<const float> read_head(const at::Tensor& rows, int64_t column) {
  return {rows.const_data_ptr<float>() + column, rows.stride(0)};
}
Heads<float> write_head(const at::Tensor& rows, int64_t column) {
  return {rows.mutable_data_ptr<float>() + column, rows.stride(0)};
}
void clear(const Heads<float>& head, const Run& run, int64_t width) {
  for (int64_t token = run.begin; token < run.end; ++token)
    std::fill_n(head.at(token), width, 0.0f);
}

// softmax [heads, 2, tokens] from a query on.
SoftmaxRows softmax_rows(const at::Tensor& softmax, int64_t head, int64_t query) {
  const int64_t tokens = softmax.size(2);
  float* maximum = softmax.mutable_data_ptr<float>() + head * 2 * tokens + query;
  return {.maximum = maximum, .inverse_sum = maximum + tokens};
}

class Tasks {
 public:
  explicit Tasks(int64_t count) : count_(count) {}
  // The number of a task that nobody else has; -1: none is left.
  int64_t take() {
    const int64_t task = next_.fetch_add(1, std::memory_order_relaxed);
    return task < count_ ? task : -1;
  }

 private:
  const int64_t count_;
  std::atomic<int64_t> next_{0};
};

// Calls work(tasks) once on every thread. A team of all threads even for one task: products within
// a team stay on their thread.
template <class Work>
void on_every_thread(int64_t count, Work&& work) {
  Tasks tasks(count);
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    const sdk::ComputeGuard guard;  // of this thread
    work(tasks);
  });
}

}  // namespace

void check_ranges(const at::Tensor& ranges, int64_t tokens) {
  const std::span ends(ranges.const_data_ptr<int32_t>(), size_t(ranges.numel()));
  const auto refuse = [&](const std::string& found) {
    sdk::fail(FASTLLM_INVALID,
              "cu_seqlens: expected ends of attention ranges that rise from 0 to " +
                  std::to_string(tokens) + ", the tokens of the micro-batch, found " + found +
                  "; whoever builds the batch must deliver them so");
  };
  if (ends.empty()) refuse("none");
  if (ends[0] != 0) refuse(std::to_string(ends[0]) + " first");
  for (size_t i = 1; i < ends.size(); ++i) {
    if (ends[i] >= ends[i - 1]) continue;
    refuse(std::to_string(ends[i]) + " after " + std::to_string(ends[i - 1]) + " at index " +
           std::to_string(i));
  }
  if (ends.back() != tokens) refuse(std::to_string(ends.back()) + " last");
}

at::Tensor attention_forward(const AttentionShape& shape, const at::Tensor& ranges,
                             const Dropout& dropout, const at::Tensor& query,
                             const at::Tensor& key_value, const at::Tensor& out) {
  const int64_t tokens = query.size(0), width = shape.head_width;
  const int64_t shared = shape.heads / shape.groups;
  const std::vector<Run> runs = longest_first(ranges);
  std::vector<Block> blocks;
  for (const Run& run : runs)
    for_each_block(shape, run, [&](const Block& block) { blocks.push_back(block); });
  std::ranges::stable_sort(blocks, std::greater{}, [](const Block& b) { return b.keys.length(); });
  const int64_t scores_size = most_scores(shape, runs);
  const at::Tensor softmax = empty({shape.heads, 2, tokens});

  on_every_thread(int64_t(blocks.size()) * shape.heads, [&](Tasks& tasks) {
    const at::Tensor scratch = empty({scores_size});
    float* scores = scratch.mutable_data_ptr<float>();
    for (int64_t task = tasks.take(); task >= 0; task = tasks.take()) {
      const Block& block = blocks[size_t(task / shape.heads)];
      const int64_t head = task % shape.heads, group = head / shared;
      const auto q = read_head(query, head * width), k = read_head(key_value, group * width),
                 v = read_head(key_value, (shape.groups + group) * width);
      const auto o = write_head(out, head * width);
      const SoftmaxRows rows = softmax_rows(softmax, head, block.queries.begin);
      const ScoreBlock s = score_block(shape, dropout, block, head, tokens);
      float* result = o.at(block.queries.begin);
      product(s.rows, s.keys, width, {q.at(block.queries.begin), q.stride},
              {k.at(block.keys.begin), k.stride, true}, false, scores, s.keys);
      attention_softmax(s, scores, rows);
      product(s.rows, width, s.keys, {scores, s.keys}, {v.at(block.keys.begin), v.stride}, false,
              result, o.stride);
      scale_rows(s.rows, width, o.stride, rows.inverse_sum, result);
    }
  });
  return softmax;
}

void attention_backward(const AttentionShape& shape, const at::Tensor& ranges,
                        const Dropout& dropout, const at::Tensor& query,
                        const at::Tensor& key_value, const at::Tensor& softmax,
                        const at::Tensor& d_out, const at::Tensor& d_query,
                        const at::Tensor& d_key_value) {
  const int64_t tokens = query.size(0), width = shape.head_width;
  const int64_t shared = shape.heads / shape.groups;
  const std::vector<Run> runs = longest_first(ranges);
  const int64_t scores_size = most_scores(shape, runs);
  // A task is the heads of one range that write one gradient of keys and values.
  const bool apart = shared > 1 && int64_t(runs.size()) * shape.groups < kEnoughTasks;
  const int64_t parts = apart ? shape.heads : shape.groups, heads_a_part = shape.heads / parts;
  const at::Tensor d_parts = apart ? empty({tokens, 2 * parts * width}) : d_key_value;

  on_every_thread(int64_t(runs.size()) * parts, [&](Tasks& tasks) {
    const at::Tensor scratch = empty({2 * scores_size});
    float* weights = scratch.mutable_data_ptr<float>();
    float* d_weights = weights + scores_size;
    for (int64_t task = tasks.take(); task >= 0; task = tasks.take()) {
      const Run& run = runs[size_t(task / parts)];
      const int64_t part = task % parts;
      const auto d_k = write_head(d_parts, part * width),
                 d_v = write_head(d_parts, (parts + part) * width);
      clear(d_k, run, width);
      clear(d_v, run, width);
      for (int64_t head = part * heads_a_part; head < (part + 1) * heads_a_part; ++head) {
        const int64_t group = head / shared;
        const auto q = read_head(query, head * width), d_o = read_head(d_out, head * width),
                   k = read_head(key_value, group * width),
                   v = read_head(key_value, (shape.groups + group) * width);
        const auto d_q = write_head(d_query, head * width);
        for_each_block(shape, run, [&](const Block& block) {
          const int64_t first_query = block.queries.begin, first_key = block.keys.begin;
          const ScoreBlock s = score_block(shape, dropout, block, head, tokens);
          const Operand queries{q.at(first_query), q.stride},
              d_outs{d_o.at(first_query), d_o.stride};
          product(s.rows, s.keys, width, queries, {k.at(first_key), k.stride, true}, false, weights,
                  s.keys);
          product(s.rows, s.keys, width, d_outs, {v.at(first_key), v.stride, true}, false,
                  d_weights, s.keys);
          attention_softmax_backward(s, softmax_rows(softmax, head, first_query), weights,
                                     d_weights);
          product(s.keys, width, s.rows, {weights, s.keys, true}, d_outs, true, d_v.at(first_key),
                  d_v.stride);
          product(s.keys, width, s.rows, {d_weights, s.keys, true}, queries, true,
                  d_k.at(first_key), d_k.stride);
          product(s.rows, width, s.keys, {d_weights, s.keys}, {k.at(first_key), k.stride}, false,
                  d_q.at(first_query), d_q.stride);
        });
      }
    }
  });
  if (!apart) return;
  at::Tensor sum = d_key_value.view({tokens, 2, shape.groups, width});
  at::sum_out(sum, d_parts.view({tokens, 2, shape.groups, shared, width}), at::IntArrayRef{3});
}

}  // namespace fastllm::gpt
