#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/dataset_fields.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, text("name", "concatenated", config::kCore, "Name in messages."));
  schema.add(block, several_datasets("datasets", 1, Inside::kDocuments, "The parts, in order."));
}

data::IndexedPointer open(const Node& definition, const SamplingSettings& sampling,
                          const DatasetContext& context) {
  std::vector<data::IndexedPointer> parts;
  const Node* list = definition.find("datasets");
  for (size_t i = 0; list && i < list->size(); ++i) {
    parts.push_back(
        open_documents(list->at(i), sampling, context.inside(fmt::format("datasets.{}", i))));
  }
  return data::make_concatenated(name_of(definition, "concatenated"), std::move(parts));
}

}  // namespace

extern constinit const DatasetType concatenated = {
    .name = "concatenated",
    .help = "The documents of several datasets, one after the other.",
    .declare = declare,
    .open = open};

}  // namespace fastllm::train::types
