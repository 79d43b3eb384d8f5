// AdamW with decoupled weight decay and bias correction over flat shards (docs/compatibility.md;
// Loshchilov & Hutter 2019).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/shard/store.hpp"

namespace fastllm::optim {

struct AdamWOptions {
  double weight_decay = 0.01, beta_1 = 0.9, beta_2 = 0.999, epsilon = 1e-8;
  double gradient_norm_clipping = 1;
  double default_learning_rate_scale = 1;
};

// Elements that share decay and learning-rate scale. Begins differ because weights hold frozen
// groups and states do not.
struct Slice {
  int64_t weights_begin = 0, state_begin = 0, elements = 0;
  bool in_norm = true;  // this rank counts it; false: a tied copy, or whole on several tensor ranks
};
struct ParameterGroup {
  std::string name;                // "wd_True_lr_scale_None"
  double weight_decay = 1;         // multiplies AdamWOptions::weight_decay
  std::optional<double> lr_scale;  // none: default_learning_rate_scale
  std::vector<Slice> slices;
};
std::vector<ParameterGroup> make_parameter_groups(const shard::Layout& layout, int rank);

struct StepReport {
  double gradient_norm = 0;  // before clipping
};

class AdamW {
 public:
  AdamW(shard::Store& store, const AdamWOptions& options);
  ~AdamW();
  // Gradient norm (padding, frozen chunks and tied copies excluded), clipping, update. Then
  // store.invalidate(). Clipping multiplies as gradients are read: the grads shard keeps what
  // backward left. Equal bits for any number of threads. learning_rate: the schedule's value, group
  // scales not applied. current_step grows by one.
  StepReport step(double learning_rate);
  int64_t current_step = 0;  // successful updates so far; restored from a checkpoint

 private:
  shard::Store& store_;
  AdamWOptions options_;
  std::vector<ParameterGroup> groups_;
  struct Chunk;  // what one thread works on at a time; cut once, so that sums have one order
  std::vector<Chunk> chunks_;
  double norm() const;
};

}  // namespace fastllm::optim
