// A table or descriptor of the other side, copied once into a zeroed local of the size this host
// knows, so that no later code asks for versions: what is missing is null. Never reads past the
// size the other side states.
#pragma once

#include <fastllm/plugin.h>
#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "core/base/error.hpp"

namespace fastllm::plugin {

struct RequiredMember {
  const char* name;
  size_t offset;  // of a pointer
};
#define FASTLLM_REQUIRE(type, member) \
  ::fastllm::plugin::RequiredMember { #member, offsetof(type, member) }

// No table will ever be larger; a size beyond it is garbage, not a later version.
constexpr uint32_t kMaxTableBytes = 64 << 10;

template <class T>
T normalise(const T* theirs, const char* type_name,
            std::initializer_list<RequiredMember> required) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  if (!theirs) throw Error(Status::kInternal, fmt::format("expected a {}, found NULL", type_name));
  uint32_t size = 0;
  std::memcpy(&size, theirs, sizeof size);
  // A compiler makes multiples of the alignment only; so a copied member is never cut in half.
  if (size < sizeof(void*) || size % alignof(T) != 0 || size > kMaxTableBytes) {
    throw Error(Status::kInternal, fmt::format("expected {}.size to be sizeof({}), found {}",
                                               type_name, type_name, size));
  }
  T ours{};
  std::memcpy(&ours, theirs, std::min<size_t>(size, sizeof ours));
  ours.size = sizeof ours;
  for (const RequiredMember& member : required) {
    const void* pointer = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const char*>(&ours) + member.offset, sizeof pointer);
    if (!pointer) {
      throw Error(Status::kInternal,
                  fmt::format("expected {}.{}, found {}", type_name, member.name,
                              member.offset < size
                                  ? "NULL"
                                  : fmt::format("a table that ends before it (size {})", size)));
    }
  }
  return ours;
}

// The same for what is pushed into a sink: everything that version 0 knows must be there.
template <class T>
T normalise_descriptor(const T* theirs, const char* type_name, uint32_t v0_size) {
  T ours = normalise(theirs, type_name, {});
  uint32_t size = 0;
  std::memcpy(&size, theirs, sizeof size);
  if (size < v0_size) {
    throw Error(Status::kInternal,
                fmt::format("expected {}.size of at least {}, found {}", type_name, v0_size, size));
  }
  // Unknown low bits are later hints; the upper 16 mean "refuse if unknown", and none of them is
  // known.
  if (ours.flags >> 16) {
    throw Error(Status::kUnsupported, fmt::format("expected flags that this host knows in its {}, "
                                                  "found {:#x}; a newer host may know them",
                                                  type_name, ours.flags));
  }
  return ours;
}

}  // namespace fastllm::plugin
