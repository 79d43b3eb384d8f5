#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/types/cut_documents.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(
      block,
      {required(text("path", "null", config::kCore,
                     "A .fast_llm_dataset file, or the pair without .idx or .bin.")),
       nullable("not checked", at_least(0, integer("num_documents", "null", config::kOptional,
                                                   "Documents the index must hold."))),
       nullable("not checked", at_least(0, integer("num_tokens", "null", config::kOptional,
                                                   "Tokens the index must hold.")))});
}

data::IndexedPointer open(const Node& definition, const SamplingSettings&,
                          const DatasetContext& context) {
  return context.sources.files().open(path_of(definition, context),
                                      {definition.get_optional<int64_t>("num_documents"),
                                       definition.get_optional<int64_t>("num_tokens")});
}

}  // namespace

extern constinit const DatasetType memmap = {.name = "memmap",
                                             .help = "One file or .idx/.bin pair of documents.",
                                             .declare = declare,
                                             .check = check_cut_documents,
                                             .open = open};

}  // namespace fastllm::train::types
