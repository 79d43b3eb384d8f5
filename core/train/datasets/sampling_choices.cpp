#include "core/train/datasets/sampling_choices.hpp"

namespace fastllm::train {

void SamplingChoices::override_by(const config::Node& sampled) {
  const config::Node* own = sampled.find("sampling");
  if (!own || own->is_null()) return;
  if (auto value = own->get_optional<int64_t>("seed")) seed = uint64_t(*value);
  shuffle = own->get_optional<std::string>("shuffle").value_or(shuffle);
  use_loss_masking_spans =
      own->get_optional<bool>("use_loss_masking_spans").value_or(use_loss_masking_spans);
  truncate_documents = own->get_optional<bool>("truncate_documents").value_or(truncate_documents);
  maximum_document_length =
      own->get_optional<int64_t>("maximum_document_length").value_or(maximum_document_length);
}

}  // namespace fastllm::train
