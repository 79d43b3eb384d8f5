#include "core/train/tensor_agreement.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/log.hpp"
#include "core/shard/elements.hpp"
#include "core/train/parameter_views.hpp"

namespace fastllm::train {
namespace {

// FNV-1a over words as wide as a value.
int64_t digest(const ParameterView& view) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto* bytes = static_cast<const char*>(view.tensor.data) + view.tensor.byte_offset;
  const int64_t size_of_one = view.tensor.dtype.bits / 8;
  int64_t count = 1;
  for (int64_t size : view.shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t word = 0;
    std::memcpy(&word, bytes + i * size_of_one, size_t(size_of_one));
    hash = (hash ^ word) * 0x100000001b3u;
  }
  return int64_t(hash);
}

}  // namespace

void check_tensor_ranks(shard::Store& store, const std::string& state, const Ranks& ranks,
                        const std::string& when) {
  if (!ranks.tensor) return;
  const shard::Layout& layout = store.layout();
  std::vector<int64_t> own;
  std::vector<std::string> names;
  for (const ParameterView& view : parameter_views(store, state)) {
    const model::Parameter& parameter = layout.description().parameters[size_t(view.parameter)];
    if (shard::is_split(parameter, layout.world())) continue;
    own.push_back(digest(view));
    names.push_back(parameter.name);
  }
  if (own.empty()) return;
  std::vector<int64_t> all(own.size() * size_t(ranks.tensor->size()));
  ranks.tensor
      ->all_gather({own.data(), int64_t(own.size()), distributed::kInt64},
                   {all.data(), int64_t(all.size()), distributed::kInt64})
      .wait();
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i] != all[i])
      log::warning(
          fmt::format("MISMATCH {} of {}: tensor rank {} has other bits than tensor rank "
                      "0 {}",
                      state, names[i], ranks.tensor->rank(), when));
  }
}

}  // namespace fastllm::train
