#include "core/train/datasets/make_dataset.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/base/error.hpp"
#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/dataset_type.hpp"

namespace fastllm::train {
namespace {

namespace fs = std::filesystem;
using config::Node;

constexpr int kMaxDepth = 32;  // of definitions in definitions; a file that names itself ends here

// "a, b or c"
std::string one_of(const std::vector<std::string>& names) {
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
}

std::string type_of(const Node& definition, const DatasetContext& context) {
  if (context.depth > kMaxDepth) {
    refuse(context, definition,
           fmt::format("expected at most {} definitions inside each other, found more; does a file "
                       "name itself?",
                       kMaxDepth));
  }
  if (definition.kind() != Node::Kind::kMap || !definition.has("type")) {
    refuse(context, definition,
           "expected a block with a `type`, found none; write for example type: memmap");
  }
  return definition.get<std::string>("type");
}

// Samples drawn from documents.
SampledPointer make_stream(const Node& definition, const SamplingSettings& sampling,
                           const DatasetContext& context) {
  return data::make_sampled(open_documents(definition, sampling, context),
                            {.num_samples = sampling.num_samples,
                             .sequence_length = sampling.sequence_length,
                             .seed = sampling.seed,
                             .shuffle = data::parse_shuffle(sampling.shuffle),
                             .predicted_tokens = sampling.predicted_tokens,
                             .use_loss_masking_spans = sampling.use_loss_masking_spans,
                             .truncate_documents = sampling.truncate_documents,
                             .maximum_document_length = sampling.maximum_document_length,
                             .processes = sampling.processes});
}

}  // namespace

void refuse(const DatasetContext& context, const Node& definition, const std::string& sentence) {
  std::string place = definition.mark.text();
  throw Error(Status::kInvalid,
              fmt::format("{}{}: {}", place.empty() ? "" : place + ": ", context.where, sentence));
}

fs::path path_of(const Node& definition, const DatasetContext& context) {
  fs::path path = definition.get<std::string>("path");
  return path.is_absolute() || context.folder.empty() ? path : context.folder / path;
}

const Node& inner_dataset(const Node& definition, const DatasetContext& context, const char* what) {
  const Node* inner = definition.find("dataset");
  if (!inner) refuse(context, definition, fmt::format("expected `dataset`, {}, found none", what));
  return *inner;
}

std::string name_of(const Node& definition, const char* fallback) {
  return definition.get_optional<std::string>("name").value_or(fallback);
}

data::IndexedPointer open_documents(const Node& definition, const SamplingSettings& sampling,
                                    const DatasetContext& context) {
  const std::string name = type_of(definition, context);
  const DatasetType* type = find_dataset_type(name);
  if (type && type->open) return type->open(definition, sampling, context);
  refuse(context, definition,
         fmt::format("expected a dataset of documents ({}), found type {}",
                     one_of(dataset_type_names(/*of_documents=*/true)), name));
}

SampledPointer make_samples(const Node& definition, const SamplingSettings& sampling,
                            const DatasetContext& context) {
  const std::string name = type_of(definition, context);
  const DatasetType* type = find_dataset_type(name);
  if (type && type->sample) return type->sample(definition, sampling, context);
  if (type && type->open) return make_stream(definition, sampling, context);
  refuse(context, definition,
         fmt::format("expected a dataset of type {}, found {}",
                     one_of(dataset_type_names(/*of_documents=*/false)), name));
}

SampledPointer make_dataset(const Node& definition, const SamplingSettings& sampling,
                            const std::string& where, DatasetSources& sources,
                            const fs::path& folder) {
  return make_samples(definition, sampling, DatasetContext{where, folder, sources});
}

}  // namespace fastllm::train
