#include <fmt/format.h>

#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/dataset_fields.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, one_dataset("dataset", Inside::kDocuments, "What is cut."));
  schema.add(
      block,
      {between(0, 1,
               real("begin", "0", config::kCore, "Where it begins, as a share of the documents.")),
       between(0, 1,
               real("end", "1", config::kCore, "Where it ends, as a share of the documents."))});
}

void check(const DatasetCheck& check) {
  const Node& slice = check.definition;
  if (!(slice.get<double>("begin") < slice.get<double>("end")))
    check.add("end",
              fmt::format("expected more than begin ({}), found {}",
                          slice.find("begin")->scalar_text(), slice.find("end")->scalar_text()));
}

data::IndexedPointer open(const Node& definition, const SamplingSettings& sampling,
                          const DatasetContext& context) {
  const Node& inner = inner_dataset(definition, context, "the documents to take a slice of");
  return data::make_slice(open_documents(inner, sampling, context.inside("dataset")),
                          definition.get_optional<double>("begin").value_or(0),
                          definition.get_optional<double>("end").value_or(1));
}

}  // namespace

extern constinit const DatasetType slice = {.name = "slice",
                                            .help = "A share of a dataset's documents.",
                                            .declare = declare,
                                            .check = check,
                                            .open = open};

}  // namespace fastllm::train::types
