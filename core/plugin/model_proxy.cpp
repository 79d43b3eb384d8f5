// A model behind its C table. Each call runs in the plugin's name; cheap checks afterwards catch
// plugins that write where they must not.
#include "core/plugin/model_proxy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/log.hpp"
#include "core/plugin/config_services.hpp"
#include "core/plugin/host_services.hpp"
#include "core/plugin/manifest.hpp"
#include "core/plugin/normalise.hpp"
#include "core/plugin/sink.hpp"
#include "core/plugin/tensor_guard.hpp"

namespace fastllm::plugin {
namespace {

// Stands in for an optional member, so that callers never ask whether it is there.
fastllm_status no_flops(fastllm_model*, int32_t, int64_t, int64_t, double*, double*) {
  return set_failure(FASTLLM_UNSUPPORTED, fmt::format("plugin {} has no flops", t_call.plugin->id),
                     false);
}
fastllm_status no_init(fastllm_model*, int32_t, int32_t, const fastllm_call*, DLTensor*) {
  return set_failure(FASTLLM_UNSUPPORTED, fmt::format("plugin {} has no init", t_call.plugin->id),
                     false);
}

fastllm_model_api copy_table(const fastllm_model_api* theirs) {
  auto api = normalise(
      theirs, "fastllm_model_api",
      {FASTLLM_REQUIRE(fastllm_model_api, type), FASTLLM_REQUIRE(fastllm_model_api, create),
       FASTLLM_REQUIRE(fastllm_model_api, destroy), FASTLLM_REQUIRE(fastllm_model_api, describe),
       FASTLLM_REQUIRE(fastllm_model_api, bind), FASTLLM_REQUIRE(fastllm_model_api, forward),
       FASTLLM_REQUIRE(fastllm_model_api, backward), FASTLLM_REQUIRE(fastllm_model_api, discard)});
  if (!api.init) api.init = no_init;
  if (!api.flops) api.flops = no_flops;
  return api;
}

class ModelProxy final : public model::Model {
 public:
  ModelProxy(std::shared_ptr<const Identity> identity, std::shared_ptr<const fastllm_model_api> api,
             const std::string& type, fastllm_model* handle)
      : identity_(std::move(identity)), api_(std::move(api)), handle_(handle, {this}) {
    fastllm_sink sink(Describing::kModel);
    sink.model.type = type;
    CallScope scope(*identity_, "describe");
    call("describe", -1, api_->describe, handle, emit_table(), &sink);
    try {
      sink.check();
      if (api_->init == no_init) check_needs_no_init(sink.model);
      sink.model.validate();
    } catch (const Error& e) {
      throw_fault(e.what());
    }
    description_ = std::move(sink.model);
  }

  const model::Description& description() const override { return description_; }

  void bind(int layer, std::span<const DLTensor* const> weights,
            std::span<DLTensor* const> gradients) override {
    FASTLLM_ASSERT(weights.size() == layer_at(layer).parameters.size() &&
                   gradients.size() == weights.size());
    call("bind", layer, api_->bind, handle_.get(), int32_t(layer), weights.data(),
         gradients.data());
  }

  model::Saved forward(int layer, const fastllm_call& state,
                       std::span<const DLTensor* const> inputs,
                       std::span<DLTensor* const> outputs) override {
    FASTLLM_ASSERT(inputs.size() == layer_at(layer).inputs.size() &&
                   outputs.size() == layer_at(layer).outputs.size());
    TensorGuard guard(outputs);
    fastllm_saved* raw = nullptr;
    call("forward", layer, api_->forward, handle_.get(), int32_t(layer), &state, inputs.data(),
         outputs.data(), &raw);
    model::Saved saved(this, raw);
    check_unchanged(guard, layer, "forward", "output");
    if (raw && !(state.flags & FASTLLM_SAVE)) {
      fault(layer, "forward", "kept state for a backward although FASTLLM_SAVE was not asked for");
    }
    return saved;
  }

  void backward(int layer, const fastllm_call& state, model::Saved saved,
                std::span<const DLTensor* const> d_outputs,
                std::span<DLTensor* const> d_inputs) override {
    FASTLLM_ASSERT(d_outputs.size() == layer_at(layer).outputs.size() &&
                   d_inputs.size() == layer_at(layer).inputs.size());
    TensorGuard guard(d_inputs);
    call("backward", layer, api_->backward, handle_.get(), int32_t(layer), &state, saved.release(),
         d_outputs.data(), d_inputs.data());
    check_unchanged(guard, layer, "backward", "input gradient");
  }

  void discard(fastllm_saved* saved) noexcept override {
    if (saved)
      call_release(*identity_, "discard", api_->discard, handle_.get(), saved,
                   static_cast<void*>(nullptr));
  }

  void init(int layer, int parameter, const fastllm_call& state, DLTensor* global_weight) override {
    FASTLLM_ASSERT(parameter >= 0 && size_t(parameter) < layer_at(layer).parameters.size());
    call("init", layer, api_->init, handle_.get(), int32_t(layer), int32_t(parameter), &state,
         global_weight);
  }

  model::Flops flops(int layer, int64_t batch, int64_t sequence) override {
    FASTLLM_ASSERT(layer >= 0 && size_t(layer) < description_.layers.size());
    if (api_->flops == no_flops) return {};
    model::Flops flops;
    call("flops", layer, api_->flops, handle_.get(), int32_t(layer), batch, sequence,
         &flops.forward, &flops.recomputed);
    for (double value : {flops.forward, flops.recomputed}) {
      if (!std::isfinite(value) || value < 0)
        fault(layer, "flops", fmt::format("expected a number of 0 or more, found {}", value));
    }
    return flops;
  }

 private:
  struct Destroy {
    ModelProxy* proxy;
    void operator()(fastllm_model* model) const {
      call_release(*proxy->identity_, "destroy", proxy->api_->destroy, model);
    }
  };

  template <class... P, class... A>
  void call(const char* what, int layer, fastllm_status (*function)(P...), A... arguments) {
    call_status(*identity_, what, layer, nullptr, function, arguments...);
  }
  const model::Layer& layer_at(int layer) const {
    FASTLLM_ASSERT(layer >= 0 && size_t(layer) < description_.layers.size());
    return description_.layers[size_t(layer)];
  }
  [[noreturn]] void fault(int layer, const char* what, const std::string& text) const {
    CallScope scope(*identity_, what, layer);
    throw_fault(text);
  }
  void check_unchanged(const TensorGuard& guard, int layer, const char* what,
                       const char* kind) const {
    int index = guard.changed();
    if (index < 0) [[likely]]
      return;
    const auto& ports = what[0] == 'f' ? layer_at(layer).outputs : layer_at(layer).inputs;
    fault(layer, what,
          fmt::format("changed the description (shape, strides, data pointer, ..) of {} {}; only "
                      "its data may be written",
                      kind, ports[size_t(index)].name));
  }
  static void check_needs_no_init(const model::Description& description) {
    for (const auto& parameter : description.parameters) {
      if (parameter.init == FASTLLM_INIT_PLUGIN) {
        throw Error(Status::kInternal,
                    fmt::format("expected fastllm_model_api.init since parameter {} has "
                                "FASTLLM_INIT_PLUGIN, found NULL",
                                parameter.name));
      }
    }
  }

  std::shared_ptr<const Identity> identity_;
  std::shared_ptr<const fastllm_model_api> api_;
  std::unique_ptr<fastllm_model, Destroy> handle_;
  model::Description description_;
};

class Factory final : public ModelFactory {
 public:
  Factory(std::shared_ptr<const Identity> identity, const fastllm_model_api* theirs)
      : identity_(std::move(identity)),
        api_(std::make_shared<const fastllm_model_api>(copy_table(theirs))) {
    if (!is_identifier(std::string_view(api_->type, strnlen(api_->type, 1024)))) {
      throw Error(Status::kInternal,
                  "expected fastllm_model_api.type to be letters, digits and _ . - /, found "
                  "something else");
    }
    type_ = api_->type;
    if (!api_->fields) return;
    fastllm_sink sink(Describing::kFields);
    call_status(*identity_, "fields", -1, nullptr, api_->fields, emit_table(), &sink);
    sink.check();
    fields_ = std::move(sink.fields);
    for (const auto& field : fields_) paths_.push_back(field.path);
  }

  const std::string& type() const override { return type_; }
  const std::vector<config::Field>& fields() const override { return fields_; }

  std::unique_ptr<model::Model> create(config::Node& base_model) override {
    ConfigTree tree(base_model, &paths_);
    fastllm_model* handle = nullptr;
    {
      CallScope scope(*identity_, "create");
      fastllm_status status;
      try {
        status = api_->create(tree.handle(), &handle);
      } catch (...) {
        throw_foreign_exception();
      }
      if (status == FASTLLM_INVALID && failure_given()) {
        // The user's configuration, not the plugin: its lines name paths, and the caller knows
        // their files.
        throw Error(Status::kInvalid, latest_failure());
      }
      if (status != FASTLLM_OK) throw_failed_call(status);
      if (!handle) throw_fault("returned FASTLLM_OK and no model");
    }
    return std::make_unique<ModelProxy>(identity_, api_, type_, handle);
  }

 private:
  std::shared_ptr<const Identity> identity_;
  std::shared_ptr<const fastllm_model_api> api_;
  std::string type_;
  std::vector<config::Field> fields_;
  std::vector<std::string> paths_;
};

}  // namespace

std::unique_ptr<ModelFactory> make_model_factory(std::shared_ptr<const Identity> identity,
                                                 const fastllm_model_api* theirs) {
  return std::make_unique<Factory>(std::move(identity), theirs);
}

}  // namespace fastllm::plugin
