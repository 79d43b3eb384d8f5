/* A plugin that breaks one promise of the contract at a time: the environment variable
 * FASTLLM_BAD names which. Without it, the plugin is a correct one: a model with one layer, and
 * a checkpoint format that holds nothing. Tests also patch copies of the built file (another
 * manifest, another machine), so lines of the manifest keep their length. */
#define _GNU_SOURCE
#include <fastllm/checkpoint_format.h>
#include <fastllm/converter.h>
#include <fastllm/model.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const fastllm_host* host;

static int is(const char* name) {
  const char* mode = getenv("FASTLLM_BAD");
  return mode && strcmp(mode, name) == 0;
}

/* "door_size=7": whether the mode is `name`, and its number. */
static int has_number(const char* name, uint32_t* number) {
  const char* mode = getenv("FASTLLM_BAD");
  size_t length = strlen(name);
  if (!mode || strncmp(mode, name, length) != 0 || mode[length] != '=') return 0;
  *number = (uint32_t)strtoul(mode + length + 1, NULL, 10);
  return 1;
}

/* The first `size` bytes of a table, with nothing readable after them. */
static void* cut(const void* table, uint32_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char* pages =
      (char*)mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect(pages + page, page, PROT_NONE);
  memcpy(pages + page - size, table, size);
  memcpy(pages + page - size, &size, sizeof size);
  return pages + page - size;
}

static volatile int zero = 0;
static int* volatile nowhere = NULL;

static int recurse(volatile char* above) {
  volatile char room[4096];
  room[0] = above ? above[0] : 0;
  if (zero > 0) return 0; /* never */
  return recurse(room) + room[0];
}

/* Crashes on purpose: a sanitizer must not get there first. */
#define UNCHECKED __attribute__((no_sanitize("undefined")))

UNCHECKED static void* crash_thread(void* unused) {
  *nowhere = 1;
  return unused;
}

/* Ways to end the process, in any function. */
UNCHECKED static void end(const char* where) {
  const char* mode = getenv("FASTLLM_BAD");
  const char* way = mode ? strchr(mode, ':') : NULL;
  if (!way || strncmp(mode, where, (size_t)(way - mode)) != 0 || where[way - mode] != '\0') return;
  ++way;
  if (strcmp(way, "segfault") == 0) *nowhere = 1;
  if (strcmp(way, "divide") == 0) zero = 7 / zero;
  if (strcmp(way, "abort") == 0) abort();
  if (strcmp(way, "exit") == 0) exit(0);
  if (strcmp(way, "stack") == 0) zero = recurse(NULL);
  if (strcmp(way, "illegal") == 0) __builtin_trap();
  if (strcmp(way, "thread") == 0) {
    pthread_t thread;
    pthread_create(&thread, NULL, crash_thread, NULL);
    pthread_join(thread, NULL);
  }
}

/* ------------------------------------------------------------------ describing */

static fastllm_status push_field(const fastllm_emit* emit, fastllm_sink* sink, const char* path,
                                 int32_t type, const char* fallback, uint32_t flags) {
  static const char* const choices[] = {"a", "b", NULL};
  fastllm_field field;
  memset(&field, 0, sizeof field);
  field.size = sizeof field;
  field.flags = flags;
  field.path = path;
  field.type = type;
  field.fallback = fallback;
  field.minimum = is("field_bounds") ? 2 : NAN;
  field.maximum = is("field_bounds") ? 1 : NAN;
  field.choices = is("field_choice") ? choices : NULL;
  field.help = is("field_no_help") ? NULL : "A number.";
  return emit->field(sink, &field);
}

static fastllm_status fields(const fastllm_emit* emit, fastllm_sink* sink) {
  end("fields");
  if (is("field_null_path")) return push_field(emit, sink, NULL, FASTLLM_I64, "1", 0);
  if (is("field_type")) return push_field(emit, sink, "width", 99, "1", 0);
  if (is("field_default_type")) return push_field(emit, sink, "width", FASTLLM_I64, "wide", 0);
  if (is("field_default_yaml")) return push_field(emit, sink, "width", FASTLLM_I64, "[1", 0);
  if (is("field_unknown_flag")) return push_field(emit, sink, "width", FASTLLM_I64, "1", 1u << 20);
  if (is("field_ignored_refusal")) {
    (void)push_field(emit, sink, "no spaces", FASTLLM_I64, "1", 0);
    return FASTLLM_OK;
  }
  if (is("field_null")) return emit->field(sink, NULL);
  if (is("field_null_sink")) return emit->field(NULL, NULL);
  if (is("field_other")) return emit->pair(sink, "a", "b", "c");
  if (is("field_twice")) (void)push_field(emit, sink, "width", FASTLLM_I64, "1", 0);
  (void)push_field(emit, sink, "width", FASTLLM_I64, "1", 1u << 10 /* an unknown hint: ignored */);
  return push_field(emit, sink, "computed", FASTLLM_F64, "null", 0);
}

static fastllm_status push_layer(const fastllm_emit* emit, fastllm_sink* sink, const char* name) {
  fastllm_layer layer;
  memset(&layer, 0, sizeof layer);
  layer.size = sizeof layer;
  layer.name = name;
  layer.cost = is("layer_cost") ? NAN : 1;
  return emit->layer(sink, &layer);
}

typedef fastllm_status (*push_function)(fastllm_sink*, const fastllm_port*);

static fastllm_status push_port(push_function push, fastllm_sink* sink, const char* name,
                                uint32_t flags, int32_t ndim, int64_t first, uint8_t code,
                                uint8_t bits) {
  int64_t shape[3];
  fastllm_port port;
  memset(&port, 0, sizeof port);
  shape[0] = first;
  shape[1] = is("port_overflow") ? INT64_MAX / 2 : FASTLLM_DIM_SEQUENCE;
  shape[2] = INT64_MAX / 2;
  port.size = sizeof port;
  port.flags = flags;
  port.name = name;
  port.dtype.code = code;
  port.dtype.bits = bits;
  port.dtype.lanes = 1;
  port.ndim = ndim;
  port.shape = shape;
  return push(sink, &port);
}

static fastllm_status push_param(const fastllm_emit* emit, fastllm_sink* sink, const char* name,
                                 int64_t rows) {
  static const double scales[3] = {1, 1, 1};
  fastllm_param param;
  memset(&param, 0, sizeof param);
  param.size = sizeof param;
  param.name = name;
  param.ndim = is("param_ndim") ? 1000 : 1;
  param.shape = is("param_null_shape") ? NULL : &rows;
  param.init_min = param.init_max = NAN;
  param.init = is("param_init")          ? 42
               : is("param_plugin_init") ? FASTLLM_INIT_PLUGIN
                                         : FASTLLM_INIT_ZEROS;
  param.weight_decay = 1;
  param.lr_scale_count = is("param_scales") || is("param_null_scales") ? 3 : 0;
  param.lr_scales = is("param_scales") ? scales : NULL;
  return emit->param(sink, &param);
}

static fastllm_status describe(fastllm_model* model, const fastllm_emit* emit, fastllm_sink* sink) {
  fastllm_status status;
  (void)model;
  end("describe");
  if (is("no_layers")) return FASTLLM_OK;
  if (is("describe_unknown_status")) return 77;
  if (is("param_before_layer")) return push_param(emit, sink, "weight", 4);
  if (is("field_in_describe")) return push_field(emit, sink, "width", FASTLLM_I64, "1", 0);
  if (is("endless_layers")) {
    for (;;) {
      if ((status = push_layer(emit, sink, "again"))) return status;
    }
  }
  status = push_layer(emit, sink,
                      is("layer_null_name")  ? NULL
                      : is("layer_bad_name") ? "layer\nzero"
                                             : "layer.0");
  if (status) return status;
  if (is("port_null")) return emit->input(sink, NULL);
  status = push_port(
      emit->input, sink,
      is("port_null_name")                          ? NULL
      : is("unknown_wiring") || is("cyclic_wiring") ? "later"
                                                    : "tokens",
      is("unknown_wiring") || is("cyclic_wiring") ? 0 : FASTLLM_PORT_BATCH | FASTLLM_PORT_NO_GRAD,
      is("port_overflow") ? 3 : 2,
      is("port_negative_dim") ? -77
      : is("port_zero_dim")   ? 0
                              : FASTLLM_DIM_BATCH,
      is("port_dtype") ? 99 : kDLInt, 64);
  if (!status && is("duplicate_ports")) {
    status = push_port(emit->input, sink, "tokens", FASTLLM_PORT_BATCH | FASTLLM_PORT_NO_GRAD, 2,
                       FASTLLM_DIM_BATCH, kDLInt, 64);
  }
  if (!status && is("cyclic_wiring"))
    status = push_port(emit->output, sink, "later", 0, 2, FASTLLM_DIM_BATCH, kDLInt, 64);
  if (!status) {
    status = push_port(emit->output, sink, "loss",
                       is("port_unknown_flag") ? 1u << 30 : FASTLLM_PORT_LOSS,
                       is("loss_not_scalar") ? 2 : 0, FASTLLM_DIM_BATCH, kDLFloat, 32);
  }
  if (!status && is("any_output"))
    status = push_port(emit->output, sink, "any", 0, 1, FASTLLM_DIM_ANY, kDLFloat, 32);
  if (!status)
    status = push_param(emit, sink, is("param_null_name") ? NULL : "weight",
                        is("param_negative_dim") ? -4
                        : is("param_zero_dim")   ? 0
                                                 : 4);
  if (!status && is("param_twice")) status = push_param(emit, sink, "weight", 4);
  if (!status && is("tied_wrong_shape")) {
    status = push_layer(emit, sink, "layer.1");
    if (!status) status = push_param(emit, sink, "weight", 5);
  }
  if (is("describe_ignored_refusal")) return push_layer(emit, sink, NULL), FASTLLM_OK;
  return status;
}

/* ------------------------------------------------------------------ the model */

static char the_model, the_saved;

static fastllm_status create(fastllm_config* config, fastllm_model** out) {
  double half = 0.5;
  int64_t width = 0;
  end("create");
  if (is("create_nothing")) return FASTLLM_OK;
  if (is("create_invalid"))
    return host->fail(FASTLLM_INVALID, "width: expected an even number, found 1");
  if (is("create_silent")) return FASTLLM_INVALID;
  if (is("create_fail_ok"))
    return host->fail(FASTLLM_OK, "said OK"); /* fail() must not be talked into success */
  if (is("set_undeclared")) return host->config_set(config, "depth", FASTLLM_F64, &half, 1);
  if (is("set_given")) return host->config_set(config, "width", FASTLLM_F64, &half, 1);
  if (is("get_wrong_type")) return host->config_get(config, "width", FASTLLM_BOOL, &width);
  if (host->config_set(config, "computed", FASTLLM_F64, &half, 1))
    return host->fail(FASTLLM_INTERNAL, "cannot fill a default");
  *out = (fastllm_model*)&the_model;
  return FASTLLM_OK;
}

static void destroy(fastllm_model* model) {
  (void)model;
  end("destroy");
}

static fastllm_status bind(fastllm_model* model, int32_t layer, const DLTensor* const* weights,
                           DLTensor* const* gradients) {
  (void)model, (void)layer, (void)weights, (void)gradients;
  return FASTLLM_OK;
}

static void* log_thread(void* unused) {
  host->log(1, "from a thread of its own");
  host->fail(FASTLLM_INTERNAL, "a text that belongs to another thread");
  return unused;
}

static fastllm_status forward(fastllm_model* model, int32_t layer, const fastllm_call* call,
                              const DLTensor* const* inputs, DLTensor* const* outputs,
                              fastllm_saved** saved) {
  int64_t i;
  (void)model, (void)layer, (void)inputs;
  end("forward");
  if (is("silent")) return FASTLLM_INTERNAL;
  if (is("unknown_status")) return 77;
  if (is("negative_status")) return host->fail(-5, "minus five");
  if (is("cancelled")) return FASTLLM_CANCELLED;
  if (is("null_text")) return host->fail(FASTLLM_INTERNAL, NULL);
  if (is("fail_then_ok")) {
    (void)host->fail(FASTLLM_INTERNAL, "never mind");
    return FASTLLM_OK;
  }
  if (is("own_thread")) {
    pthread_t thread;
    pthread_create(&thread, NULL, log_thread, NULL);
    pthread_join(thread, NULL);
    return FASTLLM_INTERNAL;
  }
  if (is("change_shape")) outputs[0]->ndim = 3;
  if (is("change_data")) outputs[0]->data = &the_model;
  if (is("saved_unasked")) *saved = (fastllm_saved*)&the_saved;
  if (is("write_past")) {
    for (i = 0; i < 1 << 20; ++i) ((float*)outputs[0]->data)[i] = 0;
  }
  if (is("log")) host->log(2, "a word of warning");
  if (call->flags & FASTLLM_SAVE) *saved = (fastllm_saved*)&the_saved;
  return FASTLLM_OK;
}

static fastllm_status backward(fastllm_model* model, int32_t layer, const fastllm_call* call,
                               fastllm_saved* saved, const DLTensor* const* d_outputs,
                               DLTensor* const* d_inputs) {
  (void)model, (void)layer, (void)call, (void)saved, (void)d_outputs;
  end("backward");
  if (is("change_gradient")) d_inputs[0]->byte_offset = 8;
  return FASTLLM_OK;
}

static void discard(fastllm_model* model, fastllm_saved* saved, void* stream) {
  (void)model, (void)saved, (void)stream;
  end("discard");
}

static fastllm_status flops(fastllm_model* model, int32_t layer, int64_t batch, int64_t sequence,
                            double* in_forward, double* recomputed) {
  (void)model, (void)layer, (void)batch, (void)sequence;
  *in_forward = is("flops_nan") ? NAN : 1;
  *recomputed = 0;
  return FASTLLM_OK;
}

static const fastllm_model_api good_model_api = {sizeof(fastllm_model_api),
                                                 "bad",
                                                 fields,
                                                 create,
                                                 destroy,
                                                 describe,
                                                 bind,
                                                 forward,
                                                 backward,
                                                 discard,
                                                 NULL,
                                                 flops};

/* ------------------------------------------------------------------ the format */

static char the_reader, the_writer;

static fastllm_status no_fields(const fastllm_emit* emit, fastllm_sink* sink) {
  (void)emit, (void)sink;
  return FASTLLM_OK;
}
static fastllm_status detect(const char* path, int32_t* score) {
  (void)path;
  end("detect");
  *score = is("detect_score") ? 500 : 50;
  return FASTLLM_OK;
}
static fastllm_status open_reader(const char* path, fastllm_config* metadata,
                                  fastllm_reader** out) {
  static const char* model = "bad";
  (void)path;
  if (is("open_nothing")) return FASTLLM_OK;
  *out = (fastllm_reader*)&the_reader;
  return host->config_set(metadata, "model", FASTLLM_STR, &model, 1);
}
static fastllm_status list_tensors(fastllm_reader* reader, const fastllm_emit* emit,
                                   fastllm_sink* sink) {
  int64_t shape[1];
  fastllm_port port;
  (void)reader;
  memset(&port, 0, sizeof port);
  shape[0] = is("list_negative_dim") ? -1 : 0;
  port.size = sizeof port;
  port.name = is("list_null_name") ? NULL : "empty";
  port.dtype.code = kDLFloat;
  port.dtype.bits = 32;
  port.dtype.lanes = 1;
  port.ndim = 1;
  port.shape = shape;
  return is("list_input") ? emit->input(sink, &port) : emit->tensor(sink, "weights", &port);
}
static fastllm_status read_tensor(fastllm_reader* reader, const char* state, const char* name,
                                  const fastllm_box* box, DLTensor* into) {
  (void)reader, (void)state, (void)name, (void)box;
  end("read");
  if (is("read_change")) into->ndim = 0;
  if (is("read_fail"))
    return host->fail(FASTLLM_DATA_LOSS, "expected 16 bytes in weights.bin, found 3");
  return FASTLLM_OK;
}
static void close_reader(fastllm_reader* reader) { (void)reader; }
static fastllm_status create_writer(const char* directory, const fastllm_config* metadata,
                                    int32_t rank, fastllm_writer** out) {
  (void)directory, (void)metadata, (void)rank;
  if (is("writer_nothing")) return FASTLLM_OK;
  *out = (fastllm_writer*)&the_writer;
  return FASTLLM_OK;
}
static fastllm_status declare(fastllm_writer* writer, const char* state, const fastllm_port* port) {
  (void)writer, (void)state, (void)port;
  return FASTLLM_OK;
}
static fastllm_status write_tensor(fastllm_writer* writer, const char* state, const char* name,
                                   const fastllm_box* box, const DLTensor* from) {
  (void)writer, (void)state, (void)name, (void)box, (void)from;
  return FASTLLM_OK;
}
static fastllm_status finish(fastllm_writer* writer, int32_t keep) {
  (void)writer;
  host->log(1, keep ? "finished and kept" : "finished and not kept");
  return is("finish_fail") ? host->fail(FASTLLM_UNAVAILABLE, "no space left") : FASTLLM_OK;
}

static const fastllm_format_api good_format_api = {sizeof(fastllm_format_api),
                                                   FASTLLM_CAN_LOAD | FASTLLM_CAN_SAVE,
                                                   "badfmt",
                                                   NULL,
                                                   1,
                                                   no_fields,
                                                   detect,
                                                   open_reader,
                                                   NULL,
                                                   list_tensors,
                                                   read_tensor,
                                                   NULL,
                                                   close_reader,
                                                   create_writer,
                                                   declare,
                                                   write_tensor,
                                                   NULL,
                                                   finish};

/* ------------------------------------------------------------------ the door */

FASTLLM_MANIFEST(
    "abi=0\nid=bad\nversion=0.0.1\nmodel=bad\nformat=badfmt\ncaps=load,save\nneeds=torch==1.0.0\n");

/* What the host is given: made anew at each greeting, then spoiled. */
static fastllm_model_api model_api;
static fastllm_format_api format_api;
static fastllm_plugin plugin;

static const void* get(const char* id, int32_t index) {
  uint32_t number;
  if (is("endless_get") && strcmp(id, FASTLLM_MODEL) == 0) return &model_api;
  if (index != 0) return NULL;
  if (strcmp(id, FASTLLM_MODEL) == 0) {
    if (is("no_model")) return NULL;
    (void)has_number("model_size", &model_api.size);
    if (has_number("model_cut", &number)) return cut(&model_api, number);
    if (is("null_type")) model_api.type = NULL;
    if (is("bad_type")) model_api.type = "two words";
    if (is("null_forward")) model_api.forward = NULL;
    return &model_api;
  }
  if (strcmp(id, FASTLLM_FORMAT) == 0) {
    if (is("null_read")) format_api.read = NULL;
    if (is("no_caps")) format_api.caps = 0;
    if (is("other_caps")) format_api.caps |= FASTLLM_CAN_SLICE;
    if (is("caps_without_shards")) format_api.caps |= FASTLLM_CAN_SHARDS;
    return &format_api;
  }
  return NULL;
}

static void shut_down(void) {
  end("shutdown");
  if (is("log_shutdown")) host->log(1, "shut down");
}

static const fastllm_plugin good_plugin = {sizeof(fastllm_plugin), FASTLLM_MINOR, fastllm_manifest,
                                           get, shut_down};

const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* offered) {
  uint32_t number;
  end("door");
  host = offered;
  model_api = good_model_api;
  format_api = good_format_api;
  plugin = good_plugin;
  if (is("refuse"))
    return host->fail(FASTLLM_UNSUPPORTED, "expected host->teleport, found an older host"),
           (const fastllm_plugin*)NULL;
  if (is("refuse_silently")) return NULL;
  if (is("null_get")) plugin.get = NULL;
  if (is("null_manifest")) plugin.manifest = NULL;
  if (is("other_manifest")) plugin.manifest = "abi=0\nid=good\nversion=9\n";
  if (has_number("door_size", &plugin.size)) return &plugin;
  if (has_number("door_cut", &number)) return (const fastllm_plugin*)cut(&plugin, number);
  return &plugin;
}

__attribute__((constructor)) static void before_everything(void) { end("constructor"); }
