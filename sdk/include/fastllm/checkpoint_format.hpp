// fastllm/checkpoint_format.hpp - C++20 glue over checkpoint_format.h: a format is one class with
// static functions, its reader and writer are classes with virtual ones; exceptions inside, status
// codes at the edge. Header-only, outside the ABI. A plugin needs only this:
//
//   struct MyFormat {
//     static constexpr const char* kType = "mine";
//     static constexpr uint32_t kCaps = FASTLLM_CAN_LOAD | FASTLLM_CAN_SAVE;
//     static constexpr int64_t kVersion = 1;               // of what it writes
//     static void fields(const Sink&) {}                   // this format's own options
//     static int detect(const std::string& path);          // 0..100; looks, never loads
//     static std::unique_ptr<Reader> open(const std::string& path, Config metadata);
//     //   fills metadata
//     static std::unique_ptr<Writer> create(const std::string& directory, Config metadata, int rank);
//   };
//   ... in get(): return &format_table<MyFormat>;
//
// A format without FASTLLM_CAN_SAVE may leave out create; older names go into `static constexpr
// const char* kAliases[]`, which ends in nullptr.
#pragma once

#include <fastllm/checkpoint_format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fastllm/plugin.hpp>
#include <memory>
#include <string>
#include <vector>

namespace fastllm::sdk {

// Elements of a box or a tensor.
inline int64_t element_count(const int64_t* shape, int32_t ndim) {
  int64_t count = 1;
  for (int32_t i = 0; i < ndim; ++i) count *= shape[i];
  return count;
}
inline int64_t element_count(const fastllm_box& box) { return element_count(box.shape, box.ndim); }
inline int64_t element_count(const DLTensor& tensor) {
  return element_count(tensor.shape, tensor.ndim);
}

// First byte of a tensor in host memory; refuses other devices and layouts that are not row-major
// without gaps.
inline char* host_bytes(const DLTensor& tensor) {
  if (tensor.device.device_type != kDLCPU && tensor.device.device_type != kDLCUDAHost) {
    fail(FASTLLM_UNSUPPORTED, "expected a tensor in host memory, found device type " +
                                  std::to_string(int(tensor.device.device_type)));
  }
  int64_t expected = 1;
  for (int32_t i = tensor.ndim - 1; tensor.strides && i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) {
      fail(FASTLLM_UNSUPPORTED, "expected a row-major tensor, found stride " +
                                    std::to_string(tensor.strides[i]) + " in dimension " +
                                    std::to_string(i));
    }
    expected *= tensor.shape[i];
  }
  return static_cast<char*>(tensor.data) + tensor.byte_offset;
}

// A checkpoint being read. One thread at a time.
class Reader {
 public:
  virtual ~Reader() = default;
  // FASTLLM_CAN_SHARDS: how the files' flat shards lie; owned by the reader. Null: read() only.
  virtual const fastllm_world* world() { return nullptr; }
  // Pushes every logical tensor: sink.tensor(state, port).
  virtual void list(const Sink& sink) = 0;
  // box null: the whole tensor. `into` has the stored dtype and is row-major in the box's shape.
  virtual void read(const std::string& state, const std::string& name, const fastllm_box* box,
                    const DLTensor& into) = 0;
  virtual void read_shard(int rank, const std::string& state, const DLTensor& into) {
    (void)rank, (void)into;
    fail(FASTLLM_UNSUPPORTED, "this format has no flat shards (asked for " + state + ")");
  }
};

// A checkpoint being written by one rank. Destroyed after finish().
class Writer {
 public:
  virtual ~Writer() = default;
  // Everything that will be written, first; name "": the whole flat shard of the state, 1-D.
  virtual void declare(const std::string& state, const Port& port) = 0;
  virtual void write(const std::string& state, const std::string& name, const fastllm_box* box,
                     const DLTensor& from) = 0;
  virtual void write_shard(const std::string& state, const DLTensor& from) {
    (void)from;
    fail(FASTLLM_UNSUPPORTED, "this format has no flat shards (asked for " + state + ")");
  }
  // keep: returns when all bytes are on the disk. Otherwise: what was written is of no use.
  virtual void finish(bool keep) = 0;
};

namespace detail {

inline Reader& reader(fastllm_reader* handle) { return *reinterpret_cast<Reader*>(handle); }
inline Writer& writer(fastllm_writer* handle) { return *reinterpret_cast<Writer*>(handle); }
// Names may be absent at the C edge; inside they are text.
inline std::string name_of(const char* text) { return text ? text : ""; }

template <class Format>
struct FormatFunctions {
  static fastllm_status fields(const fastllm_emit* emit, fastllm_sink* sink) {
    return guard([&] { Format::fields(Sink(emit, sink)); });
  }
  static fastllm_status detect(const char* path, int32_t* score) {
    return guard([&] { *score = Format::detect(name_of(path)); });
  }
  static fastllm_status open(const char* path, fastllm_config* metadata, fastllm_reader** out) {
    return guard([&] {
      std::unique_ptr<Reader> opened = Format::open(name_of(path), Config(metadata));
      *out = reinterpret_cast<fastllm_reader*>(opened.release());
    });
  }
  static const fastllm_world* world(fastllm_reader* handle) {
    const fastllm_world* result = nullptr;
    guard([&] { result = reader(handle).world(); });  // on failure: null, its reason with the host
    return result;
  }
  static fastllm_status list(fastllm_reader* handle, const fastllm_emit* emit, fastllm_sink* sink) {
    return guard([&] { reader(handle).list(Sink(emit, sink)); });
  }
  static fastllm_status read(fastllm_reader* handle, const char* state, const char* name,
                             const fastllm_box* box, DLTensor* into) {
    return guard([&] { reader(handle).read(name_of(state), name_of(name), box, *into); });
  }
  static fastllm_status read_shard(fastllm_reader* handle, int32_t rank, const char* state,
                                   DLTensor* into) {
    return guard([&] { reader(handle).read_shard(rank, name_of(state), *into); });
  }
  static void close(fastllm_reader* handle) { delete &reader(handle); }

  static fastllm_status create(const char* directory, const fastllm_config* metadata, int32_t rank,
                               fastllm_writer** out) {
    return guard([&] {
      if constexpr (requires { Format::create(std::string(), Config(metadata), 0); }) {
        std::unique_ptr<Writer> made =
            Format::create(name_of(directory), Config(metadata), int(rank));
        *out = reinterpret_cast<fastllm_writer*>(made.release());
      } else {
        (void)directory, (void)metadata, (void)rank, (void)out;
        fail(FASTLLM_UNSUPPORTED, std::string("format ") + Format::kType + " cannot save");
      }
    });
  }
  static fastllm_status declare(fastllm_writer* handle, const char* state,
                                const fastllm_port* raw) {
    return guard([&] {
      Port port{.name = name_of(raw->name),
                .shape = {raw->shape, raw->shape + raw->ndim},
                .flags = raw->flags,
                .dtype = raw->dtype};
      writer(handle).declare(name_of(state), port);
    });
  }
  static fastllm_status write(fastllm_writer* handle, const char* state, const char* name,
                              const fastllm_box* box, const DLTensor* from) {
    return guard([&] { writer(handle).write(name_of(state), name_of(name), box, *from); });
  }
  static fastllm_status write_shard(fastllm_writer* handle, const char* state,
                                    const DLTensor* from) {
    return guard([&] { writer(handle).write_shard(name_of(state), *from); });
  }
  static fastllm_status finish(fastllm_writer* handle, int32_t keep) {
    std::unique_ptr<Writer> owned(&writer(handle));  // freed whatever happens
    return guard([&] { owned->finish(keep != 0); });
  }

  static constexpr const char* const* aliases() {
    if constexpr (requires { Format::kAliases; })
      return Format::kAliases;
    else
      return nullptr;
  }
};

}  // namespace detail

// The table to hand out for FASTLLM_FORMAT.
template <class Format>
FASTLLM_HIDDEN inline constexpr fastllm_format_api format_table = {
    .size = sizeof(fastllm_format_api),
    .caps = Format::kCaps,
    .type = Format::kType,
    .aliases = detail::FormatFunctions<Format>::aliases(),
    .version = Format::kVersion,
    .fields = detail::FormatFunctions<Format>::fields,
    .detect = detail::FormatFunctions<Format>::detect,
    .open = detail::FormatFunctions<Format>::open,
    .world = detail::FormatFunctions<Format>::world,
    .list = detail::FormatFunctions<Format>::list,
    .read = detail::FormatFunctions<Format>::read,
    .read_shard = detail::FormatFunctions<Format>::read_shard,
    .close = detail::FormatFunctions<Format>::close,
    .create = detail::FormatFunctions<Format>::create,
    .declare = detail::FormatFunctions<Format>::declare,
    .write = detail::FormatFunctions<Format>::write,
    .write_shard = detail::FormatFunctions<Format>::write_shard,
    .finish = detail::FormatFunctions<Format>::finish,
};

// ---------------------------------------------------------------- the host's stages, as seen by a
// format

// A world described from a checkpoint's metadata; released with the object.
class DescribedWorld {
 public:
  // layout: the age of the flat layout in the files (stage.h).
  DescribedWorld(Config metadata, int32_t layout) : stages_(get<fastllm_stages>(FASTLLM_STAGES)) {
    if (!stages_) {
      fail(FASTLLM_UNSUPPORTED, std::string("expected a host that offers ") + FASTLLM_STAGES +
                                    ", found none; update fastllm-host");
    }
    check(stages_->describe(metadata.constant(), layout, &world_));
  }
  ~DescribedWorld() {
    if (world_) stages_->release(world_);
  }
  DescribedWorld(const DescribedWorld&) = delete;
  DescribedWorld& operator=(const DescribedWorld&) = delete;
  const fastllm_world* get_world() const { return world_; }
  int32_t ranks() const { return stages_->ranks(world_); }

 private:
  const fastllm_stages* stages_;
  fastllm_world* world_ = nullptr;
};

namespace detail {
// The host's structs may be shorter or longer than ours: copies what is there.
template <class T>
void take(T& to, const T* from) {
  to = T{};
  std::memcpy(&to, from, std::min<size_t>(from->size, sizeof(T)));
}
}  // namespace detail

// What a visitor is told, as one object per piece.
struct VisitedPiece {
  const fastllm_stage* stage = nullptr;
  const fastllm_group* group = nullptr;
  const fastllm_piece* piece = nullptr;
};

// Walks one state of one rank. on_piece(VisitedPiece), then on_run(VisitedPiece, box, flat) for
// each of its boxes.
template <class OnPiece, class OnRun>
void visit_state(const fastllm_world* world, int32_t rank, const std::string& state,
                 OnPiece&& on_piece, OnRun&& on_run) {
  struct Context {
    OnPiece& on_piece;
    OnRun& on_run;
    fastllm_stage stage{};
    fastllm_group group{};
    fastllm_piece piece{};
    VisitedPiece seen() { return {&stage, &group, &piece}; }
  } context{on_piece, on_run};
  fastllm_stage_visitor visitor{};
  visitor.size = sizeof visitor;
  visitor.user = &context;
  visitor.stage = [](void* user, const fastllm_stage* stage) {
    return guard([&] { detail::take(static_cast<Context*>(user)->stage, stage); });
  };
  visitor.group = [](void* user, const fastllm_group* group) {
    return guard([&] { detail::take(static_cast<Context*>(user)->group, group); });
  };
  visitor.piece = [](void* user, const fastllm_piece* piece) {
    return guard([&] {
      auto& c = *static_cast<Context*>(user);
      detail::take(c.piece, piece);
      c.on_piece(c.seen());
    });
  };
  visitor.run = [](void* user, const fastllm_box* box, int64_t flat) {
    return guard([&] {
      auto& c = *static_cast<Context*>(user);
      c.on_run(c.seen(), *box, flat);
    });
  };
  const auto* stages = get<fastllm_stages>(FASTLLM_STAGES);
  if (!stages) fail(FASTLLM_UNSUPPORTED, "the host offers no " FASTLLM_STAGES);
  check(stages->visit(world, rank, state.c_str(), &visitor));
}

}  // namespace fastllm::sdk
