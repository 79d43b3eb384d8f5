// This rank's memory, and how it comes together with that of others: gathered buffers the layers
// compute in, in the training type, and flat float32 shards the optimizer and checkpoints work on;
// frozen weights may do without a float32 shard.
// Weights and gradients of a parameter are views into the buffers: addresses stay for the life of
// the store. CPU memory, page-aligned, untouched pages cost nothing. One thread.
#pragma once

#include <fastllm/plugin.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/distributed/communicator.hpp"
#include "core/shard/layout.hpp"

namespace fastllm::shard {

// The ranks that hold the other parts. Null: a group of this rank alone. Borrowed.
struct StoreGroups {
  distributed::Communicator* data = nullptr;    // the other shards of each group
  distributed::Communicator* tensor = nullptr;  // the other parts of each weight that is divided
  // By main stage of a tied weight: the pipeline ranks that hold it, when there are several.
  std::map<int, distributed::Communicator*> tied = {};
};

struct StoreOptions {
  DLDataType training{kDLFloat, 32, 1};      // weight buffers: float32, bfloat16 or float16
  DLDataType optimization{kDLFloat, 32, 1};  // shards; a store takes float32 alone
  bool full_precision_gradients = true;      // gradient buffers in the optimization type
  bool wide_frozen_weights = true;           // shards of frozen weights in the optimization type
  // Of what is not divided over tensor ranks, a rank has the gradient of its tokens alone.
  bool sequence_tensor = false;
  int zero_stage = 0;                                    // 0: unset
  int num_weight_buffers = 0, num_gradient_buffers = 0;  // 0: one a stage; zero_stage overrides
  bool training_mode = true;  // false: weights only, no gradients, no optimizer state
  std::vector<std::string> optimizer_states{"exp_avgs", "exp_avgs_sq"};
};

// Computed from the layout alone, before anything is allocated: what a run says of its memory.
struct AllocationTable {
  int weight_buffers = 0, gradient_buffers = 0, shards = 0;
  int64_t weight_buffer_bytes = 0, gradient_buffer_bytes = 0, shard_bytes = 0;
  int64_t total_bytes() const { return weight_buffer_bytes + gradient_buffer_bytes + shard_bytes; }
  std::vector<std::string> lines() const;  // the reference's four lines (docs/compatibility.md)
};
AllocationTable allocation_table(const Layout& layout, int rank, const StoreOptions& options);

// How a rank keeps its part of a frozen group, which nothing ever updates.
enum class FrozenShard {
  kWide,    // in the optimization type, among the weights that are trained
  kNarrow,  // in the training type: other stages use its buffer in turn
  kBuffer   // in the buffer that no other stage uses, and nowhere else
};
FrozenShard frozen_shard(const BufferPlacement& weights, int stage, const StoreOptions& options);
// Bytes of it in the shards.
int64_t frozen_shard_bytes(const Group& group, FrozenShard kept, const StoreOptions& options);

// A part of a state that lies in one piece of memory: what this rank holds of a group.
struct StatePart {
  int64_t begin = 0, elements = 0;  // of the state, as the layout counts
  std::byte* data = nullptr;
  DLDataType type{};
  std::byte* at(int64_t position) const { return data + (position - begin) * (type.bits / 8); }
};
// The part that holds a position of the state. parts: as Store::parts gives them.
const StatePart& part_of(const std::vector<StatePart>& parts, int64_t position);

// The buffers of a store with these options, of which gradients have none outside training.
BufferPlacement weight_placement(const Layout& layout, int rank, const StoreOptions& options);
BufferPlacement gradient_placement(const Layout& layout, int rank, const StoreOptions& options);
DLDataType gradient_type(const StoreOptions& options);  // of gradient buffers

class Store {
 public:
  // Throws Error(kOutOfMemory) that names the bytes wanted and what can be done.
  Store(const Layout& layout, int rank, const StoreOptions& options, StoreGroups groups = {});
  ~Store();
  Store(const Store&) = delete;

  const Layout& layout() const;
  int rank() const;
  const StoreOptions& options() const;

  // Views of a parameter in its stage's buffer; gradient null: frozen, or no training. Stay as long
  // as the store.
  const DLTensor* weight(int parameter) const;
  DLTensor* gradient(int parameter) const;

  // State names in allocation order: weights, optimizer states, grads.
  const std::vector<std::string>& states() const;
  bool has_state(const std::string& state) const;
  // The whole flat piece, 1-D in the optimization type. Null for weights when frozen ones are kept
  // in another type: see parts.
  DLTensor* flat(const std::string& state);
  float* flat_data(const std::string& state);  // the same, which is float32
  // The state whatever the type: each group of this rank that it has, in the order of the layout.
  const std::vector<StatePart>& parts(const std::string& state) const;

  // Shards of all data ranks -> buffer, for every group of the stage, rounded to the training type
  // (nearest, ties to even). What the buffer holds already is neither copied nor gathered again. All
  // data ranks call in the same order.
  void restore(int stage);
  // Begins that, so that gathering goes on while other stages compute. Their buffers must be others.
  void prefetch(int stage);
  bool restored(int stage) const;
  // The copies of tied stages, which are no step's own: before the first step.
  void restore_copies();
  // The shards have changed: what layers see must be restored before its next use.
  void invalidate();            // all of it: initialized, or loaded
  void invalidate_trainable();  // by an update: frozen groups stay as they are
  // Gradient buffer -> grads shard, widened to float32; with several data ranks the mean over their
  // buffers. Parameters of which each tensor rank has a part of the gradient are summed before.
  // Frozen groups are skipped. All data and tensor ranks call in the same order. Several data ranks
  // only begin it here: other stages compute meanwhile.
  void reduce(int stage, bool accumulate);
  // Before a backward writes gradients of that stage: what was reduced from its buffer has arrived.
  void await_gradient_buffer(int stage);
  // All of it has arrived: the grads shard is complete.
  void await_reductions();
  // After that: gradients of tied stages are summed over the pipeline ranks that use them.
  void reduce_tied();

  // For backward: 1 the next gradient of this parameter is written, 0 it is added to
  // (docs/compatibility.md).
  void reset_gradients(int stage);
  std::vector<uint8_t>& overwrite_flags();  // by parameter

  // Zeros every state but the weights. Untouched pages stay untouched.
  void zero_optimizer_and_gradients();

  const BufferPlacement& weight_buffers() const;
  const BufferPlacement& gradient_buffers() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fastllm::shard
