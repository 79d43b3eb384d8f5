// Where plugins push their descriptions (fastllm_emit). Everything is copied and checked at once;
// what is wrong becomes a sentence that names layer and port, as the plugin's fault. A plugin that
// ignores the refusal is still refused.
#pragma once

#include <fastllm/model.h>

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/checkpoint/format.hpp"
#include "core/config/schema.hpp"
#include "core/model/description.hpp"

namespace fastllm::plugin {

// What a converter says it joins.
struct ConverterPair {
  std::string format, model, external_type;
};

// The kinds of things a describing function may push.
enum class Describing { kFields, kModel, kTensors, kPairs };

const fastllm_emit* emit_table();

}  // namespace fastllm::plugin

struct fastllm_sink {
  explicit fastllm_sink(fastllm::plugin::Describing kind) : describing(kind) {}
  // Call after the describing function returned OK: throws what it was told and ignored.
  void check() const {
    if (error) throw *error;
  }

  fastllm::plugin::Describing describing;
  std::vector<fastllm::config::Field> fields;
  fastllm::model::Description model;
  std::vector<fastllm::checkpoint::StoredTensor> tensors;
  std::vector<fastllm::plugin::ConverterPair> pairs;
  std::optional<fastllm::Error> error;  // the first
};
