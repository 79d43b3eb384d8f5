#include <fmt/format.h>

#include <vector>

#include "core/data/sampling/blended.hpp"
#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/dataset_fields.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, text("name", "blended", config::kCore, "Name in messages."));
  schema.add(block, several_datasets("datasets", 2, Inside::kAny, "What is mixed."));
  schema.add(block,
             {required(at_least(0, key(config::Type::kRealList, "weights", "null", config::kCore,
                                       "Share of each dataset; need not add up to 1."))),
              boolean("legacy", "false", config::kDeprecated,
                      "Number and seeds of samples as older versions had them.")});
}

void check(const DatasetCheck& check) {
  const Node &list = *check.definition.child("datasets"),
             &weights = *check.definition.child("weights");
  if (weights.size() != list.size())
    check.add("weights", fmt::format("expected one weight for each of the {} datasets, found {}",
                                     list.size(), weights.size()));
  bool any = false;
  for (size_t i = 0; i < weights.size(); ++i) any = any || weights.at(i).as_real() > 0;
  if (!any) check.add("weights", "expected at least one weight above 0, found none");
}

SampledPointer sample(const Node& definition, const SamplingSettings& sampling,
                      const DatasetContext& context) {
  const Node* list = definition.find("datasets");
  std::vector<double> weights = definition.get_list<double>("weights");
  const size_t count = list ? list->size() : 0;
  if (count < 2 || weights.size() != count) {
    refuse(context, definition,
           fmt::format("expected at least two datasets and one weight for each, found {} "
                       "datasets and {} weights",
                       count, weights.size()));
  }
  std::vector<data::BlendedPart> parts;
  for (size_t i = 0; i < count; ++i) {
    parts.push_back({weights[i], [&, inner = &list->at(i), i](int64_t samples, uint64_t seed) {
                       SamplingSettings own = sampling;
                       own.num_samples = samples;
                       own.seed = seed;
                       return make_samples(*inner, own,
                                           context.inside(fmt::format("datasets.{}", i)));
                     }});
  }
  return data::make_blended(name_of(definition, "blended"), parts, sampling.num_samples,
                            sampling.seed, definition.get_optional<bool>("legacy").value_or(false));
}

}  // namespace

extern constinit const DatasetType blended = {
    .name = "blended",
    .help = "Samples of several datasets, mixed by weight.",
    .declare = declare,
    .check = check,
    .sample = sample};

}  // namespace fastllm::train::types
