// A model that communicates: its loss is the sum of (rank + 1) over the data-parallel ranks, and 1
// when the host says that there is one.
#include <fastllm/collectives.h>

#include <algorithm>
#include <cstring>
#include <fastllm/model.hpp>
#include <stdexcept>

namespace joined {
namespace {

const fastllm_collectives* collectives = nullptr;  // asked for at the door, as early as can be

class Model {
 public:
  static constexpr const char* kType = "joined";
  static void fields(const fastllm::sdk::Sink& sink) {
    sink.field({.path = "interrupted_rank",
                .type = FASTLLM_I64,
                .fallback = "-1",
                .help = "It ends as if a signal had come; -1: none."});
  }
  explicit Model(const fastllm::sdk::Config& config)
      : interrupted_rank_(config.get<int64_t>("interrupted_rank")) {
    if (float value = 0; collectives && add(value) != FASTLLM_INVALID)
      throw std::runtime_error("expected to be refused before the ranks have met");
  }
  void describe(const fastllm::sdk::Sink& sink) const {
    sink.layer("layer");
    sink.output({"loss", {}, FASTLLM_PORT_LOSS});
    sink.parameter({.name = "layer.weight", .shape = {8}});
  }
  void bind(int, const DLTensor* const*, DLTensor* const* gradients) {
    gradient_ = gradients[0] ? first(*gradients[0]) : nullptr;
  }
  fastllm::sdk::SavedPointer forward(int, const fastllm::sdk::Call& call, const DLTensor* const*,
                                     DLTensor* const* outputs) {
    float value = 1;
    if (collectives && collectives->rank("world") == interrupted_rank_)
      fastllm::sdk::fail(FASTLLM_CANCELLED, "stopped on the way");
    if (collectives) {
      value = float(collectives->rank("data") + 1);
      fastllm::sdk::check(add(value));
    }
    *first(*outputs[0]) = value;
    return call.save() ? std::make_unique<fastllm::sdk::Saved>() : nullptr;
  }
  void backward(int, const fastllm::sdk::Call& call, fastllm::sdk::SavedPointer,
                const DLTensor* const*, DLTensor* const*) {
    if (gradient_ && call.overwrites(0)) std::fill_n(gradient_, 8, 0.0f);
  }

 private:
  static float* first(const DLTensor& tensor) {
    return reinterpret_cast<float*>(static_cast<char*>(tensor.data) + tensor.byte_offset);
  }
  static fastllm_status add(float& value) {
    DLTensor tensor{};
    tensor.data = &value;
    tensor.device = {kDLCPU, 0};
    tensor.dtype = fastllm::sdk::kFloat32;
    return collectives->all_reduce("data", FASTLLM_SUM, &tensor, nullptr);
  }
  int64_t interrupted_rank_;
  float* gradient_ = nullptr;
};

FASTLLM_MANIFEST("abi=0\nid=joined\nversion=0.0.1\nmodel=joined\n");

const void* get(const char* id, int32_t index) {
  const bool asked = std::strcmp(id, FASTLLM_MODEL) == 0 && index == 0;
  return asked ? fastllm::sdk::model_table<Model>() : nullptr;
}

const fastllm_plugin the_plugin = {sizeof(fastllm_plugin), FASTLLM_MINOR, fastllm_manifest, get,
                                   nullptr};

}  // namespace
}  // namespace joined

extern "C" const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* host) {
  joined::collectives = static_cast<const fastllm_collectives*>(host->get(FASTLLM_COLLECTIVES));
  return fastllm::sdk::entry(host, &joined::the_plugin);
}
