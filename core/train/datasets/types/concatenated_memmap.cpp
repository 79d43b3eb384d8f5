#include <utility>
#include <vector>

#include "core/data/formats/memmap_folder.hpp"
#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/types/cut_documents.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, required(text("path", "null", config::kCore,
                                  "The folder, with index.txt or the pairs alone.")));
}

data::IndexedPointer open(const Node& definition, const SamplingSettings&,
                          const DatasetContext& context) {
  std::vector<data::IndexedPointer> parts;
  for (const auto& prefix : data::memmap_prefixes(path_of(definition, context)))
    parts.push_back(context.sources.files().open(prefix));
  return data::make_concatenated("concatenated", std::move(parts));
}

}  // namespace

extern constinit const DatasetType concatenated_memmap = {
    .name = "concatenated_memmap",
    .help = "All .idx/.bin pairs of a folder (deprecated).",
    .declare = declare,
    .check = check_cut_documents,
    .open = open};

}  // namespace fastllm::train::types
