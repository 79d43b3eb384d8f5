#include "core/config/resolve.hpp"
#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/dataset_fields.hpp"
#include "core/train/datasets/legacy_dataset.hpp"
#include "core/train/datasets/types/fim.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, legacy_dataset_fields());
}

void check(const DatasetCheck& check) {
  const Node& definition = check.definition;
  if (!check.rules.truncate_documents)
    check.add("type",
              "expected truncate_documents: true with this definition, whose order cuts documents, "
              "found false; leave it out");
  if (definition.get<double>("fim.rate") > 0) check_fim("fim.rate", check);
  if (definition.get<std::string>("format") == "file") return;  // judged when it is read
  try {
    translate_legacy(definition, check.rules.split_part, 0, {});
  } catch (const LegacyError& error) {
    check.add(error.key(), error.what());
  }
}

SampledPointer sample(const Node& definition, const SamplingSettings& sampling,
                      const DatasetContext& context) {
  LegacyDataset legacy;
  try {
    legacy =
        translate_legacy(definition, sampling.split_part, sampling.legacy_seed, context.folder);
  } catch (const LegacyError& error) {
    const Node* value = definition.find(error.key());
    refuse(context.inside(error.key()), value ? *value : definition, error.what());
  }
  const Node resolved =
      config::resolve_typed(dataset_schema(), kDatasetFamily, legacy.definition, context.where);
  return make_samples(
      resolved, sampling,
      {context.where, legacy.folder, context.sources, context.depth + 1, context.inside_fim});
}

}  // namespace

extern constinit const DatasetType legacy = {
    .name = "legacy",
    .help = "The older definition: prefixes with weights, split in three.",
    .declare = declare,
    .type_last = true,
    .check = check,
    .sample = sample};

}  // namespace fastllm::train::types

namespace fastllm::train {

std::vector<Field> legacy_dataset_fields() {
  Field path = key(config::Type::kTextList, "path", "[]", config::kDeprecated,
                   "Prefixes of .idx/.bin pairs: one, or weight, prefix, weight, prefix, ...");
  path.from_text = config::FromText::kOneEntry;
  std::vector<Field> fields = {
      at_least(0,
               key(config::Type::kRealList, "split", "[969, 30, 1]", config::kCore,
                   "Shares of documents for training, validation and test (legacy definition).")),
      choice("format", "list", config::kDeprecated, {"list", "file", "random"},
             "What path holds: prefixes, a JSON file of prefixes, or nothing (random tokens)."),
      path,
  };
  for (const Field& field : fim_fields("fim.")) fields.push_back(field);
  return fields;
}

}  // namespace fastllm::train
