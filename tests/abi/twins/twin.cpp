// Two plugins of two authors, both with a class my::Model, compiled without hidden visibility and
// linked without a map of exports. FASTLLM_TWIN is the name of each.
#include <cstring>
#include <fastllm/model.hpp>

namespace my {

class Model {
 public:
  static constexpr const char* kType = FASTLLM_TWIN;
  static void fields(const fastllm::sdk::Sink&) {}
  explicit Model(const fastllm::sdk::Config&) {}
  void describe(const fastllm::sdk::Sink& sink) const {
    sink.layer("layers." FASTLLM_TWIN);
    sink.output({"loss", {}, FASTLLM_PORT_LOSS});
  }
  void bind(int, const DLTensor* const*, DLTensor* const*) {}
  fastllm::sdk::SavedPointer forward(int, const fastllm::sdk::Call&, const DLTensor* const*,
                                     DLTensor* const*) {
    return nullptr;
  }
  void backward(int, const fastllm::sdk::Call&, fastllm::sdk::SavedPointer, const DLTensor* const*,
                DLTensor* const*) {}
};

}  // namespace my

namespace {

FASTLLM_MANIFEST("abi=0\nid=" FASTLLM_TWIN "\nversion=0.0.1\nmodel=" FASTLLM_TWIN "\n");

const void* get(const char* id, int32_t index) {
  return index == 0 && std::strcmp(id, FASTLLM_MODEL) == 0 ? fastllm::sdk::model_table<my::Model>()
                                                           : nullptr;
}

const fastllm_plugin the_plugin = {sizeof(fastllm_plugin), FASTLLM_MINOR, fastllm_manifest, get,
                                   nullptr};

}  // namespace

extern "C" const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* host) {
  return fastllm::sdk::entry(host, &the_plugin);
}
