// A C++ plugin over the glue that lets exceptions cross the C edge; FASTLLM_BAD names which. Built twice: with the shared
// C++ runtime and with one of its own inside.
#include <fastllm/plugin.hpp>

#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace {

bool is(const char* name) {
  const char* mode = std::getenv("FASTLLM_BAD");
  return mode && std::strcmp(mode, name) == 0;
}

void maybe_throw() {
  if (is("throw_exception")) throw std::out_of_range("index 7 of 3");
  if (is("throw_number")) throw 42;
}

char the_model;

const fastllm_model_api* model_api() {
  static const fastllm_model_api table = [] {
    fastllm_model_api api{};
    api.size = sizeof api;
    api.type = "throwing";
    api.create = [](fastllm_config*, fastllm_model** out) -> fastllm_status {
      *out = reinterpret_cast<fastllm_model*>(&the_model);
      return FASTLLM_OK;
    };
    api.destroy = [](fastllm_model*) { maybe_throw(); };
    api.describe = [](fastllm_model*, const fastllm_emit* emit,
                      fastllm_sink* sink) -> fastllm_status {
      return fastllm::sdk::guard([&] {
        fastllm::sdk::Sink out(emit, sink);
        out.layer("layer.0");
        out.output({"loss", {}, FASTLLM_PORT_LOSS});
      });
    };
    api.bind = [](fastllm_model*, int32_t, const DLTensor* const*,
                  DLTensor* const*) -> fastllm_status { return FASTLLM_OK; };
    api.forward = [](fastllm_model*, int32_t, const fastllm_call*, const DLTensor* const*,
                     DLTensor* const*, fastllm_saved**) -> fastllm_status {
      maybe_throw();
      // Caught by the glue, as a plugin should.
      if (is("throw_guarded"))
        return fastllm::sdk::guard([] { throw std::out_of_range("index 7 of 3"); });
      return FASTLLM_OK;
    };
    api.backward = [](fastllm_model*, int32_t, const fastllm_call*, fastllm_saved*,
                      const DLTensor* const*, DLTensor* const*) -> fastllm_status {
      maybe_throw();
      return FASTLLM_OK;
    };
    api.discard = [](fastllm_model*, fastllm_saved*, void*) { maybe_throw(); };
    return api;
  }();
  return &table;
}

FASTLLM_MANIFEST("abi=0\nid=throwing\nversion=0.0.1\nmodel=throwing\n");

const void* get(const char* id, int32_t index) {
  return index == 0 && std::strcmp(id, FASTLLM_MODEL) == 0 ? model_api() : nullptr;
}

const fastllm_plugin the_plugin = {sizeof(fastllm_plugin), FASTLLM_MINOR, fastllm_manifest, get,
                                   nullptr};

}  // namespace

extern "C" const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* host) {
  if (is("throw_in_door")) throw std::runtime_error("no door today");
  return fastllm::sdk::entry(host, &the_plugin);
}
