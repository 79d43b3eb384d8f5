#include <fmt/format.h>

#include <utility>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/config/resolve.hpp"
#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/dataset_fields.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, required(text("path", "null", config::kCore,
                                  "The file; each path in it is relative to its folder.")));
}

DatasetRules rules_of(const SamplingSettings& sampling, const DatasetContext& context) {
  DatasetRules rules;
  static_cast<SamplingChoices&>(rules) = sampling;
  rules.tokenizer_path = sampling.tokenizer_path;
  rules.vocab_size = sampling.vocab_size;
  rules.split_part = sampling.split_part;
  rules.inside_fim = context.inside_fim;
  return rules;
}

// The definition itself, or (a later release's) one under `config` beside `metadata`. Read as
// strictly as the configuration itself.
std::pair<Node, DatasetContext> read(const Node& definition, const SamplingSettings& sampling,
                                     const DatasetContext& context) {
  const std::filesystem::path path = path_of(definition, context);
  Node content = config::parse_yaml(read_file(path, 1 << 24), path.string());
  if (content.has("config") && !content.has("type")) content = Node(*content.find("config"));
  if (content.kind() == Node::Kind::kNull) {
    throw Error(Status::kInvalid,
                fmt::format("expected the definition of a dataset in {}, found nothing; write for "
                            "example type: memmap",
                            path.string()));
  }
  content = config::resolve_typed(dataset_schema(), kDatasetFamily, content);
  check_dataset(content, context.where, rules_of(sampling, context));
  return {std::move(content), DatasetContext{context.where, path.parent_path(), context.sources,
                                             context.depth + 1, context.inside_fim}};
}

data::IndexedPointer open(const Node& definition, const SamplingSettings& sampling,
                          const DatasetContext& context) {
  const auto [content, inside] = read(definition, sampling, context);
  return open_documents(content, sampling, inside);
}

SampledPointer sample(const Node& definition, const SamplingSettings& sampling,
                      const DatasetContext& context) {
  const auto [content, inside] = read(definition, sampling, context);
  return make_samples(content, sampling, inside);
}

}  // namespace

extern constinit const DatasetType file = {.name = "file",
                                           .help = "A dataset defined in a YAML file of its own.",
                                           .declare = declare,
                                           .open = open,
                                           .sample = sample};

}  // namespace fastllm::train::types
