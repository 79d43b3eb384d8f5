// Where the parts of a parameter lie in one rank's flat state. A tensor-parallel rank holds rows of
// equal length of the global tensor, a data-parallel rank an interval of those rows put together:
// at most three boxes (first row's rest, whole rows, last row's beginning). Pure arithmetic; the
// seam between core/shard's layout and the contract's boxes.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/shard/layout.hpp"

namespace fastllm::checkpoint {

// A box of the global row-major tensor that lies in one piece, row-major, at `flat` of the state.
struct Run {
  int64_t offset = 0;
  std::vector<int64_t> shape, strides;
  int64_t flat = 0;
  int64_t count() const;
  fastllm_box box() const;  // borrows from this
};

// Of piece `piece` in group `group` of stage `stage`; none when that rank's state holds nothing of
// it.
std::vector<Run> runs_of(const shard::Layout& layout, int rank, const std::string& state, int stage,
                         int group, int piece);

// One line a group, piece and run: equal for two layouts exactly when that state of that rank holds
// the same elements in the same places. What the padding holds does not count.
class LayoutText {
 public:
  void stage(int index);
  void group(const std::string& name, int64_t shard_elements, int64_t shard_padding,
             int64_t shard_begin);
  void piece(const std::string& parameter, const std::vector<int64_t>& shape);
  void run(const fastllm_box& box, int64_t flat);
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool held_ = false;  // the latest group; pieces of others do not count
};
std::string layout_text(const shard::Layout& layout, int rank, const std::string& state);

}  // namespace fastllm::checkpoint
