// The door of libfastllm_gpt.so: one model, "gpt". The manifest is read from the file before the
// library is run; the LibTorch build must be the host's.
#include <fastllm/model.hpp>

#include "model.hpp"

#define GPT_TEXT_(x) #x
#define GPT_TEXT(x) GPT_TEXT_(x)

FASTLLM_MANIFEST("abi=" GPT_TEXT(
    FASTLLM_MAJOR) "\n"
                   "id=fastllm.gpt\n"
                   "version=" FASTLLM_GPT_VERSION
                   "\n"
                   "model=gpt\n"
                   "needs=torch==" FASTLLM_GPT_TORCH "\n");

namespace {

const void* offer(const char* id, int32_t index) {
  if (std::string_view(id) == FASTLLM_MODEL && index == 0) {
    return fastllm::sdk::model_table<fastllm::gpt::GptModel>();
  }
  return nullptr;
}

const fastllm_plugin kPlugin = {sizeof(fastllm_plugin), FASTLLM_MINOR, fastllm_manifest, offer,
                                nullptr};

}  // namespace

const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* host) {
  return fastllm::sdk::entry(host, &kPlugin);
}
