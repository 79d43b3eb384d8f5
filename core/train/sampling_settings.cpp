#include "core/train/sampling_settings.hpp"

#include "core/train/datasets/dataset_checks.hpp"

namespace fastllm::train {

SamplingSettings sampling_settings(const Settings& settings, const std::string& name,
                                   int64_t num_samples, int64_t vocab_size,
                                   int64_t predicted_tokens) {
  const DataSettings& data = settings.data;
  SamplingSettings sampling;
  sampling.num_samples = num_samples;
  sampling.processes = settings.distributed.local_world_size;
  sampling.sequence_length = settings.batch.sequence_length;
  sampling.predicted_tokens = predicted_tokens;
  sampling.seed = uint64_t(data.seed);
  sampling.shuffle = data.shuffle;
  sampling.use_loss_masking_spans = data.use_loss_masking_spans;
  sampling.truncate_documents = data.truncate_documents;
  sampling.maximum_document_length = data.maximum_document_length.value_or(0);
  sampling.vocab_size = vocab_size;
  sampling.tokenizer_path = data.tokenizer_path.value_or("");
  sampling.legacy_seed = int64_t(settings.distributed.seed);
  sampling.split_part = split_part(name);
  return sampling;
}

}  // namespace fastllm::train
