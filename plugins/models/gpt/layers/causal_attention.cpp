// Blocks of queries against the keys that any of them sees: a product, one pass over the scores, a
// product. Products leave out what is masked: keys after a query (by tiles of a few rows), outside
// its range, or before its window are not multiplied, so a document mask or a window saves work
// instead of costing some. The scores of one block and head exist at a time; backward makes them
// again.
//
// Keys and values are packed once for all heads and blocks that use them. Threads take tasks from a
// queue, the longest first. What a task writes no other task writes, and in an order of its own, so
// the bits do not depend on the number of threads.
//
// All arithmetic is on float scratch memory; tensors are read and written at its edges alone.
#include "layers/causal_attention.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <atomic>
#include <span>

#include "kernels/softmax.hpp"
#include "kernels/tile_product.hpp"

namespace fastllm::gpt {
namespace {

// Queries in a block: its scores for a few hundred keys stay in a core's cache.
constexpr int64_t kBlock = 64;
// Tasks of backward that keep a machine busy. With fewer, heads that share a key are tasks of their
// own, each with its own gradient of the key, summed at the end.
constexpr int64_t kEnoughTasks = 8;

struct Span {
  int64_t begin, end;
  int64_t length() const { return end - begin; }
};

// An attention range: the tokens of the micro-batch whose keys its queries see.
struct Range : Span {
  Span queries;    // tokens too, the last of them the range's last
  int64_t before;  // tokens of the micro-batch before any query that are not queries themselves
  int64_t packed;  // its first row in packed matrices

  int64_t row(int64_t query) const { return query - before; }  // in tensors of queries
};

// The ranges that have queries here, the longest first.
struct Ranges {
  std::vector<Range> all;
  std::vector<Span> unseen;  // tokens whose keys no query here sees
  int64_t packed = 0;        // rows of packed matrices
  int64_t longest = 0;       // padded

  Ranges(const AttentionShape& shape, const at::Tensor& tensor, const SamplePart& part) {
    const std::span ends(tensor.const_data_ptr<int32_t>(), size_t(tensor.numel()));
    int64_t last = 0;  // of what was seen so far, the end
    const auto skip_to = [&](int64_t begin) {
      if (begin > last) unseen.push_back({last, begin});
    };
    for (size_t i = 1; i < ends.size(); ++i) {
      Range range{{ends[i - 1], ends[i]}, {ends[i - 1], ends[i]}, 0, 0};
      if (!part.all()) cut(shape, part, range);
      if (range.queries.length() <= 0) continue;
      skip_to(range.begin);
      last = range.end;
      all.push_back(range);
    }
    skip_to(ends.back());
    std::ranges::stable_sort(all, std::greater{}, &Range::length);
    for (Range& range : all) {
      range.packed = packed;
      packed += padded(range.length());
    }
    if (!all.empty()) longest = padded(all[0].length());
  }

 private:
  static void cut(const AttentionShape& shape, const SamplePart& part, Range& range) {
    const int64_t number = range.begin / part.tokens;
    const int64_t first = number * part.tokens + part.first;
    range.queries = {std::max(range.begin, first), std::min(range.end, first + part.length)};
    range.before = first - number * part.length;
    range.end = range.queries.end;
    if (shape.window > 0)
      range.begin = std::max(range.begin, range.queries.begin - shape.window + 1);
  }
};

// A block of queries and the keys that some of them see, which begin at a panel of their range.
struct Block {
  const Range* range;
  Span queries, keys;

  int64_t first_key() const { return keys.begin - range->begin; }  // in the range
  int64_t first_row() const { return range->row(queries.begin); }  // in tensors of queries
  // From one row of scores to the next: an odd number of cache lines, so that a column of them does
  // not fall on a few places of the cache.
  int64_t stride() const { return (panels_of(keys.length()) | 1) * kPanel; }
};

template <class Visit>
void for_each_block(const AttentionShape& shape, const Range& range, Visit&& visit) {
  for (int64_t begin = range.queries.begin; begin < range.end; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, range.end);
    const int64_t seen =
        shape.window > 0 ? std::max(begin - shape.window + 1, range.begin) : range.begin;
    const int64_t first = (seen - range.begin) / kPanel * kPanel;
    visit(Block{&range, {begin, end}, {range.begin + first, end}});
  }
}

int64_t most_scores(const AttentionShape& shape, const Ranges& ranges) {
  int64_t most = 0;
  for (const Range& range : ranges.all)
    for_each_block(shape, range, [&](const Block& block) {
      most = std::max(most, block.queries.length() * block.stride());
    });
  return most;
}

ScoreBlock score_block(const AttentionShape& shape, const Dropout& dropout, const Block& block,
                       int64_t head, int64_t tokens) {
  const auto row = uint64_t(head * tokens + block.queries.begin);
  return {.rows = block.queries.length(),
          .keys = block.keys.length(),
          .stride = block.stride(),
          .diagonal = block.queries.begin - block.keys.begin,
          .window = shape.window > 0 ? shape.window : block.keys.length(),
          .scale = float(shape.scale),
          .dropout = dropout,
          .first_number = row * uint64_t(tokens) + uint64_t(block.keys.begin),
          .numbers_a_row = uint64_t(tokens)};
}

// ---------------------------------------------------------------- tensors

// Rows of tokens that hold all heads one after the other, at one head.
template <class Float>
struct Head {
  Float* data;
  int64_t stride;  // from one token to the next

  Float* at(int64_t token) const { return data + token * stride; }
};
Head<const float> read_head(const at::Tensor& rows, int64_t column) {
  return {rows.const_data_ptr<float>() + column, rows.stride(0)};
}
Head<float> write_head(const at::Tensor& rows, int64_t column) {
  return {rows.mutable_data_ptr<float>() + column, rows.stride(0)};
}

// softmax [heads, 2, queries] from a row on.
SoftmaxRows softmax_rows(const at::Tensor& softmax, int64_t head, int64_t row) {
  const int64_t queries = softmax.size(2);
  float* maximum = softmax.mutable_data_ptr<float>() + head * 2 * queries + row;
  return {.maximum = maximum, .inverse_sum = maximum + queries};
}

// ---------------------------------------------------------------- threads

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

// Calls work(tasks) once on every thread that there is work for.
template <class Work>
void on_every_thread(int64_t count, Work&& work) {
  Tasks tasks(count);
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), count);
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    const sdk::ComputeGuard guard;  // of this thread
    work(tasks);
  });
}

// ---------------------------------------------------------------- packed matrices

// What a packed matrix is made of, and how: [keys, width] of a range and group in panels of its
// columns, or of its rows.
struct Source {
  enum Kind { kKeys, kKeysTransposed, kValues, kValuesTransposed } kind;
  bool values() const { return kind == kValues || kind == kValuesTransposed; }
  bool transposed() const { return kind == kKeysTransposed || kind == kValuesTransposed; }
};

class Packed {
 public:
  Packed(const AttentionShape& shape, const Ranges& ranges, const at::Tensor& key_value,
         std::vector<Source::Kind> kinds)
      : groups_(shape.groups),
        rows_(ranges.packed),
        width_(padded(shape.head_width)),
        memory_(empty({int64_t(kinds.size()) * groups_ * rows_ * width_})) {
    const int64_t count = int64_t(kinds.size()) * groups_;
    on_every_thread(count * int64_t(ranges.all.size()), [&](Tasks& tasks) {
      for (int64_t task = tasks.take(); task >= 0; task = tasks.take()) {
        const Range& range = ranges.all[size_t(task / count)];
        const int64_t matrix = task % count / groups_, group = task % groups_;
        const Source source{kinds[size_t(matrix)]};
        const int64_t column = (source.values() ? groups_ + group : group) * shape.head_width;
        const auto from = read_head(key_value, column);
        float* to = memory_.mutable_data_ptr<float>() + place(matrix, group, range);
        if (source.transposed())
          pack_transposed_panels(range.length(), shape.head_width, from.stride,
                                 from.at(range.begin), to);
        else
          pack_panels(range.length(), shape.head_width, from.stride, from.at(range.begin), to);
      }
    });
  }

  // matrix: number in kinds.
  const float* operator()(int64_t matrix, int64_t group, const Range& range) const {
    return memory_.const_data_ptr<float>() + place(matrix, group, range);
  }

 private:
  int64_t place(int64_t matrix, int64_t group, const Range& range) const {
    return ((matrix * groups_ + group) * rows_ + range.packed) * width_;
  }
  int64_t groups_, rows_, width_;
  at::Tensor memory_;
};

// ---------------------------------------------------------------- products of a block

// The rows that see any of `count` columns from `column` on.
Span rows_seeing(const ScoreBlock& s, int64_t column, int64_t count) {
  return {std::max<int64_t>(0, column - s.diagonal),
          std::min(s.rows, column + count - 1 - s.diagonal + s.window)};
}
// The columns that any of `count` rows from `row` on sees.
Span columns_seen(const ScoreBlock& s, int64_t row, int64_t count) {
  return {std::max<int64_t>(0, s.diagonal + row + 1 - s.window), s.diagonal + row + count};
}

// scores = queries [rows, width] times the transposed keys, where some row sees them.
void score_product(const ScoreBlock& s, int64_t width, const Head<const float>& queries,
                   const Block& block, const float* keys_transposed, float* scores) {
  const float* panel = keys_transposed + block.first_key() * width;
  for (int64_t column = 0; column < s.keys; column += kPanel, panel += kPanel * width) {
    const Span rows = rows_seeing(s, column, kPanel);
    if (rows.length() <= 0) continue;
    multiply_panel(rows.length(), width,
                   {queries.at(block.first_row() + rows.begin), queries.stride, 1}, panel, false,
                   scores + rows.begin * s.stride + column, s.stride);
  }
}

// out [rows, padded width] = weights times values (or keys).
void value_product(const ScoreBlock& s, int64_t width, const float* weights, const Block& block,
                   const float* values, float* out) {
  for (int64_t row = 0; row < s.rows; row += kTileRows) {
    const int64_t rows = std::min(kTileRows, s.rows - row);
    const Span columns = columns_seen(s, row, rows);
    const float* panel = values + (block.first_key() + columns.begin) * kPanel;
    for (int64_t first = 0; first < width; first += kPanel) {
      multiply_panel(rows, columns.length(),
                     {weights + row * s.stride + columns.begin, s.stride, 1}, panel, false,
                     out + row * padded(width) + first, padded(width));
      panel += block.range->length() * kPanel;
    }
  }
}

// sums [keys of the range, padded width] += transposed weights times packed rows of the block.
void key_product(const ScoreBlock& s, int64_t width, const float* weights, const Block& block,
                 const float* packed_rows, float* sums) {
  for (int64_t column = 0; column < s.keys; column += kTileRows) {
    const int64_t columns = std::min(kTileRows, s.keys - column);
    const Span rows = rows_seeing(s, column, columns);
    if (rows.length() <= 0) continue;
    float* sum = sums + (block.first_key() + column) * padded(width);
    for (int64_t first = 0; first < width; first += kPanel) {
      multiply_panel(
          columns, rows.length(), {weights + rows.begin * s.stride + column, 1, s.stride},
          packed_rows + first * s.rows + rows.begin * kPanel, true, sum + first, padded(width));
    }
  }
}

}  // namespace

void check_ranges(const at::Tensor& ranges, int64_t tokens, const SamplePart& part) {
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
  if (part.all()) return;
  for (size_t i = 1; i < ends.size(); ++i) {
    if (ends[i] == ends[i - 1] || ends[i - 1] / part.tokens == (ends[i] - 1) / part.tokens)
      continue;
    sdk::fail(FASTLLM_INVALID,
              "cu_seqlens: expected attention ranges inside samples of " +
                  std::to_string(part.tokens) +
                  " tokens, of which each sequence-data rank has a part, found one from " +
                  std::to_string(ends[i - 1]) + " to " + std::to_string(ends[i]) + " at index " +
                  std::to_string(i) + "; whoever builds the batch must deliver them so");
  }
}

at::Tensor attention_forward(const AttentionShape& shape, const at::Tensor& ranges_tensor,
                             const SamplePart& part, const Dropout& dropout,
                             const at::Tensor& query, const at::Tensor& key_value,
                             const at::Tensor& out) {
  const int64_t tokens = key_value.size(0), width = shape.head_width;
  const int64_t shared = shape.heads / shape.groups;
  const Ranges ranges(shape, ranges_tensor, part);
  const Packed packed(shape, ranges, key_value, {Source::kKeysTransposed, Source::kValues});
  std::vector<Block> blocks;
  for (const Range& range : ranges.all)
    for_each_block(shape, range, [&](const Block& block) { blocks.push_back(block); });
  std::ranges::stable_sort(blocks, std::greater{}, [](const Block& b) { return b.keys.length(); });
  const int64_t scores_size = most_scores(shape, ranges), result_size = kBlock * padded(width);
  const at::Tensor softmax = empty({shape.heads, 2, query.size(0)});

  on_every_thread(int64_t(blocks.size()) * shape.heads, [&](Tasks& tasks) {
    const at::Tensor scratch = empty({scores_size + result_size});
    float* scores = scratch.mutable_data_ptr<float>();
    float* result = scores + scores_size;
    for (int64_t task = tasks.take(); task >= 0; task = tasks.take()) {
      const Block& block = blocks[size_t(task / shape.heads)];
      const int64_t head = task % shape.heads, group = head / shared, first = block.first_row();
      const auto o = write_head(out, head * width);
      const SoftmaxRows rows = softmax_rows(softmax, head, first);
      const ScoreBlock s = score_block(shape, dropout, block, head, tokens);
      score_product(s, width, read_head(query, head * width), block, packed(0, group, *block.range),
                    scores);
      attention_softmax(s, scores, rows);
      value_product(s, width, scores, block, packed(1, group, *block.range), result);
      store_rows(s.rows, width, result, padded(width), rows.inverse_sum, o.at(first), o.stride);
    }
  });
  return softmax;
}

void attention_backward(const AttentionShape& shape, const at::Tensor& ranges_tensor,
                        const SamplePart& part, const Dropout& dropout, const at::Tensor& query,
                        const at::Tensor& key_value, const at::Tensor& softmax,
                        const at::Tensor& d_out, const at::Tensor& d_query,
                        const at::Tensor& d_key_value) {
  const int64_t tokens = key_value.size(0), width = shape.head_width;
  const int64_t shared = shape.heads / shape.groups;
  const Ranges ranges(shape, ranges_tensor, part);
  const Packed packed(shape, ranges, key_value,
                      {Source::kKeysTransposed, Source::kValuesTransposed, Source::kKeys});
  // A task is the heads of one range that write one gradient of keys and values.
  const bool apart = shared > 1 && int64_t(ranges.all.size()) * shape.groups < kEnoughTasks;
  const int64_t parts = apart ? shape.heads : shape.groups, heads_a_part = shape.heads / parts;
  const at::Tensor d_parts = apart ? empty({tokens, 2 * parts * width}) : d_key_value;
  const int64_t scores_size = most_scores(shape, ranges), block_size = kBlock * padded(width);
  const int64_t sums_size = ranges.longest * padded(width);
  for (const Span& span : ranges.unseen) d_parts.narrow(0, span.begin, span.length()).zero_();

  on_every_thread(int64_t(ranges.all.size()) * parts, [&](Tasks& tasks) {
    const at::Tensor scratch = empty({2 * scores_size + 3 * block_size + 2 * sums_size});
    float* weights = scratch.mutable_data_ptr<float>();
    float* d_weights = weights + scores_size;
    float* queries = d_weights + scores_size;
    float* d_outs = queries + block_size;
    float* d_queries = d_outs + block_size;
    float* d_keys = d_queries + block_size;
    float* d_values = d_keys + sums_size;
    for (int64_t task = tasks.take(); task >= 0; task = tasks.take()) {
      const Range& range = ranges.all[size_t(task / parts)];
      const int64_t own = task % parts;
      std::fill_n(d_keys, range.length() * padded(width), 0.0f);
      std::fill_n(d_values, range.length() * padded(width), 0.0f);
      for (int64_t head = own * heads_a_part; head < (own + 1) * heads_a_part; ++head) {
        const int64_t group = head / shared;
        const auto q = read_head(query, head * width), d_o = read_head(d_out, head * width);
        const auto d_q = write_head(d_query, head * width);
        for_each_block(shape, range, [&](const Block& block) {
          const int64_t first = block.first_row();
          const ScoreBlock s = score_block(shape, dropout, block, head, tokens);
          score_product(s, width, q, block, packed(0, group, range), weights);
          score_product(s, width, d_o, block, packed(1, group, range), d_weights);
          attention_softmax_backward(s, softmax_rows(softmax, head, first), weights, d_weights);
          pack_panels(s.rows, width, d_o.stride, d_o.at(first), d_outs);
          key_product(s, width, weights, block, d_outs, d_values);
          pack_panels(s.rows, width, q.stride, q.at(first), queries);
          key_product(s, width, d_weights, block, queries, d_keys);
          value_product(s, width, d_weights, block, packed(2, group, range), d_queries);
          store_rows(s.rows, width, d_queries, padded(width), nullptr, d_q.at(first), d_q.stride);
        });
      }
      const auto store = [&](const float* sums, int64_t column) {
        const auto to = write_head(d_parts, column * width);
        store_rows(range.length(), width, sums, padded(width), nullptr, to.at(range.begin),
                   to.stride);
      };
      store(d_keys, own);
      store(d_values, parts + own);
    }
  });
  if (!apart) return;
  at::Tensor sum = d_key_value.view({tokens, 2, shape.groups, width});
  at::sum_out(sum, d_parts.view({tokens, 2, shape.groups, shared, width}), at::IntArrayRef{3});
}

}  // namespace fastllm::gpt
