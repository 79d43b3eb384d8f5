// One layer has memory at a time: weights, gradients, inputs and outputs as the executor would give
// them, filled with small numbers. What a preprocessing layer makes is made by it.
#include "core/plan/layer_timer.hpp"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/half.hpp"
#include "core/base/tensor.hpp"
#include "core/train/executor/value_shape.hpp"

namespace fastllm::plan {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCalls = 3;  // that count, after one that does not

struct Tensor {  // neither moves
  DLTensor view{};
  std::vector<int64_t> shape, strides;
  std::unique_ptr<std::byte[]> memory;
  int64_t elements = 1;

  Tensor(std::vector<int64_t> dimensions, DLDataType type) : shape(std::move(dimensions)) {
    strides = row_major_strides(shape);
    for (int64_t dimension : shape) elements *= dimension;
    memory = std::make_unique<std::byte[]>(size_t(elements) * type.bits / 8);
    view.data = elements > 0 ? memory.get() : nullptr;
    view.device = {kDLCPU, 0};
    view.ndim = int32_t(shape.size());
    view.dtype = type;
    view.shape = shape.data();
    view.strides = strides.data();
  }
  Tensor(const Tensor&) = delete;

  // Numbers without a pattern that would be kind to a cache or a branch, of that size at most.
  void fill(float size) {
    uint32_t state = 12345;
    for (int64_t i = 0; i < elements; ++i) {
      state = state * 1664525u + 1013904223u;
      const float value = size * (float(state >> 8) / float(1 << 23) - 1);
      if (view.dtype.bits == 32)
        reinterpret_cast<float*>(memory.get())[i] = value;
      else
        reinterpret_cast<uint16_t*>(memory.get())[i] =
            view.dtype.code == kDLBfloat ? to_bfloat16(value) : to_float16(value);
    }
  }
};
using Tensors = std::vector<std::unique_ptr<Tensor>>;

double median(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

template <class Call>
double seconds_of(Call&& call) {
  const auto begin = Clock::now();
  call();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Bytes that the allocator has given out.
int64_t heap_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return int64_t(info.uordblks) + int64_t(info.hblkhd);
}

}  // namespace

struct LayerTimer::Impl {
  model::Model& model;
  const Wires& wires;
  const MicroBatch micro_batch;
  const std::function<void()> together;
  const std::function<int64_t()> idle_bytes;
  const model::Description& description;
  const train::Wiring& wiring;
  std::map<std::string, LayerTime> known;
  std::map<int, std::unique_ptr<Tensor>> preprocessed;  // by value

  // What tells kinds of layers apart.
  std::string kind_of(int l) const {
    const model::Layer& layer = description.layers[size_t(l)];
    fmt::memory_buffer kind;
    const auto add = [&kind](auto value) {
      fmt::format_to(std::back_inserter(kind), "{},", value);
    };
    add(wiring.layers[size_t(l)].backward);
    for (const auto* ports : {&layer.inputs, &layer.outputs})
      for (const model::Port& port : *ports) {
        add(port.name);
        add(port.flags);
        for (int64_t dimension : port.shape) add(dimension);
      }
    for (const train::Input& input : wiring.layers[size_t(l)].inputs) add(input.gradient);
    for (int p : layer.parameters) {
      const model::Parameter& parameter = description.parameters[size_t(p)];
      add(parameter.frozen());
      for (int64_t dimension : parameter.shape) add(dimension);
    }
    add(model.flops(l, 1, micro_batch.length).forward);
    return fmt::to_string(kind);
  }

  std::unique_ptr<Tensor> value_tensor(int v) const {
    const train::Value& value = wiring.values[size_t(v)];
    std::vector<int64_t> shape;
    for (int64_t described : value.port->shape)
      shape.push_back(train::extent(described, micro_batch.samples, micro_batch.length));
    return std::make_unique<Tensor>(std::move(shape), train::value_type(value, wires.training));
  }

  std::unique_ptr<Tensor> batch_tensor(int entry) const {
    const int64_t samples = micro_batch.samples, length = micro_batch.length;
    if (entry == train::kCuSeqlens) {
      auto tensor =
          std::make_unique<Tensor>(std::vector<int64_t>{samples + 1}, DLDataType{kDLInt, 32, 1});
      auto* values = reinterpret_cast<int32_t*>(tensor->memory.get());
      for (int64_t s = 0; s <= samples; ++s) values[s] = int32_t(s * length);
      return tensor;
    }
    auto tensor =
        std::make_unique<Tensor>(std::vector<int64_t>{samples, length}, DLDataType{kDLInt, 64, 1});
    auto* values = reinterpret_cast<int64_t*>(tensor->memory.get());
    for (int64_t i = 0; i < samples * length; ++i)
      values[i] = entry == train::kPositions   ? i % length
                  : entry == train::kDocuments ? 0
                                               : i % 2;  // tokens that every model has
    return tensor;
  }

  const DLTensor* input_of(const train::Input& input, Tensors& owned) {
    if (input.value < 0) {
      owned.push_back(batch_tensor(input.entry));
    } else if (const int source = wiring.values[size_t(input.value)].layer;
               wiring.layers[size_t(source)].every_stage) {
      return &preprocess(input.value);
    } else {
      owned.push_back(value_tensor(input.value));
      owned.back()->fill(1);
    }
    return &owned.back()->view;
  }

  const DLTensor& preprocess(int v) {
    if (!preprocessed.contains(v)) {
      const int l = wiring.values[size_t(v)].layer;
      const train::WiredLayer& layer = wiring.layers[size_t(l)];
      Tensors owned;
      std::vector<const DLTensor*> in;
      for (const train::Input& input : layer.inputs) in.push_back(input_of(input, owned));
      std::vector<DLTensor*> out;
      for (int o = layer.first_value; o < layer.first_value + layer.values; ++o)
        out.push_back(&(preprocessed[o] = value_tensor(o))->view);
      model.bind(l, {}, {});
      model.forward(l, call_of(0), in, out);
    }
    return preprocessed.at(v)->view;
  }

  fastllm_call call_of(uint32_t flags) const {
    fastllm_call call{};
    call.size = sizeof call;
    call.flags = flags;
    call.device = {kDLCPU, 0};
    call.seed = 1;
    call.length = micro_batch.length;
    return call;
  }

  LayerTime run(int l) {
    const train::WiredLayer& layer = wiring.layers[size_t(l)];
    Tensors owned;
    std::vector<const DLTensor*> weights, in, d_out;
    std::vector<DLTensor*> gradients, out, d_in;
    for (int p : description.layers[size_t(l)].parameters) {
      const model::Parameter& parameter = description.parameters[size_t(p)];
      owned.push_back(std::make_unique<Tensor>(parameter.shape, wires.training));
      owned.back()->fill(0.05f);
      weights.push_back(&owned.back()->view);
      gradients.push_back(nullptr);
      if (parameter.frozen()) continue;
      owned.push_back(std::make_unique<Tensor>(parameter.shape, kFloat32));
      gradients.back() = &owned.back()->view;
    }
    for (const train::Input& input : layer.inputs) {
      in.push_back(input_of(input, owned));
      d_in.push_back(nullptr);
      if (!input.gradient) continue;
      owned.push_back(value_tensor(input.value));
      d_in.back() = &owned.back()->view;
    }
    for (int v = layer.first_value; v < layer.first_value + layer.values; ++v) {
      const train::Value& value = wiring.values[size_t(v)];
      out.push_back(nullptr);
      d_out.push_back(nullptr);
      if (value.asked) {
        owned.push_back(value_tensor(v));
        out.back() = &owned.back()->view;
      }
      if (!value.gradient) continue;
      owned.push_back(value_tensor(v));
      owned.back()->fill(1e-3f);
      d_out.back() = &owned.back()->view;
    }
    model.bind(l, weights, gradients);
    const std::vector<uint8_t> overwrite(weights.size(), 1);
    fastllm_call call = call_of(layer.backward ? FASTLLM_SAVE : 0);
    std::vector<double> forwards, backwards;
    int64_t kept = 0;
    together();
    for (int n = 0; n <= kCalls; ++n) {
      model::Saved saved;
      const int64_t before = heap_bytes() - idle_bytes();
      const double forward = seconds_of([&] { saved = model.forward(l, call, in, out); });
      kept = heap_bytes() - idle_bytes() - before;
      double backward = 0;
      if (layer.backward) {
        fastllm_call back = call_of(0);
        back.overwrite = overwrite.data();
        backward = seconds_of([&] { model.backward(l, back, std::move(saved), d_out, d_in); });
      }
      if (n == 0) continue;
      forwards.push_back(forward);
      backwards.push_back(backward);
    }
    return {median(forwards), median(backwards), std::max<int64_t>(0, kept)};
  }
};

LayerTimer::LayerTimer(model::Model& model, const Wires& wires, const MicroBatch& micro_batch,
                       std::function<void()> together, std::function<int64_t()> idle_bytes)
    : impl_(new Impl{model,
                     wires,
                     micro_batch,
                     std::move(together),
                     std::move(idle_bytes),
                     model.description(),
                     wires.wiring,
                     {},
                     {}}) {}
LayerTimer::~LayerTimer() = default;

LayerTime LayerTimer::time(int layer) {
  const std::string kind = impl_->kind_of(layer);
  if (!impl_->known.contains(kind)) impl_->known[kind] = impl_->run(layer);
  return impl_->known.at(kind);
}

}  // namespace fastllm::plan
