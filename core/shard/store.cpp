// Buffers in the training type, shards in float32, and the ways between them, which convert
// (docs/compatibility.md). One data rank copies; more of them gather and reduce besides.
#include "core/shard/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/tensor.hpp"
#include "core/base/text.hpp"
#include "core/shard/elements.hpp"
#include "core/shard/memory.hpp"

namespace fastllm::shard {
namespace {

int64_t to_bytes(int64_t elements, const DLDataType& type) {
  int64_t bytes;
  if (__builtin_mul_overflow(elements, int64_t(type.bits) * type.lanes / 8, &bytes))
    throw Error(Status::kOutOfMemory, fmt::format("expected less than 2^63 bytes of memory, found "
                                                  "{} elements of {} bits; use a smaller model",
                                                  elements, int(type.bits)));
  return bytes;
}

int64_t sum(const std::vector<int64_t>& values) {
  int64_t total = 0;
  for (int64_t value : values)
    if (__builtin_add_overflow(total, value, &total))
      throw Error(
          Status::kOutOfMemory,
          "expected less than 2^63 elements in the buffers, found more; use a smaller model");
  return total;
}

// ZeRO fixes the number of buffers and overrides what is set (docs/compatibility.md).
int weight_count(const StoreOptions& o) { return o.zero_stage >= 3 ? 2 : o.num_weight_buffers; }
int gradient_count(const StoreOptions& o) { return o.zero_stage >= 2 ? 2 : o.num_gradient_buffers; }

std::vector<std::string> state_names(const StoreOptions& o) {
  std::vector<std::string> names{"weights"};
  if (!o.training_mode) return names;
  names.insert(names.end(), o.optimizer_states.begin(), o.optimizer_states.end());
  names.push_back("grads");
  return names;
}

// For the layout: the groups that are trained, which any state but the weights is made of.
const std::string kTrainable = "grads";

// Shards of frozen groups that are not among the float32 ones.
int64_t narrow_bytes(const Layout& layout, int rank, const BufferPlacement& weights,
                     const StoreOptions& o) {
  int64_t bytes = 0;
  for (const Placed& placed : layout.on_device(rank))
    for (const Group& group : layout.stages()[size_t(placed.stage)].groups) {
      if (!group.frozen) continue;
      const FrozenShard kept = frozen_shard(weights, placed.stage, o);
      if (kept == FrozenShard::kNarrow) bytes += frozen_shard_bytes(group, kept, o);
    }
  return bytes;
}

// A DLTensor with its dimensions; neither moves.
struct View {
  DLTensor tensor{};
  std::vector<int64_t> shape, strides;
};

void make_view(View& view, void* data, DLDataType type, std::vector<int64_t> shape) {
  view.shape = std::move(shape);
  view.strides = row_major_strides(view.shape);
  view.tensor.data = data;
  view.tensor.device = {kDLCPU, 0};
  view.tensor.ndim = int32_t(view.shape.size());
  view.tensor.dtype = type;
  view.tensor.shape = view.shape.data();
  view.tensor.strides = view.strides.data();
}

}  // namespace

DLDataType gradient_type(const StoreOptions& o) {
  return o.full_precision_gradients ? o.optimization : o.training;
}

BufferPlacement weight_placement(const Layout& layout, int rank, const StoreOptions& o) {
  return place_buffers(layout, rank, BufferKind::kWeights, weight_count(o));
}

BufferPlacement gradient_placement(const Layout& layout, int rank, const StoreOptions& o) {
  if (!o.training_mode) return {};
  return place_buffers(layout, rank, BufferKind::kGradients, gradient_count(o));
}

std::vector<std::string> AllocationTable::lines() const {
  std::vector<std::string> lines{fmt::format(">>> Allocating {} weight buffers ({})",
                                             weight_buffers, mib_text(weight_buffer_bytes))};
  if (gradient_buffers > 0)
    lines.push_back(fmt::format(">>> Allocating {} grad buffers ({})", gradient_buffers,
                                mib_text(gradient_buffer_bytes)));
  lines.push_back(fmt::format(">>> Allocating {} shards ({})", shards, mib_text(shard_bytes)));
  lines.push_back(fmt::format("Total allocated: {}", mib_text(total_bytes())));
  return lines;
}

FrozenShard frozen_shard(const BufferPlacement& weights, int stage, const StoreOptions& o) {
  if (o.wide_frozen_weights) return FrozenShard::kWide;
  const bool alone = weights.contents[size_t(weights.buffer_of(stage))].size() == 1;
  return alone ? FrozenShard::kBuffer : FrozenShard::kNarrow;
}

int64_t frozen_shard_bytes(const Group& group, FrozenShard kept, const StoreOptions& o) {
  switch (kept) {
    case FrozenShard::kWide:
      return to_bytes(group.shard_elements, o.optimization);
    case FrozenShard::kNarrow:
      return to_bytes(group.shard_elements, o.training);
    case FrozenShard::kBuffer:
      return 0;
  }
  return 0;
}

const StatePart& part_of(const std::vector<StatePart>& parts, int64_t position) {
  const auto after =
      std::upper_bound(parts.begin(), parts.end(), position,
                       [](int64_t value, const StatePart& part) { return value < part.begin; });
  FASTLLM_ASSERT(after != parts.begin() && position < after[-1].begin + after[-1].elements);
  return after[-1];
}

AllocationTable allocation_table(const Layout& layout, int rank, const StoreOptions& o) {
  AllocationTable table;
  const BufferPlacement weights = weight_placement(layout, rank, o);
  table.weight_buffers = int(weights.contents.size());
  table.weight_buffer_bytes = to_bytes(sum(weights.elements), o.training);
  if (o.training_mode) {
    const BufferPlacement gradients = gradient_placement(layout, rank, o);
    table.gradient_buffers = int(gradients.contents.size());
    table.gradient_buffer_bytes = to_bytes(sum(gradients.elements), gradient_type(o));
  }
  std::vector<int64_t> shards;
  for (const std::string& state : state_names(o))
    shards.push_back(layout.state_elements(rank, o.wide_frozen_weights ? state : kTrainable));
  table.shards = int(shards.size());
  table.shard_bytes = to_bytes(sum(shards), o.optimization);
  if (!o.wide_frozen_weights) table.shard_bytes += narrow_bytes(layout, rank, weights, o);
  int64_t total;
  if (__builtin_add_overflow(table.weight_buffer_bytes, table.gradient_buffer_bytes, &total) ||
      __builtin_add_overflow(total, table.shard_bytes, &total))
    throw Error(Status::kOutOfMemory,
                "expected less than 2^63 bytes of memory, found more; use a smaller model");
  return table;
}

// Where a group lies, resolved once.
struct PlacedGroup {
  const Group* group = nullptr;
  bool valid = false;            // the buffer holds what the shards do
  std::byte* weights = nullptr;  // in the buffer, training type
  // In the optimization type; of a frozen group perhaps in the training type, or in the buffer.
  std::byte* weight_shard = nullptr;
  DLDataType shard_type = kFloat32;
  std::byte* gradients = nullptr;  // in the buffer, gradient type; null: frozen, or no training
  float* gradient_shard = nullptr;
};

struct PlacedStage {
  int weight_buffer = -1;
  bool copy = false;  // of a tied stage that another pipeline rank owns
  std::vector<PlacedGroup> groups;
  std::vector<distributed::Pending> gathering;  // on its way into the weight buffer
};

// Gradients of a group on their way to the shard.
struct Reduction {
  float* sum = nullptr;    // where it arrives; null: in the shard
  float* shard = nullptr;  // and what it is added to
  int64_t elements = 0;
  std::vector<float> scratch = {};    // holds the sum where the buffer cannot
  distributed::Pending pending = {};  // goes first: it may write until then
};

struct Store::Impl {
  const Layout& layout;
  int rank;
  StoreOptions options;
  distributed::Communicator *data, *tensor;        // null: one rank
  std::map<int, distributed::Communicator*> tied;  // by main stage
  int data_rank;
  BufferPlacement weight_buffers, gradient_buffers;
  Memory weight_memory, gradient_memory, shard_memory, narrow_memory;
  std::vector<std::string> states;
  std::vector<View> flats;                    // by state; weights: those in the optimization type
  std::vector<std::vector<StatePart>> parts;  // by state
  bool whole_weights = true;        // all in the optimization type, so that they are one tensor
  std::vector<int64_t> flat_begin;  // elements into the shard memory, by state
  std::vector<PlacedStage> stages;  // by stage; one that is not here has no groups
  std::vector<View> weights, gradients;  // by parameter; gradients of frozen ones have no data
  std::vector<char> has_gradient;
  std::vector<int> restored;  // by weight buffer: the stage it holds, -1: none
  std::vector<uint8_t> overwrite;
  std::vector<std::vector<Reduction>> reductions;  // under way, by gradient buffer

  Impl(const Layout& l, int r, const StoreOptions& o, StoreGroups g)
      : layout(l),
        rank(r),
        options(o),
        data(g.data),
        tensor(g.tensor),
        tied(g.tied),
        data_rank(l.world().data_rank(r)) {
    check();
    const AllocationTable table = allocation_table(layout, rank, options);
    weight_buffers = weight_placement(layout, rank, options);
    weight_memory = Memory(table.weight_buffer_bytes, "the weight buffers");
    if (options.training_mode) {
      gradient_buffers = gradient_placement(layout, rank, options);
      gradient_memory = Memory(table.gradient_buffer_bytes, "the gradient buffers");
    }
    int64_t narrow = 0;
    if (!options.wide_frozen_weights) {
      narrow = narrow_bytes(layout, rank, weight_buffers, options);
      narrow_memory = Memory(narrow, "the shards of frozen weights");
      whole_weights =
          layout.state_elements(rank, "weights") == layout.state_elements(rank, kTrainable);
    }
    shard_memory = Memory(table.shard_bytes - narrow, "the shards");
    make_flats();
    place_groups();
    make_parameter_views();
    restored.assign(weight_buffers.contents.size(), -1);
    reductions.resize(gradient_buffers.contents.size());
    overwrite.assign(layout.description().parameters.size(), 1);
  }

  void check() const {
    const World& world = layout.world();
    FASTLLM_ASSERT(rank >= 0 && rank < world.size());
    FASTLLM_ASSERT(world.data == (data ? data->size() : 1) && (!data || data->rank() == data_rank));
    FASTLLM_ASSERT(world.tensor == (tensor ? tensor->size() : 1));
    if (!is_float32(options.optimization))
      throw Error(Status::kUnsupported,
                  fmt::format("expected float32 as optimization type, found {}; set "
                              "model.distributed.optimization_dtype to float32",
                              dtype_text(options.optimization)));
    if (!is_compute_dtype(options.training))
      throw Error(Status::kUnsupported,
                  fmt::format("expected float32, bfloat16 or float16 as training type, found {}; "
                              "set model.distributed.training_dtype to one of them",
                              dtype_text(options.training)));
    for (const model::Parameter& p : layout.description().parameters)
      if (p.dtype.bits != 0 && !same_dtype(p.dtype, options.training))
        throw Error(
            Status::kUnsupported,
            fmt::format("parameter {}: expected the training type, {}, found that the model "
                        "fixes {} for it; set model.distributed.training_dtype to {}",
                        p.name, dtype_text(options.training), dtype_text(p.dtype),
                        dtype_text(p.dtype)));
  }

  void make_flats() {
    states = state_names(options);
    flats.resize(states.size());
    int64_t begin = 0;
    for (size_t s = 0; s < states.size(); ++s) {
      const int64_t elements =
          layout.state_elements(rank, options.wide_frozen_weights ? states[s] : kTrainable);
      flat_begin.push_back(begin);
      make_view(flats[s], elements ? shard_memory.data() + begin * sizeof(float) : nullptr,
                options.optimization, {elements});
      begin += elements;
    }
  }

  // By stage: where its buffer begins.
  std::vector<std::byte*> buffer_begins(const BufferPlacement& buffers, const Memory& memory,
                                        DLDataType type) const {
    std::vector<std::byte*> begins(layout.stages().size(), nullptr);
    std::byte* at = memory.data();
    for (size_t b = 0; b < buffers.contents.size(); ++b) {
      for (int stage : buffers.contents[b]) begins[stage] = at;
      if (at) at += to_bytes(buffers.elements[b], type);
    }
    return begins;
  }

  void place_groups() {
    const DLDataType gradient = gradient_type(options);
    const auto weight_begins = buffer_begins(weight_buffers, weight_memory, options.training);
    const auto gradient_begins = buffer_begins(gradient_buffers, gradient_memory, gradient);
    stages.resize(layout.stages().size());
    parts.resize(states.size());
    std::byte* narrow = narrow_memory.data();
    for (const Placed& placed : layout.on_device(rank)) {
      const int s = placed.stage;
      stages[s].weight_buffer = weight_buffers.buffer_of(s);
      stages[s].copy = placed.copy;
      int64_t begin = 0;  // in the stage's buffers; the trainable group comes first
      const std::vector<Group>& groups = layout.stages()[s].groups;
      for (int g = 0; g < int(groups.size()); ++g) {
        PlacedGroup place;
        place.group = &groups[g];
        place.weights = weight_begins[s] + to_bytes(begin, options.training);
        place_weight_shard(place, s, g, narrow);
        if (options.training_mode && !groups[g].frozen) {
          place.gradients = gradient_begins[s] + to_bytes(begin, gradient);
          place.gradient_shard = flat_data("grads") + layout.shard_begin(rank, "grads", s, g);
        }
        add_parts(place, s, g);
        stages[s].groups.push_back(place);
        begin += groups[g].elements;
      }
    }
  }

  // narrow: where the next shard in the training type goes.
  void place_weight_shard(PlacedGroup& place, int stage, int group, std::byte*& narrow) {
    const FrozenShard kept =
        place.group->frozen ? frozen_shard(weight_buffers, stage, options) : FrozenShard::kWide;
    if (kept == FrozenShard::kWide) {
      const std::string& state = options.wide_frozen_weights ? states[0] : kTrainable;
      place.weight_shard =
          shard_memory.data() +
          to_bytes(layout.shard_begin(rank, state, stage, group), options.optimization);
      return;
    }
    place.shard_type = options.training;
    if (kept == FrozenShard::kBuffer) {
      place.weight_shard = own_part(place.weights, *place.group, options.training);
      return;
    }
    place.weight_shard = narrow;
    narrow += frozen_shard_bytes(*place.group, kept, options);
  }

  void add_parts(const PlacedGroup& place, int stage, int group) {
    for (size_t s = 0; s < states.size(); ++s) {
      const int64_t begin = layout.shard_begin(rank, states[s], stage, group),
                    elements = place.group->shard_elements;
      if (begin < 0) continue;
      if (s == 0)
        parts[s].push_back({begin, elements, place.weight_shard, place.shard_type});
      else
        parts[s].push_back({begin, elements,
                            shard_memory.data() + to_bytes(flat_begin[s] + begin, kFloat32),
                            options.optimization});
    }
  }

  void make_parameter_views() {
    const size_t parameters = layout.description().parameters.size();
    weights.resize(parameters);
    gradients.resize(parameters);
    has_gradient.assign(parameters, 0);
    for (const PlacedStage& stage : stages)
      for (const PlacedGroup& place : stage.groups)
        for (const Piece& piece : place.group->pieces) {
          make_view(weights[piece.parameter],
                    place.weights + to_bytes(piece.begin, options.training), options.training,
                    piece.local);
          if (!place.gradients) continue;
          const DLDataType type = gradient_type(options);
          make_view(gradients[piece.parameter], place.gradients + to_bytes(piece.begin, type), type,
                    piece.local);
          has_gradient[piece.parameter] = 1;
        }
  }

  int state_index(const std::string& state) const {
    const auto found = std::find(states.begin(), states.end(), state);
    return found == states.end() ? -1 : int(found - states.begin());
  }

  int known(const std::string& state) const {
    const int index = state_index(state);
    if (index < 0)
      throw Error(Status::kInternal, fmt::format("expected one of the states {}, found {}",
                                                 fmt::join(states, ", "), state));
    return index;
  }

  DLTensor* flat(const std::string& state) {
    const int index = known(state);
    return index == 0 && !whole_weights ? nullptr : &flats[size_t(index)].tensor;
  }

  float* flat_data(const std::string& state) {
    const DLTensor* const whole = flat(state);
    FASTLLM_ASSERT(whole);
    return static_cast<float*>(whole->data);
  }

  // This rank's part of a group's buffer.
  std::byte* own_part(std::byte* buffer, const Group& group, DLDataType type) const {
    return buffer + to_bytes(data_rank * group.shard_elements, type);
  }

  // Copies of one data rank are done at once.
  void begin_restore(int stage) {
    PlacedStage& placed = stages[stage];
    int& held = restored[placed.weight_buffer];
    if (held >= 0 && held != stage)
      for (PlacedGroup& place : stages[held].groups) place.valid = false;
    held = stage;
    for (PlacedGroup& place : placed.groups) {
      if (place.valid) continue;
      const Group& group = *place.group;
      std::byte* const own = own_part(place.weights, group, options.training);
      if (own != place.weight_shard)
        copy(own, options.training, place.weight_shard, place.shard_type, group.shard_elements);
      if (data) {
        placed.gathering.push_back(
            data->all_gather({own, group.shard_elements, options.training},
                             {place.weights, group.elements, options.training}));
      }
      place.valid = true;
    }
  }

  void restore(int stage) {
    begin_restore(stage);
    for (distributed::Pending& pending : std::exchange(stages[stage].gathering, {})) pending.wait();
  }

  bool is_restored(int stage) const {
    const PlacedStage& placed = stages[stage];
    return restored[placed.weight_buffer] == stage && placed.gathering.empty() &&
           std::all_of(placed.groups.begin(), placed.groups.end(),
                       [](const PlacedGroup& place) { return place.valid; });
  }

  void invalidate(bool frozen_too) {
    for (PlacedStage& stage : stages)
      for (PlacedGroup& place : stage.groups)
        if (frozen_too || !place.group->frozen) place.valid = false;
  }

  // A gradient that nobody wrote is zero where that may be (a copy is for one parameter of its
  // stage), and an error where it says that something was forgotten.
  void settle_untouched(const Group& group, bool copy) {
    for (const Piece& piece : group.pieces) {
      if (!overwrite[piece.parameter]) continue;
      const model::Parameter& p = layout.description().parameters[piece.parameter];
      if (!copy && !(p.flags & FASTLLM_PARAM_UNUSED))
        throw Error(Status::kInternal,
                    fmt::format("parameter {}: expected a gradient in every step, found none since "
                                "no loss depends on it; flag it "
                                "PARAM_UNUSED, or freeze it with a learning-rate scale of 0",
                                p.name));
      const DLTensor& gradient = gradients[piece.parameter].tensor;
      fill_zero(gradient.data, gradient.dtype, piece.end - piece.begin);
    }
  }

  void reduce(int stage, bool accumulate) {
    for (const PlacedGroup& place : stages[stage].groups) {
      if (!place.gradients) continue;
      settle_untouched(*place.group, stages[stage].copy);
      if (tensor) sum_partial(place);
      if (data)
        begin_reduction(stage, place, accumulate);
      else
        (accumulate ? add : copy)(place.gradient_shard, kFloat32, place.gradients,
                                  gradient_type(options), place.group->count);
    }
    reset(stage);
  }

  bool partial(const model::Parameter& p) const {
    if (is_split(p, layout.world())) return false;
    return (p.flags & FASTLLM_PARAM_PARTIAL_ALWAYS) ||
           (options.sequence_tensor && (p.flags & FASTLLM_PARAM_PARTIAL));
  }

  // Neighbours in one sum: the order in a group puts them side by side.
  void sum_partial(const PlacedGroup& place) {
    const DLDataType type = gradient_type(options);
    std::vector<distributed::Pending> sums;
    const std::vector<Piece>& pieces = place.group->pieces;
    for (size_t first = 0, last; first < pieces.size(); first = last) {
      last = first + 1;
      const auto is_partial = [&](size_t piece) {
        return partial(layout.description().parameters[size_t(pieces[piece].parameter)]);
      };
      if (!is_partial(first)) continue;
      while (last < pieces.size() && is_partial(last)) ++last;
      sums.push_back(tensor->all_reduce({place.gradients + to_bytes(pieces[first].begin, type),
                                         pieces[last - 1].end - pieces[first].begin, type},
                                        distributed::Reduce::kSum));
    }
    for (distributed::Pending& sum : sums) sum.wait();
  }

  void begin_reduction(int stage, const PlacedGroup& place, bool accumulate) {
    const Group& group = *place.group;
    const DLDataType type = gradient_type(options);
    // Another stage may have left something there.
    fill_zero(place.gradients + to_bytes(group.count, type), type, group.elements - group.count);
    Reduction reduction{.shard = place.gradient_shard, .elements = group.shard_elements};
    if (accumulate && is_float32(type)) {
      reduction.sum = reinterpret_cast<float*>(own_part(place.gradients, group, type));
    } else if (accumulate) {  // summed, and added, in float32
      reduction.scratch.resize(size_t(group.shard_elements));
      reduction.sum = reduction.scratch.data();
    }
    reduction.pending = data->reduce_scatter(
        {place.gradients, group.elements, type},
        {reduction.sum ? reduction.sum : reduction.shard, group.shard_elements, kFloat32},
        distributed::Reduce::kMean);
    reductions[size_t(gradient_buffers.buffer_of(stage))].push_back(std::move(reduction));
  }

  // In the order in which they began: sums into one shard keep theirs.
  void await_reductions(std::vector<Reduction>& buffer) {
    for (Reduction& reduction : std::exchange(buffer, {})) {
      reduction.pending.wait();
      if (reduction.sum)
        add(reduction.shard, kFloat32, reduction.sum, kFloat32, reduction.elements);
    }
  }

  void await_all_reductions() {
    for (std::vector<Reduction>& buffer : reductions) await_reductions(buffer);
  }

  // Sums are made in the order of the ranks: the same bits, and so the same updates, on all of them.
  void reduce_tied() {
    for (const auto& [stage, group] : tied)
      if (stages[stage].copy) reduce(stage, false);
    await_all_reductions();
    std::vector<distributed::Pending> pending;
    for (const auto& [stage, group] : tied)
      for (const PlacedGroup& place : stages[stage].groups)
        if (place.gradients)
          pending.push_back(
              group->all_reduce({place.gradient_shard, place.group->shard_elements, kFloat32},
                                distributed::Reduce::kSum));
    for (distributed::Pending& work : pending) work.wait();
  }

  void reset(int stage) {
    for (const Group& group : layout.stages()[stage].groups)
      for (const Piece& piece : group.pieces) overwrite[piece.parameter] = 1;
  }
};

Store::Store(const Layout& layout, int rank, const StoreOptions& options, StoreGroups groups)
    : impl_(std::make_unique<Impl>(layout, rank, options, groups)) {}
Store::~Store() = default;

const Layout& Store::layout() const { return impl_->layout; }
int Store::rank() const { return impl_->rank; }
const StoreOptions& Store::options() const { return impl_->options; }
const DLTensor* Store::weight(int parameter) const { return &impl_->weights.at(parameter).tensor; }
DLTensor* Store::gradient(int parameter) const {
  return impl_->has_gradient.at(parameter) ? &impl_->gradients[parameter].tensor : nullptr;
}
const std::vector<std::string>& Store::states() const { return impl_->states; }
bool Store::has_state(const std::string& state) const { return impl_->state_index(state) >= 0; }
DLTensor* Store::flat(const std::string& state) { return impl_->flat(state); }
float* Store::flat_data(const std::string& state) { return impl_->flat_data(state); }
const std::vector<StatePart>& Store::parts(const std::string& state) const {
  return impl_->parts[size_t(impl_->known(state))];
}
void Store::restore(int stage) { impl_->restore(stage); }
bool Store::restored(int stage) const { return impl_->is_restored(stage); }
void Store::invalidate() { impl_->invalidate(true); }
void Store::invalidate_trainable() { impl_->invalidate(false); }
void Store::prefetch(int stage) {
  if (impl_->data) impl_->begin_restore(stage);
}
void Store::reduce(int stage, bool accumulate) { impl_->reduce(stage, accumulate); }
void Store::await_gradient_buffer(int stage) {
  if (const int buffer = impl_->gradient_buffers.buffer_of(stage); buffer >= 0)
    impl_->await_reductions(impl_->reductions[size_t(buffer)]);
}
void Store::await_reductions() { impl_->await_all_reductions(); }
void Store::reduce_tied() { impl_->reduce_tied(); }
void Store::restore_copies() {
  for (size_t stage = 0; stage < impl_->stages.size(); ++stage)
    if (impl_->stages[stage].copy) impl_->restore(int(stage));
}
void Store::reset_gradients(int stage) { impl_->reset(stage); }
std::vector<uint8_t>& Store::overwrite_flags() { return impl_->overwrite; }
const BufferPlacement& Store::weight_buffers() const { return impl_->weight_buffers; }
const BufferPlacement& Store::gradient_buffers() const { return impl_->gradient_buffers; }

void Store::zero_optimizer_and_gradients() {
  if (impl_->states.size() < 2) return;
  impl_->shard_memory.zero(impl_->flat_begin[1] * int64_t(sizeof(float)),
                           impl_->shard_memory.bytes());
}

}  // namespace fastllm::shard
