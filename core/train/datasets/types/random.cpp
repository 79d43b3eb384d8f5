#include "core/data/sampling/random_dataset.hpp"
#include "core/train/datasets/dataset_context.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, text("name", "dummy", config::kCore, "Name in messages."));
}

SampledPointer sample(const Node& definition, const SamplingSettings& sampling,
                      const DatasetContext&) {
  return data::make_random(name_of(definition, "dummy"), sampling.num_samples,
                           sampling.sequence_length, sampling.vocab_size, sampling.seed,
                           sampling.predicted_tokens);
}

}  // namespace

extern constinit const DatasetType random = {
    .name = "random",
    .help = "Uniformly random tokens, for tests and timing.",
    .declare = declare,
    .sample = sample};

}  // namespace fastllm::train::types
