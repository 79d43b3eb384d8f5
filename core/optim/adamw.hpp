// AdamW with decoupled weight decay and bias correction over flat shards (docs/compatibility.md;
// Loshchilov & Hutter 2019).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/optim/adamw_kernels.hpp"
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

// How the loss was scaled (core/optim/loss_scaler.hpp).
struct Unscaling {
  double scale = 1;
  bool skip_non_finite = false;
};

struct StepReport {
  double gradient_norm = 0;  // after unscaling, before clipping
  bool skipped = false;      // a gradient was not finite: nothing changed
};

class AdamW {
 public:
  // world: all ranks of the run, over which the norm is; null: this one alone. Borrowed.
  AdamW(shard::Store& store, const AdamWOptions& options,
        distributed::Communicator* world = nullptr);
  // Gradient norm (padding, frozen chunks and tied copies excluded), clipping, update. Then
  // store.invalidate_trainable(). Unscaling and clipping multiply as gradients are read: the grads shard
  // keeps what backward left. Equal bits for any number of threads. learning_rate: the schedule's
  // value, group scales not applied. current_step grows by one, unless the update is skipped.
  StepReport step(double learning_rate, const Unscaling& unscaling = {});
  int64_t current_step = 0;  // successful updates so far; restored from a checkpoint

 private:
  shard::Store& store_;
  AdamWOptions options_;
  distributed::Communicator* world_;
  std::vector<ParameterGroup> groups_;
  std::vector<AdamWChunk> chunks_;  // what one thread works on at a time
  // Of the gradients as they lie there; and whether all of them are finite, those that the norm
  // leaves out too.
  struct Norm {
    double value = 0;
    bool finite = true;
  };
  Norm norm() const;
};

}  // namespace fastllm::optim
