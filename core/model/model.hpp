// A model that can compute. core/plugin implements it over a plugin's C table; tests implement it
// in C++. One thread at a time. Every call throws Error with "plugin X, layer N forward" in front
// on failure.
#pragma once

#include <fastllm/model.h>

#include <span>
#include <utility>

#include "core/model/description.hpp"

namespace fastllm::model {

class Model;

// Floating-point operations of one layer.
struct Flops {
  double forward = 0;     // of one forward
  double recomputed = 0;  // what its backward computes again (attention scores)
};

// What one forward keeps for its backward. Owned: goes to exactly one backward, or is discarded
// with the object.
class Saved {
 public:
  Saved() = default;
  Saved(Model* model, fastllm_saved* handle) : model_(model), handle_(handle) {}
  Saved(Saved&& other) noexcept
      : model_(other.model_), handle_(std::exchange(other.handle_, nullptr)) {}
  Saved& operator=(Saved&& other) noexcept {
    std::swap(model_, other.model_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Saved();
  fastllm_saved* release() { return std::exchange(handle_, nullptr); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Model* model_ = nullptr;
  fastllm_saved* handle_ = nullptr;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const Description& description() const = 0;
  // Parameters in order of declaration. Null gradient: frozen or inference.
  virtual void bind(int layer, std::span<const DLTensor* const> weights,
                    std::span<DLTensor* const> gradients) = 0;
  // Returns an empty Saved unless call.flags has FASTLLM_SAVE (a layer may return none even then).
  virtual Saved forward(int layer, const fastllm_call& call,
                        std::span<const DLTensor* const> inputs,
                        std::span<DLTensor* const> outputs) = 0;
  virtual void backward(int layer, const fastllm_call& call, Saved saved,
                        std::span<const DLTensor* const> d_outputs,
                        std::span<DLTensor* const> d_inputs) = 0;
  virtual void discard(fastllm_saved* saved) noexcept = 0;
  virtual void init(int layer, int parameter_in_layer, const fastllm_call& call,
                    DLTensor* global_weight) = 0;
  // Of one forward of the layer; 0 when the plugin does not say.
  virtual Flops flops(int layer, int64_t batch, int64_t sequence) = 0;
};

inline Saved::~Saved() {
  if (handle_) model_->discard(handle_);
}

}  // namespace fastllm::model
