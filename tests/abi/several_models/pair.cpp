// A plugin with two models, each with a key of its own.
#include <cstring>
#include <fastllm/model.hpp>

namespace pair {
namespace {

struct Left {
  static constexpr const char* kType = "left";
  static constexpr const char* kKey = "left_size";
};
struct Right {
  static constexpr const char* kType = "right";
  static constexpr const char* kKey = "right_size";
};

template <class Names>
class Model {
 public:
  static constexpr const char* kType = Names::kType;
  static void fields(const fastllm::sdk::Sink& sink) {
    sink.field({.path = Names::kKey,
                .type = FASTLLM_I64,
                .fallback = "1",
                .help = "Of this model alone.",
                .flags = FASTLLM_FIELD_CORE});
  }
  explicit Model(const fastllm::sdk::Config&) {}
  void describe(const fastllm::sdk::Sink& sink) const {
    sink.layer(std::string("layers.") + kType);
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

FASTLLM_MANIFEST("abi=0\nid=pair\nversion=0.0.1\nmodel=left\nmodel=right\n");

const void* get(const char* id, int32_t index) {
  if (std::strcmp(id, FASTLLM_MODEL) != 0) return nullptr;
  if (index == 0) return fastllm::sdk::model_table<Model<Left>>();
  if (index == 1) return fastllm::sdk::model_table<Model<Right>>();
  return nullptr;
}

const fastllm_plugin the_plugin = {sizeof(fastllm_plugin), FASTLLM_MINOR, fastllm_manifest, get,
                                   nullptr};

}  // namespace
}  // namespace pair

extern "C" const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* host) {
  return fastllm::sdk::entry(host, &pair::the_plugin);
}
