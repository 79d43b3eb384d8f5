// fastllm/model.hpp - writes an architecture as a C++ class; model_table<Class>() makes the C table
// of model.h from it. Nothing leaves the class but status codes: every member may throw, sdk::guard
// turns it into a code and a sentence. A complete example is plugins/models/gpt/plugin.cpp.
#pragma once

#include <fastllm/model.h>
#include <fastllm/plugin.hpp>

#include <memory>

namespace fastllm::sdk {

// Floating-point operations of one layer: of one forward, and those that its backward computes
// again.
struct Flops {
  double forward = 0, recomputed = 0;
};

// What one forward keeps for its backward: derive from it. The host hands it back exactly once, to
// backward or to discard, which both delete it, possibly on another thread than the one of the
// forward.
class Saved {
 public:
  virtual ~Saved() = default;
};
using SavedPointer = std::unique_ptr<Saved>;

// A borrowed fastllm_call with names for its flags.
class Call {
 public:
  explicit Call(const fastllm_call* raw) : raw_(raw) {}
  bool save() const { return raw_->flags & FASTLLM_SAVE; }
  bool evaluation() const { return raw_->flags & FASTLLM_EVAL; }
  // Backward: true, write the gradient of that parameter (zeros if there is none); false, add to
  // what is there.
  bool overwrites(int parameter) const { return raw_->overwrite && raw_->overwrite[parameter]; }
  const fastllm_call* operator->() const { return raw_; }

 private:
  const fastllm_call* raw_;
};

// The class has these members; arrays have one entry per declared port or parameter, in order of
// declaration, and entries are null where model.h says so:
//
//   static constexpr const char* kType = "gpt";
//   static void fields(const Sink&);     // the configuration keys
//   explicit Class(Config);              // reads them, sets computed ones; throws what it refuses
//   void describe(const Sink&) const;    // layers, ports, parameters
//   void bind(int layer, const DLTensor* const* weights, DLTensor* const* gradients);
//   SavedPointer forward(int layer, const Call&, const DLTensor* const* inputs,
//                        DLTensor* const* outputs);
//   void backward(int layer, const Call&, SavedPointer, const DLTensor* const* d_outputs,
//                 DLTensor* const* d_inputs);
//
// and may have these; without them the host is told that the plugin does not offer them:
//
//   // for parameters with FASTLLM_INIT_PLUGIN
//   void init(int layer, int parameter, const Call&, DLTensor* global_weight);
//   Flops flops(int layer, int64_t batch, int64_t sequence) const;
//
// forward returns null unless call.save(). Layer numbers are those of describe and are not checked
// here.
namespace detail {

template <class Class>
struct ModelTrampolines {
  static Class& self(fastllm_model* model) { return *reinterpret_cast<Class*>(model); }

  static fastllm_status fields(const fastllm_emit* emit, fastllm_sink* sink) noexcept {
    return guard([&] { Class::fields(Sink(emit, sink)); });
  }
  static fastllm_status create(fastllm_config* config, fastllm_model** out) noexcept {
    return guard([&] {
      auto model = std::make_unique<Class>(Config(config));
      *out = reinterpret_cast<fastllm_model*>(model.release());
    });
  }
  static void destroy(fastllm_model* model) noexcept { delete reinterpret_cast<Class*>(model); }
  static fastllm_status describe(fastllm_model* model, const fastllm_emit* emit,
                                 fastllm_sink* sink) noexcept {
    return guard([&] { self(model).describe(Sink(emit, sink)); });
  }
  static fastllm_status bind(fastllm_model* model, int32_t layer, const DLTensor* const* weights,
                             DLTensor* const* gradients) noexcept {
    return guard([&] { self(model).bind(layer, weights, gradients); });
  }
  static fastllm_status forward(fastllm_model* model, int32_t layer, const fastllm_call* call,
                                const DLTensor* const* inputs, DLTensor* const* outputs,
                                fastllm_saved** saved) noexcept {
    return guard([&] {
      SavedPointer kept = self(model).forward(layer, Call(call), inputs, outputs);
      if (saved) *saved = reinterpret_cast<fastllm_saved*>(kept.release());
    });
  }
  static fastllm_status backward(fastllm_model* model, int32_t layer, const fastllm_call* call,
                                 fastllm_saved* saved, const DLTensor* const* d_outputs,
                                 DLTensor* const* d_inputs) noexcept {
    SavedPointer kept(reinterpret_cast<Saved*>(saved));  // consumed, also on failure
    return guard(
        [&] { self(model).backward(layer, Call(call), std::move(kept), d_outputs, d_inputs); });
  }
  static void discard(fastllm_model*, fastllm_saved* saved, void*) noexcept {
    delete reinterpret_cast<Saved*>(saved);
  }
  static fastllm_status init(fastllm_model* model, int32_t layer, int32_t parameter,
                             const fastllm_call* call, DLTensor* global_weight) noexcept {
    return guard([&] { self(model).init(layer, parameter, Call(call), global_weight); });
  }
  static fastllm_status flops(fastllm_model* model, int32_t layer, int64_t batch, int64_t sequence,
                              double* forward, double* recomputed) noexcept {
    return guard([&] {
      const Flops flops = self(model).flops(layer, batch, sequence);
      *forward = flops.forward;
      *recomputed = flops.recomputed;
    });
  }
};

}  // namespace detail

// The table to return from the plugin's get(FASTLLM_MODEL, index). [any]
template <class Class>
FASTLLM_HIDDEN const fastllm_model_api* model_table() {
  using T = detail::ModelTrampolines<Class>;
  static const fastllm_model_api table = [] {
    fastllm_model_api t{};
    t.size = sizeof t;
    t.type = Class::kType;
    t.fields = T::fields;
    t.create = T::create;
    t.destroy = T::destroy;
    t.describe = T::describe;
    t.bind = T::bind;
    t.forward = T::forward;
    t.backward = T::backward;
    t.discard = T::discard;
    if constexpr (requires(Class & c, const Call& call) {
                    c.init(0, 0, call, static_cast<DLTensor*>(nullptr));
                  }) {
      t.init = T::init;
    }
    if constexpr (requires(const Class& c) { c.flops(0, int64_t{}, int64_t{}); })
      t.flops = T::flops;
    return t;
  }();
  return &table;
}

}  // namespace fastllm::sdk
