/* fastllm/plugin.h - the door, the host, and the words both sides share. C99. Needs DLPack 1.x and
 * nothing else. A plugin's author reads this and the one header of what the plugin offers.
 *
 *  1  A struct that starts with `size` belongs to whoever filled it in; size = its sizeof at their
 *     build. Read a member only if FASTLLM_HAS says it is there. Members are only ever appended.
 *  2  Nobody writes into a struct of the other side. Results leave through scalar out-pointers, a
 *     sink or a visitor.
 *  3  What a call receives is borrowed until the call returns, unless the member says "stays".
 *     Out-pointers are untouched on failure. An array without entries may be NULL.
 *  4  A function returns FASTLLM_OK or a code it got from host->fail() or from a host function.
 *     Nothing throws, longjmps, exits, or changes signal handlers, locale, umask, working
 *     directory, or the current CUDA device for good.
 *  5  A handle is used by one thread at a time, not always the same one; several handles of a kind
 *     may be alive, so no state outside of them. [any] = callable from any thread; everything else
 *     from the thread that is in the call.
 *  6  Device work is ordered on call->stream: inputs are ready in its order, outputs must be; never
 *     synchronise.
 *  7  What is optional has an id, "owner.name/revision", and is asked for with get(). NULL = not
 *     offered.
 *  8  Describing (fields, describe, pairs, rules, list) gives the same on every rank and in every
 *     world: it may depend on the configuration, never on a rank, a rank count or a device.
 *  9  Names are 1 to 512 of A-Z a-z 0-9 _ . - /. All text is NUL-terminated UTF-8.
 */
#ifndef FASTLLM_PLUGIN_H
#define FASTLLM_PLUGIN_H
#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define FASTLLM_MAJOR 0
#define FASTLLM_MINOR 0
/* Whether a table of the other side reaches to the member and has it: FASTLLM_HAS(fastllm_host,
 * host, progress) */
#define FASTLLM_HAS(type, table, member) \
  ((table) && offsetof(type, member) + sizeof((table)->member) <= (table)->size && (table)->member)

/* Numbered as in absl, so that they print familiarly. Other numbers are tolerated and print as
 * they are. */
typedef int32_t fastllm_status;
enum {
  FASTLLM_OK = 0,
  FASTLLM_CANCELLED = 1, /* host->cancelled() said so; no text is due                 */
  FASTLLM_INVALID = 3,   /* what the user gave is wrong: configuration, data, files   */
  FASTLLM_NOT_FOUND = 5,
  FASTLLM_OUT_OF_MEMORY = 8,
  FASTLLM_UNSUPPORTED = 12, /* right, but not here: a dtype, a device, an optional member */
  FASTLLM_INTERNAL = 13,    /* a fault of the code                                        */
  FASTLLM_UNAVAILABLE = 14, /* disk, network: may work another time                       */
  FASTLLM_DATA_LOSS = 15    /* a file is cut, damaged, or lies about itself               */
};

typedef struct fastllm_config fastllm_config; /* host's: one node of the resolved configuration */
typedef struct fastllm_sink fastllm_sink;     /* host's: where a description goes                */

/* Some elements of a row-major tensor: offset + sum of i[k] * strides[k], 0 <= i[k] < shape[k].
 * Never one element twice. A flat range, a slice, a transposed or interleaved view. A tensor for
 * it is row-major in shape. Never grows. */
typedef struct fastllm_box {
  int32_t ndim;
  int64_t offset;
  const int64_t *shape, *strides;
} fastllm_box;

/* ---------------------------------------------------------------- describing */

/* Types of values: int64_t, double, int32_t, const char*, fastllm_config*; then arrays of the
 * same. A STR takes any scalar as text. */
enum {
  FASTLLM_I64,
  FASTLLM_F64,
  FASTLLM_BOOL,
  FASTLLM_STR,
  FASTLLM_NODE,
  FASTLLM_I64_LIST,
  FASTLLM_F64_LIST,
  FASTLLM_STR_LIST
};

/* Flags everywhere: unknown low bits are hints and ignored; an unknown one of the upper 16 means
 * "refuse if unknown". */
enum {
  FASTLLM_FIELD_REQUIRED = 1,
  /* null, or a list with null entries */
  FASTLLM_FIELD_NULLABLE = 2,
  /* part of a checkpoint's identity: it decides shapes or meaning */
  FASTLLM_FIELD_ARCHITECTURE = 4,
  /* left out of short help and short dumps */
  FASTLLM_FIELD_EXPERT = 8,
  /* written to a checkpoint even when it has its default */
  FASTLLM_FIELD_CORE = 16
};
/* one configuration key; the host parses, checks, documents */
typedef struct fastllm_field {
  uint32_t size, flags;
  /* "transformer.hidden_size", below the plugin's own node */
  const char* path;
  int32_t type;
  /* default as YAML text: "1024", "[]"; "null" or NULL: none, or create() computes it */
  const char* fallback;
  /* NaN: no bound */
  double minimum, maximum;
  /* NULL-terminated, or NULL */
  const char* const* choices;
  /* older paths, accepted with a warning; NULL-terminated, or NULL */
  const char* const* aliases;
  /* one sentence with the unit */
  const char* help;
} fastllm_field;

/* Dimensions that a call decides, local to it: samples, positions, samples * positions. ANY: batch
 * entries only, since the host allocates outputs. */
enum {
  FASTLLM_DIM_BATCH = -1,
  FASTLLM_DIM_SEQUENCE = -2,
  FASTLLM_DIM_TOKENS = -3,
  FASTLLM_DIM_ANY = -4
};
enum {
  FASTLLM_PORT_LOSS = 1,    /* output, scalar; the host passes its gradient to backward         */
  FASTLLM_PORT_METRIC = 2,  /* output, scalar; reported, never synchronised on                  */
  FASTLLM_PORT_BATCH = 4,   /* input taken from the data loader                                 */
  FASTLLM_PORT_NO_GRAD = 8, /* indices, masks, rotary tables                                    */
  FASTLLM_PORT_KEEP = 16,   /* output that stays until backward, as all inputs do               */
  /* sequence (tokens) divided over "tensor" in calls with FASTLLM_SEQUENCE_TENSOR */
  FASTLLM_PORT_SPLIT = 32,
  /* Loss or metric: a sum over the layer's labels, which the host divides by their number over all
   * ranks; without it: a mean, averaged over calls, ranks and layers of that name. */
  FASTLLM_PORT_SUM = 64,
  FASTLLM_TENSOR_OPTIONAL = 128, /* in a file: may be missing, and may be left alone            */
  /* output made on demand (logits): forward gets NULL for it when nobody wants it */
  FASTLLM_PORT_OPTIONAL = 256
};
/* A named tensor: a layer's input or output, or a tensor in a file. An input is wired to the
 * latest output, or batch entry, of its name; the host adds up its readers' gradients. */
typedef struct fastllm_port {
  uint32_t size, flags;
  const char* name;
  DLDataType dtype; /* bits 0: the host's compute type; of a loss or metric: float32 */
  int32_t ndim;     /* 0: a scalar */
  const int64_t* shape;
} fastllm_port;

struct fastllm_layer;
struct fastllm_param;
struct fastllm_rule;
/* What describing functions push into. The host's; copies what it is given before it returns. A
 * function that is not the describing one's business refuses: fields() pushes fields, describe()
 * layers, ports and params, list() tensors. */
typedef struct fastllm_emit {
  uint32_t size;
  fastllm_status (*field)(fastllm_sink*, const fastllm_field*);
  /* from 0 on; what follows belongs to it */
  fastllm_status (*layer)(fastllm_sink*, const struct fastllm_layer*);
  fastllm_status (*input)(fastllm_sink*, const fastllm_port*);
  fastllm_status (*output)(fastllm_sink*, const fastllm_port*);
  fastllm_status (*param)(fastllm_sink*, const struct fastllm_param*);
  /* state: stage.h; NULL: any */
  fastllm_status (*tensor)(fastllm_sink*, const char* state, const fastllm_port*);
  fastllm_status (*rule)(fastllm_sink*, const struct fastllm_rule*);
  fastllm_status (*pair)(fastllm_sink*, const char* format, const char* model,
                         const char* external_type);
} fastllm_emit;

/* ---------------------------------------------------------------- what the host offers */

/* Stays for the life of the process. None of its functions is optional in a host of its minor; a
 * plugin that can live without one asks FASTLLM_HAS. */
typedef struct fastllm_host {
  uint32_t size, minor;
  const char *name, *version;

  /* [any] A further table by its id (stage.h, shard.h, collectives.h); it stays. NULL: not
   * offered. */
  const void* (*get)(const char* id);
  /* [any] Copies text, one sentence for the user: expected, found, where, what to do. It is this
   * thread's until the host calls a plugin on it again. Returns code, to be returned in turn;
   * FASTLLM_OK becomes FASTLLM_INTERNAL. */
  fastllm_status (*fail)(fastllm_status code, const char* text);
  /* [any] One line in the host's log, in the plugin's name. level: 0 debug, 1 info, 2 warning, 3
   * error, 4 fatal. */
  void (*log)(int32_t level, const char* text);
  /* [any] Nonzero: return FASTLLM_CANCELLED soon. Long loops ask at least every second. */
  int32_t (*cancelled)(void);
  /* A line on a terminal, drawn over in place. total 0: unknown. done >= total takes it away. */
  void (*progress)(const char* what, uint64_t done, uint64_t total);
  /* [any] Memory like `like` (dtype, ndim, shape, device; its data is not looked at), aligned to
   * 64 bytes at least, in stream order. The caller's until it calls the deleter, once, from any
   * thread; the deleter is the host's. */
  fastllm_status (*alloc)(const DLTensor* like, void* stream,
                          struct DLManagedTensorVersioned** out);

  /* Configuration. A plugin's own node holds its declared fields; metadata and foreign
   * configurations hold anything. A path is keys (and numbers of list entries) joined by dots, a
   * dot in a key written "\."; "" is the node itself. Texts and nodes handed out stay as long as
   * the node does. A node's threads: see 5. */

  /* value: where to put one of `type`, or the first of config_size entries for a list type (a
   * scalar is a list of one). A null entry becomes NaN or NULL. Null or absent: returns
   * FASTLLM_NOT_FOUND, and no text is due. */
  fastllm_status (*config_get)(const fastllm_config*, const char* path, int32_t type, void* value);
  /* value: one of `type`, or the first of `count` entries for a list type (NaN or NULL: a null
   * entry); NULL: null. Copies, nodes too. In create() of a model: only declared fields that are
   * null, which is how computed defaults are filled in. */
  fastllm_status (*config_set)(fastllm_config*, const char* path, int32_t type, const void* value,
                               int64_t count);
  /* Entries of a list or map; 1: a scalar; -1: null or absent. */
  fastllm_status (*config_size)(const fastllm_config*, const char* path, int64_t* count);
  /* A map's key number index, in the order of the file. */
  fastllm_status (*config_key)(const fastllm_config*, const char* path, int64_t index,
                               const char** key);
  /* Puts YAML or JSON text at the path. */
  fastllm_status (*config_parse)(fastllm_config*, const char* path, const char* text);
  /* The value at the path as YAML, or as JSON. The text stays until the next config_text of the
   * tree. */
  fastllm_status (*config_text)(const fastllm_config*, const char* path, int32_t json,
                                const char** text);
} fastllm_host;

/* ---------------------------------------------------------------- the door */

#if defined(__GNUC__)
#define FASTLLM_PUBLIC __attribute__((visibility("default")))
#define FASTLLM_SECTION __attribute__((section(".fastllm"), used))
#else
#define FASTLLM_PUBLIC
#define FASTLLM_SECTION
#endif
/* What the library says of itself without being run: "key=value" lines, each ended by \n.
 *   abi=0                       FASTLLM_MAJOR, once
 *   id=gpt   version=0.1.0      once each
 *   model=gpt                   a line for each model
 *   format=distributed          a line for each checkpoint format, and what it can:
 *   caps=load,save,optimizer    as in checkpoint_format.h; with several formats caps=FORMAT:load,..
 *   converter=huggingface:gpt:llama   a line for each pair: format, model, external type
 *   needs=torch==2.11.0         plugins that need different ones do not share a process
 *   license=Apache-2.0          free text
 * Other keys are skipped. What get() brings must be what these lines promise. */
#define FASTLLM_MANIFEST(text) FASTLLM_SECTION static const char fastllm_manifest[] = text

typedef struct fastllm_plugin {
  uint32_t size, minor; /* FASTLLM_MINOR it was compiled with */
  const char* manifest; /* fastllm_manifest; also what keeps the linker from dropping it */
  /* [any] The plugin's tables of a kind (FASTLLM_MODEL, FASTLLM_FORMAT, ..), index 0, 1, .. until
   * NULL. They stay. */
  const void* (*get)(const char* id, int32_t index);
  /* Optional. The last call, before main returns; libraries are never unloaded. */
  void (*shutdown)(void);
} fastllm_plugin;

/* The only exported symbol. Cheap: no device, no threads, no files. NULL: refused, and
 * host->fail() said why. The host and its tables stay for the life of the process; calling again
 * returns the same pointer. */
FASTLLM_PUBLIC const fastllm_plugin* fastllm_plugin_v0(const fastllm_host* host);

#ifdef __cplusplus
}
#endif
#endif
