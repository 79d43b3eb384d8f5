// Walks a schedule over micro-batches. All names became numbers in Wiring; what is left per call is
// filling arrays of pointers. A value lives while somebody may still need it: its readers until
// their forward, or their backward when they have one; its own layer until backward when it is
// flagged KEEP. The count is in Held::uses; memory goes back to the pool at 0.
#include "core/train/executor/executor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/profile.hpp"
#include "core/base/tensor.hpp"
#include "core/distributed/sums.hpp"
#include "core/shard/elements.hpp"
#include "core/train/executor/activation_pool.hpp"
#include "core/train/executor/crossings.hpp"
#include "core/train/executor/handover.hpp"
#include "core/train/executor/pass.hpp"
#include "core/train/executor/random.hpp"
#include "core/train/executor/value_shape.hpp"
#include "core/train/executor/wiring.hpp"

namespace fastllm::train {
namespace {

using model::Phase;

struct Extra {  // the gradient of a further reader of a value
  int value = 0;
  int64_t bytes = 0;
  DLTensor tensor{};
};

}  // namespace

struct Executor::Impl {
  model::Model& model;
  shard::Store& store;
  const ExecutorOptions options;
  const model::Description& description;
  const Wiring wiring;
  const Crossings crossings;
  const std::vector<char> here;      // by layer: this rank runs it
  const std::vector<int> uses_here;  // by value: readers on this rank, and the way to the next
  ActivationPool pool;               // outlives the passes, whose memory goes back to it
  Handover handover;
  std::vector<Pass> passes;             // by micro-batch
  std::vector<double> losses, metrics;  // sums of this step
  // Of the step that runs.
  const StepInput* input = nullptr;
  bool training = false;
  Observer* observer = nullptr;
  std::vector<char> make, show, show_gradient;  // by value: is made at all; its observer sees it
  // Arguments of the call that is being made.
  std::vector<const DLTensor*> in, d_out;
  std::vector<DLTensor*> out, d_in;
  std::vector<uint8_t> overwrite;
  std::vector<Extra> extra;  // added up after the call

  Impl(model::Model& m, shard::Store& s, const ExecutorOptions& opt)
      : model(m),
        store(s),
        options(opt),
        description(m.description()),
        wiring(make_wiring(description)),
        crossings(make_crossings(wiring, store.layout())),
        here(layers_on(wiring, store.layout(), pipeline_rank())),
        uses_here(uses_on(wiring, store.layout(), crossings, pipeline_rank())),
        handover(wiring, crossings, uses_here, pool, options.pipeline) {
    losses.resize(wiring.losses.size());
    metrics.resize(wiring.metrics.size());
    bind();
  }

  ~Impl() { clear(); }

  void bind() {
    std::vector<const DLTensor*> weights;
    std::vector<DLTensor*> gradients;
    for (int l = 0; l < int(description.layers.size()); ++l) {
      if (!here[l]) continue;
      weights.clear();
      gradients.clear();
      for (int p : description.layers[l].parameters) {
        weights.push_back(store.weight(p));
        gradients.push_back(store.gradient(p));
      }
      model.bind(l, weights, gradients);
    }
  }

  // ---------------------------------------------------------------- values

  bool split(const Value& value) const {
    return options.sequence_tensor && (value.port->flags & FASTLLM_PORT_SPLIT);
  }

  void shape(Held& held, const Value& value, const data::Batch& batch) {
    int64_t samples = batch.samples, length = batch.length;
    if (split(value)) {  // this rank's part of the row of all tokens
      const int ranks = store.layout().world().tensor;
      FASTLLM_ASSERT(samples * length % ranks == 0);
      length = samples * length / ranks;
      samples = 1;
    }
    held.shape.resize(value.port->shape.size());
    held.strides.resize(held.shape.size());
    held.elements = 1;
    for (size_t k = held.shape.size(); k-- > 0;) {
      const int64_t dim = extent(value.port->shape[k], samples, length);
      held.shape[k] = dim;
      held.strides[k] = held.elements;
      if (__builtin_mul_overflow(held.elements, dim, &held.elements)) held.elements = -1;
      if (held.elements < 0) break;
    }
    const DLDataType type = value_type(value, store.options().training);
    if (held.elements < 0 ||
        __builtin_mul_overflow(held.elements, int64_t(type.bits / 8), &held.bytes))
      throw Error(
          Status::kOutOfMemory,
          fmt::format(
              "output {}: expected less than 2^63 bytes, found more; lower batch.micro_batch_size",
              value.name));
    for (DLTensor* tensor : {&held.tensor, &held.gradient}) {
      tensor->device = {kDLCPU, 0};
      tensor->ndim = int32_t(held.shape.size());
      tensor->dtype = type;
      tensor->shape = held.shape.data();
      tensor->strides = held.strides.data();
    }
  }

  void begin(Pass& pass, const data::Batch& batch, int64_t index) {
    pass.batch = &batch;
    pass.index = index;
    pass.preprocessed = false;
    pass.values.resize(wiring.values.size());
    pass.saved.resize(wiring.layers.size());
    pass.kept.assign(wiring.layers.size(), 0);
    if (pass.samples != batch.samples || pass.length != batch.length) {
      for (size_t v = 0; v < wiring.values.size(); ++v)
        shape(pass.values[v], wiring.values[v], batch);
      pass.samples = batch.samples;
      pass.length = batch.length;
    }
    const int64_t tokens = batch.samples * batch.length;
    pass.batch_shape[0] = batch.samples;
    pass.batch_shape[1] = pass.batch_strides[0] = batch.length;
    pass.batch_strides[1] = 1;
    pass.cu_shape[0] = int64_t(batch.cu_seqlens.size());
    const auto grid = [&batch](int entry) -> const std::vector<int64_t>* {
      const std::vector<int64_t>* grids[] = {&batch.tokens, &batch.labels, &batch.positions,
                                             &batch.documents};
      if (entry < kCuSeqlens) return grids[entry];
      const auto further = size_t(entry - kFurtherLabels);
      return further < batch.further_labels.size() ? &batch.further_labels[further].labels
                                                   : nullptr;
    };
    pass.entries.resize(size_t(kFurtherLabels + wiring.predicted_tokens - 1));
    for (int e = 0; e < int(pass.entries.size()); ++e) {
      const std::vector<int64_t>* const values = e == kCuSeqlens ? nullptr : grid(e);
      if (!values) continue;  // refused below when a layer reads it
      pass.entries[e] = {const_cast<int64_t*>(values->data()),
                         {kDLCPU, 0},
                         2,
                         {kDLInt, 64, 1},
                         pass.batch_shape,
                         pass.batch_strides,
                         0};
    }
    pass.entries[kCuSeqlens] = {const_cast<int32_t*>(batch.cu_seqlens.data()),
                                {kDLCPU, 0},
                                1,
                                {kDLInt, 32, 1},
                                pass.cu_shape,
                                pass.cu_strides,
                                0};
    for (const WiredLayer& layer : wiring.layers)
      for (const Input& i : layer.inputs) {
        if (i.value >= 0) continue;
        const std::vector<int64_t>* const values = i.entry == kCuSeqlens ? nullptr : grid(i.entry);
        const size_t found = i.entry == kCuSeqlens ? batch.cu_seqlens.size()
                             : values              ? values->size()
                                                   : 0;
        if (i.entry == kCuSeqlens ? found > 0 : found == size_t(tokens)) continue;
        throw Error(Status::kInternal,
                    fmt::format("expected a batch of {} tokens with the entries that the model "
                                "reads, found {} with {} values",
                                tokens, batch_entry_name(i.entry), found));
      }
  }

  void release(Held& held, int uses = 1) {
    held.uses -= uses;
    FASTLLM_ASSERT(held.uses >= 0);
    if (held.uses > 0) return;
    pool.give(held.tensor.data, held.bytes);
    held.tensor.data = nullptr;
  }

  void release_gradient(Held& held) {
    pool.give(held.gradient.data, held.bytes);
    held.gradient.data = nullptr;
  }

  // After a step, and after a call that failed in the middle of one.
  void clear() {
    handover.clear();
    for (Pass& pass : passes) {
      for (model::Saved& saved : pass.saved) saved = model::Saved();
      for (Held& held : pass.values) {
        release(held, held.uses);
        release_gradient(held);
      }
    }
    for (const Extra& e : extra) pool.give(e.tensor.data, e.bytes);
    extra.clear();
  }

  // ---------------------------------------------------------------- calls

  fastllm_call make_call(const Pass& pass, int layer, uint32_t flags) const {
    fastllm_call call{};
    call.size = sizeof call;
    call.flags = flags | (options.sequence_tensor ? FASTLLM_SEQUENCE_TENSOR : 0);
    call.device = {kDLCPU, 0};
    call.seed = splitmix(options.seed);
    for (uint64_t part : {uint64_t(input->step), uint64_t(pass.index), uint64_t(layer),
                          uint64_t(batch_data_rank())})
      call.seed = splitmix(call.seed ^ part);
    call.step = input->step;
    call.micro_batch = pass.index;
    call.position = pass.batch->first;
    call.length = pass.batch->whole_length();
    return call;
  }

  int data_ranks() const { return store.layout().world().data; }
  int batch_data_rank() const { return store.layout().world().batch_data_rank(store.rank()); }
  int pipeline_rank() const { return store.layout().world().pipeline_rank(store.rank()); }

  void fill_inputs(Pass& pass, const WiredLayer& layer) {
    in.clear();
    for (const Input& i : layer.inputs)
      in.push_back(i.value < 0 ? &pass.entries[i.entry] : &pass.values[i.value].tensor);
  }

  // `again`: only to make what backward needs; nobody reads the outputs.
  void forward(Pass& pass, int l, bool save, bool again) {
    const profile::Span span(again ? "recompute" : "forward", description.layers[l].name, l,
                             pass.index);
    const WiredLayer& layer = wiring.layers[l];
    fill_inputs(pass, layer);
    out.clear();
    for (int v = layer.first_value; v < layer.first_value + layer.values; ++v) {
      Held& held = pass.values[v];
      if (!(again ? wiring.values[v].asked : make[v])) {
        out.push_back(nullptr);
        continue;
      }
      FASTLLM_ASSERT(held.uses == 0);  // made again only after everybody who read it is through
      held.tensor.data = pool.take(held.bytes);
      held.uses = 1;
      out.push_back(&held.tensor);
    }
    const uint32_t flags = (save ? FASTLLM_SAVE : 0) | (training ? 0 : FASTLLM_EVAL);
    pass.saved[l] = model.forward(l, make_call(pass, l, flags), in, out);
    pass.kept[l] = save;
    for (int v = layer.first_value; v < layer.first_value + layer.values; ++v) {
      Held& held = pass.values[v];
      const Value& value = wiring.values[v];
      if (held.uses == 0) continue;
      if (!again) {
        report(value, held);
        if (show[v]) tell(pass, value, held.tensor, false);
        held.uses += uses_here[v];
      }
      if (save && (value.port->flags & FASTLLM_PORT_KEEP)) ++held.uses;
      release(held);
    }
    if (again || (training && layer.backward)) return;  // inputs stay for backward
    release_inputs(pass, layer);
  }

  void release_inputs(Pass& pass, const WiredLayer& layer) {
    for (const Input& i : layer.inputs)
      if (i.value >= 0) release(pass.values[i.value]);
  }

  void report(const Value& value, const Held& held) {
    if (value.loss >= 0) losses[value.loss] += *static_cast<const float*>(held.tensor.data);
    if (value.metric >= 0) metrics[value.metric] += *static_cast<const float*>(held.tensor.data);
  }

  void tell(const Pass& pass, const Value& value, const DLTensor& tensor, bool gradient) const {
    observer->see({{value.layer, value.output, gradient}, pass.index, tensor, pool.bytes_in_use()});
  }

  // d loss / d output where backward begins: the loss of the step is the sum over valid labels
  // divided by their number over all ranks (gradients are averaged over data ranks, hence their
  // number), or the mean over micro-batches.
  float loss_gradient(const Value& value) const {
    const Reported& loss = wiring.losses[value.loss];
    if (!loss.sum) return float(input->loss_scale / double(input->micro_batches.size()));
    const int64_t labels = input->valid(loss.predicted);
    if (labels == 0) return 0;
    return float(input->loss_scale * data_ranks() / double(labels));
  }

  void backward(Pass& pass, int l) {
    const WiredLayer& layer = wiring.layers[l];
    if (!layer.backward) return;
    const profile::Span span("backward", description.layers[l].name, l, pass.index);
    if (!pass.kept[l]) {
      FASTLLM_ASSERT(options.recompute);
      forward(pass, l, true, true);
    }
    d_out.clear();
    for (int v = layer.first_value; v < layer.first_value + layer.values; ++v) {
      Held& held = pass.values[v];
      if (wiring.values[v].loss >= 0) {
        const bool first = !held.gradient.data;
        if (first) held.gradient.data = pool.take(held.bytes);
        float& gradient = *static_cast<float*>(held.gradient.data);
        gradient = (first ? 0 : gradient) + loss_gradient(wiring.values[v]);
      }
      if (held.gradient.data && show_gradient[v]) tell(pass, wiring.values[v], held.gradient, true);
      d_out.push_back(wiring.values[v].gradient ? &held.gradient : nullptr);
    }
    fill_gradients(pass, layer);
    const std::vector<int>& parameters = description.layers[l].parameters;
    std::vector<uint8_t>& flags = store.overwrite_flags();
    overwrite.clear();
    for (int p : parameters) overwrite.push_back(flags[p]);
    fastllm_call call = make_call(pass, l, 0);
    call.overwrite = overwrite.data();
    model.backward(l, call, std::move(pass.saved[l]), d_out, d_in);
    for (int p : parameters) flags[p] = 0;
    add_gradients(pass);
    for (int v = layer.first_value; v < layer.first_value + layer.values; ++v) {
      release_gradient(pass.values[v]);
      const bool keep = wiring.values[v].port->flags & FASTLLM_PORT_KEEP;
      if (keep && pass.values[v].uses > 0) release(pass.values[v]);
    }
    release_inputs(pass, layer);
  }

  // The first reader of a value writes its gradient in place; others write beside it and are added.
  void fill_gradients(Pass& pass, const WiredLayer& layer) {
    d_in.clear();
    FASTLLM_ASSERT(extra.empty());
    extra.reserve(layer.inputs.size());  // pointers into it are handed out below
    for (const Input& i : layer.inputs) {
      if (!i.gradient) {
        d_in.push_back(nullptr);
        continue;
      }
      Held& held = pass.values[i.value];
      if (!held.gradient.data) {
        held.gradient.data = pool.take(held.bytes);
        d_in.push_back(&held.gradient);
      } else {
        extra.push_back({i.value, held.bytes, held.gradient});
        extra.back().tensor.data = nullptr;
        extra.back().tensor.data = pool.take(held.bytes);
        d_in.push_back(&extra.back().tensor);
      }
    }
  }

  void add_gradients(Pass& pass) {
    for (const Extra& e : extra) {
      Held& held = pass.values[e.value];
      const DLDataType type = held.tensor.dtype;
      shard::add(held.gradient.data, type, e.tensor.data, type, held.elements);
      pool.give(e.tensor.data, e.bytes);
    }
    extra.clear();
  }

  // ---------------------------------------------------------------- steps

  void forward_stage(Pass& pass, const shard::Stage& stage, bool backward_is_next) {
    if (!pass.preprocessed) {
      for (int l = 0; l < int(wiring.layers.size()) && wiring.layers[l].every_stage; ++l)
        forward(pass, l, false, false);
      pass.preprocessed = true;
    }
    const int end = stage.first_layer + stage.layer_count;
    for (int l = stage.first_layer; l < end; ++l) {
      // The layer whose backward comes next keeps what it has instead of making it again.
      const bool save = training && wiring.layers[l].backward &&
                        (!options.recompute || (backward_is_next && l + 1 == end));
      forward(pass, l, save, false);
    }
  }

  void ask(Observer* who) {
    using Wants = Observer::Wants;
    observer = who;
    const size_t count = wiring.values.size();
    make.assign(count, 0);
    show.assign(count, 0);
    show_gradient.assign(count, 0);
    for (size_t v = 0; v < count; ++v) {
      const Value& value = wiring.values[v];
      const auto wants = [&](bool gradient) {
        return observer && here[value.layer]
                   ? observer->wants({value.layer, value.output, gradient})
                   : Wants::kNothing;
      };
      const Wants output = wants(false);
      show[v] = output != Wants::kNothing;
      make[v] = value.asked || output == Wants::kAlways;
      show_gradient[v] = wants(true) != Wants::kNothing;
    }
  }

  StepOutput run(const StepInput& step_input, const std::vector<model::Step>& schedule, bool train,
                 Observer* who) {
    input = &step_input;
    training = train;
    ask(who);
    if (training && !store.options().training_mode)
      throw Error(Status::kInternal,
                  "expected a store with gradients for training, found one for inference");
    if (training && wiring.losses.empty())
      throw Error(Status::kInternal,
                  "expected an output flagged PORT_LOSS to train on, found none in the model");
    if (passes.size() < input->micro_batches.size()) passes.resize(input->micro_batches.size());
    std::fill(losses.begin(), losses.end(), 0);
    std::fill(metrics.begin(), metrics.end(), 0);
    try {
      for (size_t b = 0; b < input->micro_batches.size(); ++b)
        begin(passes[b], *input->micro_batches[b], int64_t(b));
      if (training)
        for (const shard::Stage& stage : store.layout().stages())
          store.reset_gradients(stage.index);
      store.restore_copies();
      walk(schedule);
      handover.finish();
      if (training) {
        const profile::Span wait("wait", "gradients");
        store.await_reductions();
        store.reduce_tied();
      }
      check_finished();
      for (distributed::Communicator* group : {options.data, options.pipeline}) {
        distributed::sum_over(group, losses);
        distributed::sum_over(group, metrics);
      }
    } catch (...) {
      clear();
      throw;
    }
    return result();
  }

  // The weights that are restored next are fetched while this step computes, when nothing computes in
  // their buffer until then.
  void prefetch_after(const std::vector<model::Step>& schedule, size_t step) {
    const shard::BufferPlacement& buffers = store.weight_buffers();
    for (size_t next = step + 1; next < schedule.size(); ++next) {
      if (!schedule[next].restore_before) continue;
      const int buffer = buffers.buffer_of(schedule[next].stage);
      for (size_t s = step; s < next; ++s)
        if (buffers.buffer_of(schedule[s].stage) == buffer) return;
      return store.prefetch(schedule[next].stage);
    }
  }

  void walk(const std::vector<model::Step>& schedule) {
    for (size_t s = 0; s < schedule.size(); ++s) {
      const model::Step& step = schedule[s];
      FASTLLM_ASSERT(step.micro_batch >= 0 &&
                     size_t(step.micro_batch) < input->micro_batches.size());
      const shard::Stage& stage = store.layout().stages().at(step.stage);
      Pass& pass = passes[step.micro_batch];
      const profile::Span span("run", step.phase == Phase::kForward ? "forward" : "backward",
                               int64_t(s), step.micro_batch);
      if (step.restore_before) {
        const profile::Span restore("restore", "weights", step.stage);
        store.restore(step.stage);
        prefetch_after(schedule, s);
      }
      FASTLLM_ASSERT(store.restored(step.stage));
      handover.begin_receives(schedule, s, passes);
      handover.receive(schedule, s, pass);
      if (step.phase == Phase::kForward) {
        const model::Step* next = s + 1 < schedule.size() ? &schedule[s + 1] : nullptr;
        const bool turns = next && next->phase == Phase::kBackward && next->stage == step.stage &&
                           next->micro_batch == step.micro_batch;
        forward_stage(pass, stage, turns);
        handover.send(step, pass);
        continue;
      }
      FASTLLM_ASSERT(training);
      store.await_gradient_buffer(step.stage);
      for (int l = stage.first_layer + stage.layer_count - 1; l >= stage.first_layer; --l)
        backward(pass, l);
      handover.send(step, pass);
      if (step.reduce_after) {
        const profile::Span reduce("reduce", "gradients", step.stage);
        store.reduce(step.stage, step.reduce_accumulates);
      }
    }
  }

  // Every value was used as often as the wiring says and nothing waits for a backward: all layers ran, each once.
  void check_finished() const {
    for (const Pass& pass : passes) {
      for (size_t v = 0; v < pass.values.size(); ++v)
        if (pass.values[v].uses > 0 || pass.values[v].gradient.data)
          throw Error(
              Status::kInternal,
              fmt::format("expected the schedule to use up output {}, found it left over in "
                          "micro-batch {}",
                          wiring.values[v].name, pass.index));
      for (size_t l = 0; l < pass.saved.size(); ++l)
        if (pass.saved[l])
          throw Error(Status::kInternal,
                      fmt::format("expected the schedule to run backward of layer {}, found it "
                                  "waiting in micro-batch {}",
                                  description.layers[l].name, pass.index));
    }
  }

  StepOutput result() const {
    StepOutput result;
    auto reduce = [&](const std::vector<Reported>& names, const std::vector<double>& sums,
                      std::map<std::string, double>& to) {
      for (size_t i = 0; i < names.size(); ++i) {
        const double parts = names[i].sum ? double(input->valid(names[i].predicted))
                                          : double(input->micro_batches.size()) * data_ranks();
        to[names[i].name] = parts > 0 ? sums[i] / parts / names[i].layers : 0;
      }
    };
    reduce(wiring.losses, losses, result.losses);
    reduce(wiring.metrics, metrics, result.metrics);
    return result;
  }
};

void StepInput::add(const data::Batch& batch) {
  micro_batches.push_back(&batch);
  valid_labels += batch.valid_labels;
  further_valid_labels.resize(batch.further_labels.size());
  for (size_t k = 0; k < batch.further_labels.size(); ++k)
    further_valid_labels[k] += batch.further_labels[k].valid;
}

Executor::Executor(model::Model& model, shard::Store& store, const ExecutorOptions& options)
    : impl_(std::make_unique<Impl>(model, store, options)) {}
Executor::~Executor() = default;

StepOutput Executor::train(const StepInput& input, const std::vector<model::Step>& schedule,
                           Observer* observer) {
  return impl_->run(input, schedule, true, observer);
}
StepOutput Executor::evaluate(const StepInput& input, const std::vector<model::Step>& schedule,
                              Observer* observer) {
  return impl_->run(input, schedule, false, observer);
}
int64_t Executor::peak_activation_bytes() const { return impl_->pool.peak_bytes(); }
int64_t Executor::activation_bytes() const { return impl_->pool.bytes_in_use(); }
int64_t Executor::activation_allocations() const { return impl_->pool.allocations(); }

model::ScheduleOptions schedule_options(const shard::Store& store, int depth_first,
                                        int breadth_first, bool training) {
  model::ScheduleOptions options;
  options.stages = int(store.layout().stages().size());
  options.depth_first = depth_first;
  options.breadth_first = breadth_first;
  options.training = training;
  options.lowest_backward_stage = store.layout().lowest_trainable_stage();
  options.pipeline = store.layout().world().pipeline;
  options.pipeline_rank = store.layout().world().pipeline_rank(store.rank());
  for (int stage = 0; stage < options.stages; ++stage) {
    options.weight_buffer.push_back(store.weight_buffers().buffer_of(stage));
    if (training) options.gradient_buffer.push_back(store.gradient_buffers().buffer_of(stage));
  }
  return options;
}

}  // namespace fastllm::train
