/* A model plugin in plain C99 that includes <fastllm/...> alone: proof that the contract needs
 * neither C++ nor LibTorch. A bigram language model with hand-written gradients: embedding ->
 * linear, tanh -> linear, softmax, cross-entropy. Holds no state outside of its handles. Start
 * reading at the end, with the door. */
#include <fastllm/model.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fastllm_host* host; /* set once by the door; stays */

/* ------------------------------------------------------------------ small helpers */

static fastllm_status fail(fastllm_status code, const char* text) { return host->fail(code, text); }

/* float32, row-major, on the CPU: checked in bind(), and by describe() for all ports. */
static float* floats(const DLTensor* tensor) {
  return tensor ? (float*)((char*)tensor->data + tensor->byte_offset) : NULL;
}
static const int64_t* integers(const DLTensor* tensor) {
  return (const int64_t*)((char*)tensor->data + tensor->byte_offset);
}

static int64_t elements(const DLTensor* tensor) {
  int64_t count = 1;
  int32_t i;
  for (i = 0; i < tensor->ndim; ++i) count *= tensor->shape[i];
  return count;
}

/* out[n, o] = bias[o] + sum_i in[n, i] * weight[o, i] */
static void linear(int64_t n, int64_t in_size, int64_t out_size, const float* in,
                   const float* weight, const float* bias, float* out) {
  int64_t row, o, i;
  for (row = 0; row < n; ++row) {
    for (o = 0; o < out_size; ++o) {
      const float *x = in + row * in_size, *w = weight + o * in_size;
      float sum = bias[o];
      for (i = 0; i < in_size; ++i) sum += x[i] * w[i];
      out[row * out_size + o] = sum;
    }
  }
}

/* Any of d_weight, d_bias, d_in may be NULL: not wanted. d_weight and d_bias are added to, d_in
 * is written. */
static void linear_backward(int64_t n, int64_t in_size, int64_t out_size, const float* in,
                            const float* weight, const float* d_out, float* d_weight, float* d_bias,
                            float* d_in) {
  int64_t row, o, i;
  if (d_in) memset(d_in, 0, sizeof(float) * (size_t)(n * in_size));
  for (row = 0; row < n; ++row) {
    const float* x = in + row * in_size;
    for (o = 0; o < out_size; ++o) {
      float d = d_out[row * out_size + o];
      if (d_bias) d_bias[o] += d;
      if (d_weight) {
        float* dw = d_weight + o * in_size;
        for (i = 0; i < in_size; ++i) dw[i] += d * x[i];
      }
      if (d_in) {
        const float* w = weight + o * in_size;
        float* dx = d_in + row * in_size;
        for (i = 0; i < in_size; ++i) dx[i] += d * w[i];
      }
    }
  }
}

/* ------------------------------------------------------------------ the model */

enum { EMBEDDING, HIDDEN, HEAD, LAYERS };
enum { MAX_PARAMETERS = 2 };
static const int parameter_count[LAYERS] = {1, 2, 2};

struct fastllm_model {
  int64_t vocabulary, width, inner;
  double deviation;
  /* What bind() brought. The DLTensors are borrowed for the call; the addresses of their data
   * stay. */
  const float* weight[LAYERS][MAX_PARAMETERS];
  float* gradient[LAYERS][MAX_PARAMETERS]; /* NULL: frozen, or no training */
};

/* Data of inputs and of KEEP outputs stays while this is alive; what else backward needs is
 * here. */
struct fastllm_saved {
  int64_t rows;
  const int64_t* ids; /* tokens, or labels */
  const float *in, *out;
  struct DLManagedTensorVersioned* probabilities; /* the head's; host memory */
};

static void free_saved(fastllm_saved* saved) {
  if (saved && saved->probabilities) saved->probabilities->deleter(saved->probabilities);
  free(saved);
}

static fastllm_status push_field(const fastllm_emit* emit, fastllm_sink* sink, const char* path,
                                 int32_t type, const char* fallback, double minimum,
                                 const char* help) {
  fastllm_field field;
  memset(&field, 0, sizeof field);
  field.size = sizeof field;
  field.flags = FASTLLM_FIELD_ARCHITECTURE;
  field.path = path;
  field.type = type;
  field.fallback = fallback;
  field.minimum = minimum;
  field.maximum = NAN;
  field.help = help;
  return emit->field(sink, &field);
}

static fastllm_status fields(const fastllm_emit* emit, fastllm_sink* sink) {
  fastllm_status status =
      push_field(emit, sink, "vocab_size", FASTLLM_I64, "256", 2, "Number of token ids.");
  if (!status)
    status = push_field(emit, sink, "hidden_size", FASTLLM_I64, "32", 1, "Width of the embedding.");
  if (!status)
    status = push_field(emit, sink, "inner_size", FASTLLM_I64, "64", 1, "Width of the tanh layer.");
  if (!status)
    status =
        push_field(emit, sink, "init_std", FASTLLM_F64, "0.1", 0, "Deviation of initial weights.");
  return status;
}

static void destroy(fastllm_model* model) { free(model); }

static fastllm_status create(fastllm_config* config, fastllm_model** out) {
  fastllm_status status;
  fastllm_model* model = (fastllm_model*)calloc(1, sizeof *model);
  if (!model) return fail(FASTLLM_OUT_OF_MEMORY, "out of memory");
  status = host->config_get(config, "vocab_size", FASTLLM_I64, &model->vocabulary);
  if (!status) status = host->config_get(config, "hidden_size", FASTLLM_I64, &model->width);
  if (!status) status = host->config_get(config, "inner_size", FASTLLM_I64, &model->inner);
  if (!status) status = host->config_get(config, "init_std", FASTLLM_F64, &model->deviation);
  if (!status &&
      (model->vocabulary > INT32_MAX || model->width > INT32_MAX || model->inner > INT32_MAX)) {
    status = fail(FASTLLM_INVALID, "vocab_size: expected sizes below 2^31, found a larger one");
  }
  if (status) {
    destroy(model);
    return status;
  }
  *out = model;
  return FASTLLM_OK;
}

static fastllm_status push_layer(const fastllm_emit* emit, fastllm_sink* sink, const char* name,
                                 double cost) {
  fastllm_layer layer;
  memset(&layer, 0, sizeof layer);
  layer.size = sizeof layer;
  layer.name = name;
  layer.cost = cost;
  return emit->layer(sink, &layer);
}

/* last: the width of the last dimension; 0: the shape is [batch, sequence]; -1: a scalar. */
static fastllm_port port(const char* name, uint32_t flags, int is_integer, int64_t last,
                         int64_t shape[3]) {
  fastllm_port result;
  memset(&result, 0, sizeof result);
  shape[0] = FASTLLM_DIM_BATCH;
  shape[1] = FASTLLM_DIM_SEQUENCE;
  shape[2] = last;
  result.size = sizeof result;
  result.flags = flags;
  result.name = name;
  result.dtype.code = is_integer ? kDLInt : kDLFloat;
  result.dtype.bits = is_integer ? 64 : 32;
  result.dtype.lanes = 1;
  result.ndim = last < 0 ? 0 : last == 0 ? 2 : 3;
  result.shape = shape;
  return result;
}

static fastllm_status push_param(const fastllm_emit* emit, fastllm_sink* sink, const char* name,
                                 int64_t rows, int64_t columns, double deviation) {
  int64_t shape[2];
  fastllm_param param;
  memset(&param, 0, sizeof param);
  shape[0] = rows;
  shape[1] = columns;
  param.size = sizeof param;
  param.name = name;
  param.ndim = columns > 0 ? 2 : 1;
  param.shape = shape;
  param.init = columns > 0 ? FASTLLM_INIT_NORMAL : FASTLLM_INIT_ZEROS;
  param.init_b = deviation;
  param.init_min = param.init_max = NAN;
  param.shard_blocks = 1;
  param.weight_decay = columns > 0 ? 1 : 0;
  return emit->param(sink, &param);
}

static fastllm_status describe(fastllm_model* model, const fastllm_emit* emit, fastllm_sink* sink) {
  const uint32_t from_data = FASTLLM_PORT_BATCH | FASTLLM_PORT_NO_GRAD;
  int64_t shape[6][3];
  fastllm_port tokens = port("tokens", from_data, 1, 0, shape[0]);
  fastllm_port hidden = port("hidden", 0, 0, model->width, shape[1]);
  fastllm_port features = port("features", FASTLLM_PORT_KEEP, 0, model->inner, shape[2]);
  fastllm_port labels = port("labels", from_data, 1, 0, shape[3]);
  fastllm_port loss = port("loss", FASTLLM_PORT_LOSS | FASTLLM_PORT_SUM, 0, -1, shape[4]);
  fastllm_port logits =
      port("logits", FASTLLM_PORT_NO_GRAD | FASTLLM_PORT_OPTIONAL, 0, model->vocabulary, shape[5]);
  fastllm_status status = push_layer(emit, sink, "embedding", 0.1);
  if (!status) status = emit->input(sink, &tokens);
  if (!status) status = emit->output(sink, &hidden);
  if (!status)
    status = push_param(emit, sink, "embedding.weight", model->vocabulary, model->width,
                        model->deviation);
  if (!status) status = push_layer(emit, sink, "hidden", 1);
  if (!status) status = emit->input(sink, &hidden);
  if (!status) status = emit->output(sink, &features);
  if (!status)
    status = push_param(emit, sink, "hidden.weight", model->inner, model->width, model->deviation);
  if (!status) status = push_param(emit, sink, "hidden.bias", model->inner, 0, 0);
  if (!status) status = push_layer(emit, sink, "head", 2);
  if (!status) status = emit->input(sink, &features);
  if (!status) status = emit->input(sink, &labels);
  if (!status) status = emit->output(sink, &loss);
  if (!status) status = emit->output(sink, &logits);
  if (!status)
    status =
        push_param(emit, sink, "head.weight", model->vocabulary, model->inner, model->deviation);
  if (!status) status = push_param(emit, sink, "head.bias", model->vocabulary, 0, 0);
  return status;
}

static int is_float32_on_cpu(const DLTensor* tensor) {
  return tensor->dtype.code == kDLFloat && tensor->dtype.bits == 32 && tensor->dtype.lanes == 1 &&
         tensor->device.device_type == kDLCPU;
}

static fastllm_status bind(fastllm_model* model, int32_t layer, const DLTensor* const* weights,
                           DLTensor* const* gradients) {
  int i;
  for (i = 0; i < parameter_count[layer]; ++i) {
    if (!is_float32_on_cpu(weights[i]) || (gradients[i] && !is_float32_on_cpu(gradients[i]))) {
      return fail(
          FASTLLM_UNSUPPORTED,
          "expected float32 on the CPU for weights and gradients, found another type or device; "
          "set model.distributed.training_dtype to float32");
    }
  }
  for (i = 0; i < parameter_count[layer]; ++i) {
    model->weight[layer][i] = floats(weights[i]);
    model->gradient[layer][i] = floats(gradients[i]);
  }
  return FASTLLM_OK;
}

/* ------------------------------------------------------------------ forward */

static fastllm_status embed(const fastllm_model* model, int64_t rows, const int64_t* tokens,
                            float* hidden) {
  int64_t row;
  for (row = 0; row < rows; ++row) {
    if (tokens[row] < 0 || tokens[row] >= model->vocabulary) {
      char text[128];
      snprintf(text, sizeof text, "expected token ids from 0 to %lld, found %lld",
               (long long)model->vocabulary - 1, (long long)tokens[row]);
      return fail(FASTLLM_INVALID, text);
    }
    memcpy(hidden + row * model->width, model->weight[EMBEDDING][0] + tokens[row] * model->width,
           sizeof(float) * (size_t)model->width);
  }
  return FASTLLM_OK;
}

/* Turns logits into probabilities in place and returns the summed loss. A label below 0 counts
 * nothing. */
static fastllm_status cross_entropy(int64_t rows, int64_t vocabulary, const int64_t* labels,
                                    float* logits, double* loss) {
  int64_t row, v;
  double total = 0;
  for (row = 0; row < rows; ++row) {
    float *x = logits + row * vocabulary, largest = x[0];
    double sum = 0;
    if (labels[row] >= vocabulary)
      return fail(FASTLLM_INVALID, "expected labels below vocab_size, found a larger one");
    for (v = 1; v < vocabulary; ++v) {
      if (x[v] > largest) largest = x[v];
    }
    for (v = 0; v < vocabulary; ++v) sum += exp((double)x[v] - largest);
    if (labels[row] >= 0) total += largest + log(sum) - x[labels[row]];
    for (v = 0; v < vocabulary; ++v) x[v] = (float)(exp((double)x[v] - largest) / sum);
  }
  *loss = total;
  return FASTLLM_OK;
}

static fastllm_status score(const fastllm_model* model, const fastllm_call* call, int64_t rows,
                            const DLTensor* labels, const float* features, const DLTensor* loss,
                            const DLTensor* logits,
                            struct DLManagedTensorVersioned** probabilities) {
  int64_t shape[2], strides[2];
  DLTensor like;
  double total = 0;
  fastllm_status status;
  memset(&like, 0, sizeof like);
  shape[0] = rows;
  shape[1] = strides[0] = model->vocabulary;
  strides[1] = 1;
  like.device = labels->device;
  like.ndim = 2;
  like.dtype.code = kDLFloat;
  like.dtype.bits = 32;
  like.dtype.lanes = 1;
  like.shape = shape;
  like.strides = strides;
  status = host->alloc(&like, call->stream, probabilities);
  if (status) return status;
  linear(rows, model->inner, model->vocabulary, features, model->weight[HEAD][0],
         model->weight[HEAD][1], floats(&(*probabilities)->dl_tensor));
  if (logits)
    memcpy(floats(logits), floats(&(*probabilities)->dl_tensor),
           sizeof(float) * (size_t)(rows * model->vocabulary));
  status = cross_entropy(rows, model->vocabulary, integers(labels),
                         floats(&(*probabilities)->dl_tensor), &total);
  if (!status) *floats(loss) = (float)total;
  return status;
}

static fastllm_status forward(fastllm_model* model, int32_t layer, const fastllm_call* call,
                              const DLTensor* const* inputs, DLTensor* const* outputs,
                              fastllm_saved** out) {
  fastllm_status status = FASTLLM_OK;
  fastllm_saved* saved = (fastllm_saved*)calloc(1, sizeof *saved);
  if (!saved) return fail(FASTLLM_OUT_OF_MEMORY, "out of memory");
  if (layer == EMBEDDING) {
    saved->rows = elements(inputs[0]);
    saved->ids = integers(inputs[0]);
    status = embed(model, saved->rows, saved->ids, floats(outputs[0]));
  } else if (layer == HIDDEN) {
    int64_t i;
    saved->rows = elements(inputs[0]) / model->width;
    saved->in = floats(inputs[0]);
    saved->out = floats(outputs[0]);
    linear(saved->rows, model->width, model->inner, saved->in, model->weight[HIDDEN][0],
           model->weight[HIDDEN][1], floats(outputs[0]));
    for (i = 0; i < saved->rows * model->inner; ++i)
      floats(outputs[0])[i] = tanhf(floats(outputs[0])[i]);
  } else {
    saved->rows = elements(inputs[1]);
    saved->in = floats(inputs[0]);
    saved->ids = integers(inputs[1]);
    status = score(model, call, saved->rows, inputs[1], saved->in, outputs[0], outputs[1],
                   &saved->probabilities);
  }
  if (status || !(call->flags & FASTLLM_SAVE)) {
    free_saved(saved);
    return status;
  }
  *out = saved;
  return FASTLLM_OK;
}

/* ------------------------------------------------------------------ backward */

static void embed_backward(const fastllm_model* model, const fastllm_saved* saved,
                           const float* d_hidden) {
  float* d_weight = model->gradient[EMBEDDING][0];
  int64_t row, i;
  if (!d_weight) return;
  for (row = 0; row < saved->rows; ++row) {
    for (i = 0; i < model->width; ++i)
      d_weight[saved->ids[row] * model->width + i] += d_hidden[row * model->width + i];
  }
}

static fastllm_status hidden_backward(const fastllm_model* model, const fastllm_saved* saved,
                                      const float* d_features, float* d_hidden) {
  int64_t count = saved->rows * model->inner, i;
  float* d_linear = (float*)malloc(sizeof(float) * (size_t)(count > 0 ? count : 1));
  if (!d_linear) return fail(FASTLLM_OUT_OF_MEMORY, "out of memory");
  for (i = 0; i < count; ++i) d_linear[i] = d_features[i] * (1 - saved->out[i] * saved->out[i]);
  linear_backward(saved->rows, model->width, model->inner, saved->in, model->weight[HIDDEN][0],
                  d_linear, model->gradient[HIDDEN][0], model->gradient[HIDDEN][1], d_hidden);
  free(d_linear);
  return FASTLLM_OK;
}

static void head_backward(const fastllm_model* model, const fastllm_saved* saved, float d_loss,
                          float* d_features) {
  float* d_logits = floats(
      &saved->probabilities->dl_tensor); /* made in place: this backward is the last to see it */
  int64_t row, v;
  for (row = 0; row < saved->rows; ++row) {
    float* d = d_logits + row * model->vocabulary;
    if (saved->ids[row] < 0) {
      memset(d, 0, sizeof(float) * (size_t)model->vocabulary);
      continue;
    }
    d[saved->ids[row]] -= 1;
    for (v = 0; v < model->vocabulary; ++v) d[v] *= d_loss;
  }
  linear_backward(saved->rows, model->inner, model->vocabulary, saved->in, model->weight[HEAD][0],
                  d_logits, model->gradient[HEAD][0], model->gradient[HEAD][1], d_features);
}

static int64_t parameter_elements(const fastllm_model* model, int32_t layer, int parameter) {
  int64_t rows = layer == HIDDEN ? model->inner : model->vocabulary;
  if (parameter == 1) return rows;
  return rows * (layer == HEAD ? model->inner : model->width);
}

static fastllm_status backward(fastllm_model* model, int32_t layer, const fastllm_call* call,
                               fastllm_saved* saved, const DLTensor* const* d_outputs,
                               DLTensor* const* d_inputs) {
  fastllm_status status = FASTLLM_OK;
  int i;
  /* Everything below adds to the gradients; the ones to be written start from zero. */
  for (i = 0; i < parameter_count[layer]; ++i) {
    if (!call->overwrite || !call->overwrite[i] || !model->gradient[layer][i]) continue;
    memset(model->gradient[layer][i], 0,
           sizeof(float) * (size_t)parameter_elements(model, layer, i));
  }
  if (!d_outputs[0]) { /* zero, and so is everything that follows from it */
    if (layer != EMBEDDING && d_inputs[0])
      memset(floats(d_inputs[0]), 0, sizeof(float) * (size_t)elements(d_inputs[0]));
  } else if (layer == EMBEDDING) {
    embed_backward(model, saved, floats(d_outputs[0]));
  } else if (layer == HIDDEN) {
    status = hidden_backward(model, saved, floats(d_outputs[0]), floats(d_inputs[0]));
  } else {
    head_backward(model, saved, *floats(d_outputs[0]), floats(d_inputs[0]));
  }
  free_saved(saved);
  return status;
}

static void discard(fastllm_model* model, fastllm_saved* saved, void* stream) {
  (void)model;
  (void)stream;
  free_saved(saved);
}

static fastllm_status flops(fastllm_model* model, int32_t layer, int64_t batch, int64_t sequence,
                            double* forward_flops, double* recomputed) {
  double rows = (double)batch * (double)sequence, inner = (double)model->inner;
  *recomputed = 0;
  *forward_flops =
      layer == EMBEDDING
          ? 0
          : 2 * rows * inner * (double)(layer == HIDDEN ? model->width : model->vocabulary);
  return FASTLLM_OK;
}

/* ------------------------------------------------------------------ the door */

FASTLLM_MANIFEST("abi=0\nid=cmlp\nversion=0.1.0\nmodel=cmlp\nlicense=Apache-2.0\n");

static const fastllm_model_api model_api = {sizeof(fastllm_model_api),
                                            "cmlp",
                                            fields,
                                            create,
                                            destroy,
                                            describe,
                                            bind,
                                            forward,
                                            backward,
                                            discard,
                                            NULL /* init */,
                                            flops};

static const void* get(const char* id, int32_t index) {
  return index == 0 && strcmp(id, FASTLLM_MODEL) == 0 ? &model_api : NULL;
}

static const fastllm_plugin plugin = {sizeof(fastllm_plugin), FASTLLM_MINOR, fastllm_manifest, get,
                                      NULL /* shutdown */};

const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* offered) {
  if (!FASTLLM_HAS(fastllm_host, offered, fail)) return NULL;
  if (!FASTLLM_HAS(fastllm_host, offered, alloc) ||
      !FASTLLM_HAS(fastllm_host, offered, config_get)) {
    offered->fail(FASTLLM_UNSUPPORTED,
                  "expected a host that offers alloc and config_get, found an older one");
    return NULL;
  }
  host = offered;
  return &plugin;
}
