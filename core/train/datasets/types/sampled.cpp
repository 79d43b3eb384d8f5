#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/dataset_fields.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, one_dataset("dataset", Inside::kAny, "What is sampled."));
  schema.add(
      block,
      {nullable("inherited",
                integer("sampling.seed", "null", config::kFeature, "Seed of the order.")),
       nullable("inherited", boolean("sampling.gpu", "null", config::kFeature,
                                     "No effect: the order is always the CPU's.")),
       nullable("inherited", boolean("sampling.use_loss_masking_spans", "null", config::kFeature,
                                     "Leave the spans that the files mark out of the loss.")),
       nullable("inherited", choice("sampling.shuffle", "null", config::kFeature,
                                    {"full", "epoch", "skip_first_epoch", "disabled", "legacy"},
                                    "What is shuffled.")),
       nullable("inherited", boolean("sampling.truncate_documents", "null", config::kExpert,
                                     "Cut documents where samples end.")),
       nullable("inherited",
                above(0, integer("sampling.maximum_document_length", "null", config::kExpert,
                                 "Tokens of the longest document.")))});
}

void check(const DatasetCheck& check) {
  check.inside.override_by(check.definition);
  if (check.rules.inside_fim && check.inside.use_loss_masking_spans &&
      !check.rules.use_loss_masking_spans)
    check.add(
        "sampling.use_loss_masking_spans",
        "expected false with fill-in-the-middle, which moves tokens out of their spans, found "
        "true; leave it out for this dataset");
}

SampledPointer sample(const Node& definition, const SamplingSettings& sampling,
                      const DatasetContext& context) {
  const Node& inner = inner_dataset(definition, context, "what to sample");
  SamplingSettings own = sampling;
  own.override_by(definition);
  return make_samples(inner, own, context.inside("dataset"));
}

}  // namespace

extern constinit const DatasetType sampled = {
    .name = "sampled",
    .help = "A dataset with sampling settings of its own.",
    .declare = declare,
    .check = check,
    .sample = sample};

}  // namespace fastllm::train::types
