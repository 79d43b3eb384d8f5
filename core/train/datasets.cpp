#include "core/train/datasets.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/config/resolve.hpp"
#include "core/data/blended.hpp"
#include "core/data/indexed.hpp"
#include "core/data/memmap.hpp"
#include "core/data/random_dataset.hpp"
#include "core/train/core_fields.hpp"
#include "core/train/settings.hpp"

namespace fastllm::train {
namespace {

namespace fs = std::filesystem;
using config::Node;

constexpr int kMaxDepth = 32;  // of definitions in definitions; a file that names itself ends here

struct Context {
  std::string where;
  fs::path folder;
  bool use_loss_masking_spans = false;
  int depth = 0;
  Context inside(const std::string& key) const {
    return {where + "." + key, folder, use_loss_masking_spans, depth + 1};
  }
};

[[noreturn]] void refuse(const Context& context, const Node& definition,
                         const std::string& sentence) {
  std::string place = definition.mark.text();
  throw Error(Status::kInvalid,
              fmt::format("{}{}: {}", place.empty() ? "" : place + ": ", context.where, sentence));
}

std::string type_of(const Node& definition, const Context& context) {
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

fs::path resolve_path(const Node& definition, const Context& context) {
  fs::path path = definition.get<std::string>("path");
  return path.is_absolute() || context.folder.empty() ? path : context.folder / path;
}

// Content of a `file` dataset: the definition itself, or (a later release's) one under `config` beside `metadata`.
std::pair<Node, Context> open_file(const Node& definition, const Context& context) {
  fs::path path = resolve_path(definition, context);
  Node content = config::parse_yaml(read_file(path, 1 << 24), path.string());
  if (content.has("config") && !content.has("type")) content = Node(*content.find("config"));
  static const config::Schema schema =
      make_core_schema();  // a file is read as strictly as the configuration itself
  content = config::resolve_typed(schema, "dataset", content);
  check_dataset_supported(content, context.where, context.use_loss_masking_spans);
  return {std::move(content), Context{context.where, path.parent_path(),
                                      context.use_loss_masking_spans, context.depth + 1}};
}

bool is_indexed(const std::string& type) {
  return type == "memmap" || type == "concatenated" || type == "slice";
}

data::IndexedPointer make_indexed(const Node& definition, const Context& context) {
  const std::string type = type_of(definition, context);
  if (type == "file") {
    auto [content, inner] = open_file(definition, context);
    return make_indexed(content, inner);
  }
  if (type == "memmap") {
    return std::make_shared<data::MemmapDataset>(
        resolve_path(definition, context),
        data::MemmapExpectations{definition.get_optional<int64_t>("num_documents"),
                                 definition.get_optional<int64_t>("num_tokens")});
  }
  if (type == "concatenated") {
    std::vector<data::IndexedPointer> parts;
    const Node* list = definition.find("datasets");
    for (size_t i = 0; list && i < list->size(); ++i) {
      parts.push_back(make_indexed(list->at(i), context.inside(fmt::format("datasets.{}", i))));
    }
    return data::make_concatenated(
        definition.get_optional<std::string>("name").value_or("concatenated"), std::move(parts));
  }
  if (type == "slice") {
    const Node* inner = definition.find("dataset");
    if (!inner)
      refuse(context, definition,
             "expected `dataset`, the documents to take a slice of, found none");
    return data::make_slice(make_indexed(*inner, context.inside("dataset")),
                            definition.get_optional<double>("begin").value_or(0),
                            definition.get_optional<double>("end").value_or(1));
  }
  refuse(context, definition,
         fmt::format(
             "expected a dataset of documents (memmap, concatenated, slice or file), found type {}",
             type));
}

std::shared_ptr<const data::SampledDataset> make(const Node& definition,
                                                 const SamplingSettings& sampling,
                                                 const Context& context) {
  const std::string type = type_of(definition, context);
  if (is_indexed(type)) {
    return data::make_sampled(make_indexed(definition, context), sampling.num_samples,
                              sampling.sequence_length, sampling.seed, sampling.shuffle,
                              sampling.predicted_tokens);
  }
  if (type == "file") {
    auto [content, inner] = open_file(definition, context);
    return make(content, sampling, inner);
  }
  if (type == "random") {
    return data::make_random(definition.get_optional<std::string>("name").value_or("dummy"),
                             sampling.num_samples, sampling.sequence_length, sampling.vocab_size,
                             sampling.seed, sampling.predicted_tokens);
  }
  if (type == "sampled") {
    const Node* inner = definition.find("dataset");
    if (!inner) refuse(context, definition, "expected `dataset`, what to sample, found none");
    SamplingSettings own = sampling;
    if (const Node* s = definition.find("sampling"); s && !s->is_null()) {
      own.seed = uint64_t(s->get_optional<int64_t>("seed").value_or(int64_t(sampling.seed)));
      if (auto shuffle = s->get_optional<std::string>("shuffle"))
        own.shuffle = data::parse_shuffle(*shuffle);
    }
    return make(*inner, own, context.inside("dataset"));
  }
  if (type == "blended") {
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
      parts.push_back({weights[i], [&sampling, &context, inner = &list->at(i), i](int64_t samples,
                                                                                  uint64_t seed) {
                         SamplingSettings own = sampling;
                         own.num_samples = samples;
                         own.seed = seed;
                         return make(*inner, own, context.inside(fmt::format("datasets.{}", i)));
                       }});
    }
    return data::make_blended(definition.get_optional<std::string>("name").value_or("blended"),
                              parts, sampling.num_samples, sampling.seed,
                              definition.get_optional<bool>("legacy").value_or(false));
  }
  refuse(context, definition,
         fmt::format("datasets of type {} are not supported yet by this version; use memmap, "
                     "concatenated, slice, "
                     "blended, sampled, random or file",
                     type));
}

}  // namespace

std::shared_ptr<const data::SampledDataset> make_dataset(const Node& definition,
                                                         const SamplingSettings& sampling,
                                                         const std::string& where,
                                                         const fs::path& folder) {
  return make(definition, sampling, Context{where, folder, sampling.use_loss_masking_spans});
}

}  // namespace fastllm::train
