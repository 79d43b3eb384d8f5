// How samples are taken, as far as a `sampled` definition may say so for what is inside it.
#pragma once

#include <cstdint>
#include <string>

#include "core/config/node.hpp"

namespace fastllm::train {

struct SamplingChoices {
  uint64_t seed = 0;
  std::string shuffle = "epoch";  // a name that data::parse_shuffle knows
  bool use_loss_masking_spans = false;
  bool truncate_documents = true;
  int64_t maximum_document_length = 0;  // tokens; 0: no limit

  // Takes over what the definition, of type `sampled`, has under `sampling`.
  void override_by(const config::Node& sampled);
};

}  // namespace fastllm::train
