// A host that fails: each of its functions returns each error at each call. The plain-C model
// passes the code on as it is, leaves out-pointers alone and leaks nothing (seen under
// AddressSanitizer).
#include <dlfcn.h>
#include <fastllm/model.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "core/config/node.hpp"
#include "core/plugin/config_services.hpp"
#include "core/plugin/context.hpp"
#include "core/plugin/host_services.hpp"
#include "core/plugin/sink.hpp"
#include "tests/support/tensor.hpp"

namespace fastllm::plugin {
namespace {

using ::fastllm::testing::Tensor;

// Counts calls down to the one that fails.
int g_calls_left = 0;
fastllm_status g_status = FASTLLM_OK;

bool fails_now() { return g_calls_left-- == 0; }

fastllm_status bad_config_get(const fastllm_config* config, const char* path, int32_t type,
                              void* value) {
  return fails_now() ? g_status : host_table()->config_get(config, path, type, value);
}
fastllm_status bad_alloc_service(const DLTensor* like, void* stream,
                                 DLManagedTensorVersioned** out) {
  return fails_now() ? g_status : host_table()->alloc(like, stream, out);
}
fastllm_status bad_layer(fastllm_sink* sink, const fastllm_layer* layer) {
  return fails_now() ? g_status : emit_table()->layer(sink, layer);
}
fastllm_status bad_input(fastllm_sink* sink, const fastllm_port* port) {
  return fails_now() ? g_status : emit_table()->input(sink, port);
}
fastllm_status bad_output(fastllm_sink* sink, const fastllm_port* port) {
  return fails_now() ? g_status : emit_table()->output(sink, port);
}
fastllm_status bad_param(fastllm_sink* sink, const fastllm_param* param) {
  return fails_now() ? g_status : emit_table()->param(sink, param);
}
fastllm_status bad_field(fastllm_sink* sink, const fastllm_field* field) {
  return fails_now() ? g_status : emit_table()->field(sink, field);
}

const fastllm_plugin* greet(const fastllm_host* host) {
  std::string path = fmt::format("{}/libfastllm_cmlp.so", FASTLLM_TEST_PLUGINS);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) throw std::runtime_error(::dlerror());
  auto door = reinterpret_cast<decltype(&fastllm_plugin_v0)>(::dlsym(library, "fastllm_plugin_v0"));
  return door(host);
}

// A model's whole life, until the first failure.
fastllm_status live(const fastllm_model_api& api, const fastllm_emit& emit) {
  fastllm_sink fields(Describing::kFields), description(Describing::kModel);
  if (auto status = api.fields(&emit, &fields)) return status;
  config::Node node =
      config::parse_yaml("{vocab_size: 5, hidden_size: 3, inner_size: 2, init_std: 0.1}", "test");
  ConfigTree tree(node);
  fastllm_model* raw = nullptr;
  if (auto status = api.create(tree.handle(), &raw)) {
    EXPECT_EQ(raw, nullptr);
    return status;
  }
  std::unique_ptr<fastllm_model, void (*)(fastllm_model*)> model(raw, api.destroy);
  if (auto status = api.describe(raw, &emit, &description)) return status;

  Tensor<float> weight({5, 2}), bias({5}), features({1, 2, 2}), loss({});
  Tensor<int64_t> labels({1, 2}, {1, 4});
  std::vector<const DLTensor*> weights = {weight.view(), bias.view()};
  std::vector<DLTensor*> gradients = {nullptr, nullptr}, outputs = {loss.view(), nullptr};
  std::vector<const DLTensor*> inputs = {features.view(), labels.view()};
  if (auto status = api.bind(raw, 2, weights.data(), gradients.data())) return status;
  fastllm_call call{};
  call.size = sizeof call;
  call.flags = FASTLLM_SAVE;
  call.device = {kDLCPU, 0};
  fastllm_saved* saved = nullptr;
  if (auto status = api.forward(raw, 2, &call, inputs.data(), outputs.data(), &saved)) {
    EXPECT_EQ(saved, nullptr);
    return status;
  }
  api.discard(raw, saved, nullptr);
  return FASTLLM_OK;
}

TEST(HostileHost, EachFailureIsPassedOn) {
  struct Way {
    const char* name;
    void (*spoil)(fastllm_host&, fastllm_emit&);
    int calls;  // that a model's life makes
  };
  const Way ways[] = {
      {"config_get", [](auto& host, auto&) { host.config_get = bad_config_get; }, 4},
      {"alloc", [](auto& host, auto&) { host.alloc = bad_alloc_service; }, 1},
      {"field", [](auto&, auto& emit) { emit.field = bad_field; }, 4},
      {"layer", [](auto&, auto& emit) { emit.layer = bad_layer; }, 3},
      {"input", [](auto&, auto& emit) { emit.input = bad_input; }, 4},
      {"output", [](auto&, auto& emit) { emit.output = bad_output; }, 4},
      {"param", [](auto&, auto& emit) { emit.param = bad_param; }, 5}};
  static fastllm_host host;  // stays: the plugin keeps its address
  for (const Way& way : ways) {
    host = *host_table();
    fastllm_emit emit = *emit_table();
    way.spoil(host, emit);
    const fastllm_plugin* plugin = greet(&host);
    ASSERT_NE(plugin, nullptr);
    const auto& api = *static_cast<const fastllm_model_api*>(plugin->get(FASTLLM_MODEL, 0));
    for (fastllm_status status : {FASTLLM_INVALID + 0, FASTLLM_OUT_OF_MEMORY + 0, 77}) {
      for (int n = 0; n < way.calls; ++n) {
        SCOPED_TRACE(fmt::format("{} fails with {} at call {}", way.name, status, n));
        g_calls_left = n;
        g_status = status;
        EXPECT_EQ(live(api, emit), status);
        EXPECT_LT(g_calls_left, 0);
      }
      g_calls_left = way.calls;
      EXPECT_EQ(live(api, emit), FASTLLM_OK);
      EXPECT_EQ(g_calls_left, 0) << way.name << ": more calls than expected";
    }
  }
  host = *host_table();
  greet(&host);
}

}  // namespace
}  // namespace fastllm::plugin
