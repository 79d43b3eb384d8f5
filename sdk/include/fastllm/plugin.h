/* fastllm/plugin.h - the door, the host, and the words both sides share.  C99.  Needs DLPack 1.x, nothing else.
 *
 *  1  A struct that starts with `size` belongs to whoever filled it in; size = its sizeof at their build.
 *     Read a member only if FASTLLM_HAS says it is there. Members are only ever appended.
 *  2  Nobody writes into a struct of the other side. Results leave through scalar out-pointers, a sink or a visitor.
 *  3  What a call receives is borrowed until the call returns, unless the member says "stays". Out-pointers are untouched on failure.
 *  4  A function returns FASTLLM_OK or a code it got from host->fail() or from a host function. Nothing throws, longjmps,
 *     exits, or changes signal handlers, locale, umask, working directory, or the current CUDA device for good.
 *  5  A handle is used by one thread at a time, not always the same one; several handles of a kind may be alive, so no state outside
 *     of them. [any] = callable from any thread.
 *  6  Device work is ordered on call->stream: inputs are ready in its order, outputs must be; never synchronise.
 *  7  What is optional has an id, "owner.name/revision", and is asked for with get(). NULL = not offered.
 *  8  Describing (fields, describe, pairs, rules, list) gives the same on every rank and in every world: it may depend on the
 *     configuration, never on a rank, a rank count or a device.
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
#define FASTLLM_HAS(type, table, member) /* e.g. FASTLLM_HAS(fastllm_host, host, progress) */ \
  ((table) && offsetof(type, member) + sizeof((table)->member) <= (table)->size && (table)->member)

typedef int32_t fastllm_status;
enum { FASTLLM_OK = 0, FASTLLM_CANCELLED = 1, FASTLLM_INVALID = 3, FASTLLM_NOT_FOUND = 5, FASTLLM_OUT_OF_MEMORY = 8,
       FASTLLM_UNSUPPORTED = 12, FASTLLM_INTERNAL = 13, FASTLLM_UNAVAILABLE = 14, FASTLLM_DATA_LOSS = 15 };

typedef struct fastllm_config fastllm_config; /* host's: one node of the resolved configuration */
typedef struct fastllm_sink fastllm_sink;     /* host's: where a description goes                */

typedef struct fastllm_box { /* never grows: elements offset + sum of i[k] * strides[k], 0 <= i[k] < shape[k], of a row-major tensor */
  int32_t ndim;
  int64_t offset;
  const int64_t *shape, *strides;
} fastllm_box; /* a flat range, a slice, a transposed or interleaved view; never one element twice; a tensor for it is row-major in shape */

/* ---------------------------------------------------------------- describing */

enum { FASTLLM_I64, FASTLLM_F64, FASTLLM_BOOL, FASTLLM_STR, FASTLLM_NODE, /* int64_t, double, int32_t, const char*, fastllm_config* */
       FASTLLM_I64_LIST, FASTLLM_F64_LIST, FASTLLM_STR_LIST };            /* arrays of the same; a STR takes any scalar as text   */
enum { FASTLLM_FIELD_REQUIRED = 1, FASTLLM_FIELD_NULLABLE = 2,            /* nullable: null, or a list with null entries */
       FASTLLM_FIELD_ARCHITECTURE = 4,  /* part of a checkpoint's identity: it decides shapes or meaning */
       FASTLLM_FIELD_EXPERT = 8,        /* left out of short help and short dumps                        */
       FASTLLM_FIELD_CORE = 16 };       /* written to a checkpoint even when it has its default          */
typedef struct fastllm_field {          /* one configuration key; the host parses, checks, documents     */
  uint32_t size, flags;
  const char *path;                     /* "transformer.hidden_size", below the plugin's own node        */
  int32_t type;
  const char *fallback;                 /* default as YAML text: "1024", "[]", "null" (then create() may config_set it) */
  double minimum, maximum;              /* NaN: no bound                                                  */
  const char *const *choices;           /* NULL-terminated, or NULL                                       */
  const char *const *aliases;           /* older paths, accepted with a warning                           */
  const char *help;                     /* one sentence with the unit                                     */
} fastllm_field;

/* Local to the call: samples, positions, samples * positions. ANY: batch entries only, since the host allocates outputs. */
enum { FASTLLM_DIM_BATCH = -1, FASTLLM_DIM_SEQUENCE = -2, FASTLLM_DIM_TOKENS = -3, FASTLLM_DIM_ANY = -4 };
enum { FASTLLM_PORT_LOSS = 1,    /* scalar; the host passes its gradient to backward         */
       FASTLLM_PORT_METRIC = 2,  /* scalar; reported, never synchronised on                  */
       FASTLLM_PORT_BATCH = 4,   /* input taken from the data loader                         */
       FASTLLM_PORT_NO_GRAD = 8, /* indices, masks, rotary tables                            */
       FASTLLM_PORT_KEEP = 16,   /* output that stays until backward, as all inputs do       */
       FASTLLM_PORT_SPLIT = 32,  /* sequence (tokens) divided over "tensor" in calls with FASTLLM_SEQUENCE_TENSOR */
       FASTLLM_PORT_SUM = 64,    /* loss or metric: a sum over the layer's labels, which the host divides by their number over all ranks;
                                    without it: a mean, averaged over calls, ranks and layers of that name */
       FASTLLM_TENSOR_OPTIONAL = 128,   /* in a file: may be missing, and may be left alone                       */
       FASTLLM_PORT_OPTIONAL = 256 };   /* output made on demand (logits): forward gets NULL for it when nobody wants it */
typedef struct fastllm_port {    /* a named tensor: a layer's input or output, or a tensor in a file */
  uint32_t size, flags;
  const char *name;              /* an input is wired to the latest output, or batch entry, of that name; the host adds up its readers' gradients */
  DLDataType dtype;              /* bits 0: the host's compute type */
  int32_t ndim;
  const int64_t *shape;
} fastllm_port;

struct fastllm_layer;
struct fastllm_param;
struct fastllm_rule;
typedef struct fastllm_emit { /* the host's; it copies what it is given before it returns */
  uint32_t size;
  fastllm_status (*field)(fastllm_sink *, const fastllm_field *);
  fastllm_status (*layer)(fastllm_sink *, const struct fastllm_layer *); /* numbered from 0; what follows belongs to it */
  fastllm_status (*input)(fastllm_sink *, const fastllm_port *);
  fastllm_status (*output)(fastllm_sink *, const fastllm_port *);
  fastllm_status (*param)(fastllm_sink *, const struct fastllm_param *);
  fastllm_status (*tensor)(fastllm_sink *, const char *state, const fastllm_port *); /* state: see stage.h; NULL: any */
  fastllm_status (*rule)(fastllm_sink *, const struct fastllm_rule *);
  fastllm_status (*pair)(fastllm_sink *, const char *format, const char *model, const char *external_type);
} fastllm_emit;

/* ---------------------------------------------------------------- what the host offers */

typedef struct fastllm_host {
  uint32_t size, minor;
  const char *name, *version;
  const void *(*get)(const char *id);                                    /* [any] */
  fastllm_status (*fail)(fastllm_status code, const char *text);         /* [any] copies text for this thread; returns code */
  void (*log)(int32_t level, const char *text);                          /* [any] 0 debug .. 4 fatal */
  int32_t (*cancelled)(void);                                            /* [any] nonzero: return FASTLLM_CANCELLED soon */
  void (*progress)(const char *what, uint64_t done, uint64_t total);
  /* Memory like `like` (dtype, ndim, shape, device), in stream order; the deleter is the host's. [any] */
  fastllm_status (*alloc)(const DLTensor *like, void *stream, struct DLManagedTensorVersioned **out);
  /* A plugin's own node holds its declared fields; metadata and foreign configurations hold anything. A path is keys (and numbers of list
   * entries) joined by dots, a dot in a key written "\."; "" is the node itself. Null or absent: get returns FASTLLM_NOT_FOUND and no fail
   * text is due; size gives -1. A list fills, or comes from, an array of config_size (count) entries; a null entry is NaN or NULL.
   * Text and nodes handed out stay as long as the node; what config_text hands out, until the next config_text. */
  fastllm_status (*config_get)(const fastllm_config *, const char *path, int32_t type, void *value);
  fastllm_status (*config_set)(fastllm_config *, const char *path, int32_t type, const void *value, int64_t count); /* NULL: null; NODE: copied */
  fastllm_status (*config_size)(const fastllm_config *, const char *path, int64_t *count); /* entries of a list or map; 1: a scalar */
  fastllm_status (*config_key)(const fastllm_config *, const char *path, int64_t index, const char **key); /* of a map, in order */
  fastllm_status (*config_parse)(fastllm_config *, const char *path, const char *text); /* YAML or JSON in, */
  fastllm_status (*config_text)(const fastllm_config *, const char *path, int32_t json, const char **text); /* and out */
} fastllm_host;

/* ---------------------------------------------------------------- the door */

#if defined(__GNUC__)
#define FASTLLM_PUBLIC __attribute__((visibility("default")))
#define FASTLLM_SECTION __attribute__((section(".fastllm"), used))
#else
#define FASTLLM_PUBLIC
#define FASTLLM_SECTION
#endif
/* "key=value" lines, readable in the file without running it: abi, id, version, model, format, caps, converter, needs. */
#define FASTLLM_MANIFEST(text) FASTLLM_SECTION static const char fastllm_manifest[] = text

typedef struct fastllm_plugin {
  uint32_t size, minor;   /* FASTLLM_MINOR it was compiled with */
  const char *manifest;   /* fastllm_manifest; also what keeps the linker from dropping it */
  const void *(*get)(const char *id, int32_t index); /* [any] static tables; index 0, 1, .. until NULL */
  void (*shutdown)(void); /* optional; last call, before main returns; libraries are never unloaded */
} fastllm_plugin;

/* The only exported symbol. Cheap: no device, no threads. NULL: refused, and host->fail() said why.
 * The host and its tables stay for the life of the process; calling again returns the same pointer. */
FASTLLM_PUBLIC const fastllm_plugin *fastllm_plugin_v0(const fastllm_host *host);

#ifdef __cplusplus
}
#endif
#endif
