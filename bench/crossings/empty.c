/* A model plugin that computes nothing: what is left of a step is the way to a plugin and back, and
 * the host's work around it. layers.0 .. layers.N-1 pass on a value of one number a token. */
#include <fastllm/model.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fastllm_host* host;

struct fastllm_model {
  int64_t layers;
};

static fastllm_status fields(const fastllm_emit* emit, fastllm_sink* sink) {
  fastllm_field field;
  memset(&field, 0, sizeof field);
  field.size = sizeof field;
  field.path = "num_layers";
  field.type = FASTLLM_I64;
  field.fallback = "8";
  field.minimum = 2;
  field.maximum = 1000;
  field.help = "Number of layers.";
  return emit->field(sink, &field);
}

static fastllm_status create(fastllm_config* config, fastllm_model** out) {
  fastllm_model* model = (fastllm_model*)malloc(sizeof *model);
  fastllm_status status;
  if (!model) return host->fail(FASTLLM_OUT_OF_MEMORY, "out of memory");
  status = host->config_get(config, "num_layers", FASTLLM_I64, &model->layers);
  if (status) {
    free(model);
    return status;
  }
  *out = model;
  return FASTLLM_OK;
}

static void destroy(fastllm_model* model) { free(model); }

static fastllm_port port(const char* name, uint32_t flags, const int64_t* shape, int32_t ndim,
                         uint8_t code, uint8_t bits) {
  fastllm_port result;
  memset(&result, 0, sizeof result);
  result.size = sizeof result;
  result.flags = flags;
  result.name = name;
  result.shape = shape;
  result.ndim = ndim;
  result.dtype.code = code;
  result.dtype.bits = bits;
  result.dtype.lanes = 1;
  return result;
}

static fastllm_status describe(fastllm_model* model, const fastllm_emit* emit, fastllm_sink* sink) {
  static const int64_t grid[] = {FASTLLM_DIM_BATCH, FASTLLM_DIM_SEQUENCE}, one[] = {1};
  const uint32_t from_data = FASTLLM_PORT_BATCH | FASTLLM_PORT_NO_GRAD;
  const fastllm_port tokens = port("tokens", from_data, grid, 2, kDLInt, 64);
  const fastllm_port hidden = port("hidden", 0, grid, 2, kDLFloat, 32);
  const fastllm_port loss =
      port("loss", FASTLLM_PORT_LOSS | FASTLLM_PORT_SUM, grid, 0, kDLFloat, 32);
  int64_t i;
  fastllm_status status = FASTLLM_OK;
  for (i = 0; i < model->layers && !status; ++i) {
    char name[64];
    fastllm_layer layer;
    fastllm_param param;
    memset(&layer, 0, sizeof layer);
    memset(&param, 0, sizeof param);
    snprintf(name, sizeof name, "layers.%lld", (long long)i);
    layer.size = sizeof layer;
    layer.name = name;
    layer.cost = 1;
    status = emit->layer(sink, &layer);
    if (!status) status = emit->input(sink, i == 0 ? &tokens : &hidden);
    if (!status) status = emit->output(sink, i + 1 == model->layers ? &loss : &hidden);
    snprintf(name, sizeof name, "layers.%lld.weight", (long long)i);
    param.size = sizeof param;
    param.name = name;
    param.ndim = 1;
    param.shape = one;
    param.init = FASTLLM_INIT_ONES;
    param.init_min = param.init_max = NAN;
    param.shard_blocks = 1;
    if (!status) status = emit->param(sink, &param);
  }
  return status;
}

static fastllm_status bind(fastllm_model* model, int32_t layer, const DLTensor* const* weights,
                           DLTensor* const* gradients) {
  (void)model, (void)layer, (void)weights, (void)gradients;
  return FASTLLM_OK;
}

static fastllm_status forward(fastllm_model* model, int32_t layer, const fastllm_call* call,
                              const DLTensor* const* inputs, DLTensor* const* outputs,
                              fastllm_saved** saved) {
  (void)model, (void)layer, (void)call, (void)inputs, (void)outputs, (void)saved;
  return FASTLLM_OK;
}

static fastllm_status backward(fastllm_model* model, int32_t layer, const fastllm_call* call,
                               fastllm_saved* saved, const DLTensor* const* d_outputs,
                               DLTensor* const* d_inputs) {
  (void)model, (void)layer, (void)call, (void)saved, (void)d_outputs, (void)d_inputs;
  return FASTLLM_OK;
}

static void discard(fastllm_model* model, fastllm_saved* saved, void* stream) {
  (void)model, (void)saved, (void)stream;
}

FASTLLM_MANIFEST("abi=0\nid=empty\nversion=0.1.0\nmodel=empty\nlicense=Apache-2.0\n");

static const fastllm_model_api api = {sizeof api, "empty", fields,   create,  destroy, describe,
                                      bind,       forward, backward, discard, NULL,    NULL};

static const void* get(const char* id, int32_t index) {
  return index == 0 && strcmp(id, FASTLLM_MODEL) == 0 ? &api : NULL;
}

static const fastllm_plugin plugin = {sizeof plugin, FASTLLM_MINOR, fastllm_manifest, get, NULL};

const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* offered) {
  host = offered;
  return &plugin;
}
