/* Every macro of plugin.h, used as a plugin uses it; compiled as C and C++ of every age. */
#include <fastllm/plugin.h>

FASTLLM_MANIFEST("abi=0\nid=smallest\nversion=0\n");

static const void* smallest_get(const char* id, int32_t index) {
  (void)id;
  (void)index;
  return NULL;
}

static const fastllm_plugin smallest = {sizeof(fastllm_plugin), FASTLLM_MINOR, fastllm_manifest,
                                        smallest_get, NULL};

const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* host) {
  return FASTLLM_HAS(fastllm_host, host, fail) ? &smallest : NULL;
}
