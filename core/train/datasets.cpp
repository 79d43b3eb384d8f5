#include "core/train/datasets.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/config/resolve.hpp"
#include "core/data/formats/memmap_folder.hpp"
#include "core/data/indexed.hpp"
#include "core/data/sampling/blended.hpp"
#include "core/data/sampling/fim.hpp"
#include "core/data/sampling/random_dataset.hpp"
#include "core/data/tokenizers/byte_tokenizer.hpp"
#include "core/train/settings/core_fields.hpp"
#include "core/train/settings/dataset_checks.hpp"
#include "core/train/settings/dataset_fields.hpp"
#include "core/train/settings/dataset_types.hpp"
#include "core/train/settings/legacy_dataset.hpp"

namespace fastllm::train {
namespace {

namespace fs = std::filesystem;
using config::Node;

constexpr int kMaxDepth = 32;  // of definitions in definitions; a file that names itself ends here

struct Context {
  std::string where;
  fs::path folder;
  DatasetSources& sources;
  int depth = 0;
  bool inside_fim = false;
  Context inside(const std::string& key) const {
    return {where + "." + key, folder, sources, depth + 1, inside_fim};
  }
};

[[noreturn]] void refuse(const Context& context, const Node& definition,
                         const std::string& sentence) {
  std::string place = definition.mark.text();
  throw Error(Status::kInvalid,
              fmt::format("{}{}: {}", place.empty() ? "" : place + ": ", context.where, sentence));
}

// "a, b or c"
std::string one_of(const std::vector<std::string>& names) {
  return fmt::format("{} or {}", fmt::join(names.begin(), names.end() - 1, ", "), names.back());
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

const config::Schema& core_schema() {
  static const config::Schema schema = make_core_schema();
  return schema;
}

DatasetRules rules_of(const SamplingSettings& sampling, const Context& context) {
  DatasetRules rules;
  static_cast<SamplingChoices&>(rules) = sampling;
  rules.tokenizer_path = sampling.tokenizer_path;
  rules.vocab_size = sampling.vocab_size;
  rules.split_part = sampling.split_part;
  rules.inside_fim = context.inside_fim;
  return rules;
}

// Content of a `file` dataset: the definition itself, or (a later release's) one under `config`
// beside `metadata`. Read as strictly as the configuration itself.
std::pair<Node, Context> open_file(const Node& definition, const SamplingSettings& sampling,
                                   const Context& context) {
  fs::path path = resolve_path(definition, context);
  Node content = config::parse_yaml(read_file(path, 1 << 24), path.string());
  if (content.has("config") && !content.has("type")) content = Node(*content.find("config"));
  if (content.kind() == Node::Kind::kNull) {
    throw Error(Status::kInvalid,
                fmt::format("expected the definition of a dataset in {}, found nothing; write for "
                            "example type: memmap",
                            path.string()));
  }
  content = config::resolve_typed(core_schema(), kDatasetFamily, content);
  check_dataset(content, context.where, rules_of(sampling, context));
  return {std::move(content), Context{context.where, path.parent_path(), context.sources,
                                      context.depth + 1, context.inside_fim}};
}

const Node& inner_dataset(const Node& definition, const Context& context, const char* what) {
  const Node* inner = definition.find("dataset");
  if (!inner) refuse(context, definition, fmt::format("expected `dataset`, {}, found none", what));
  return *inner;
}

std::string name_of(const Node& definition, const char* fallback) {
  return definition.get_optional<std::string>("name").value_or(fallback);
}

data::IndexedPointer make_indexed(const Node& definition, const SamplingSettings& sampling,
                                  const Context& context) {
  const std::string type = type_of(definition, context);
  if (type == "file") {
    auto [content, inner] = open_file(definition, sampling, context);
    return make_indexed(content, sampling, inner);
  }
  if (type == "memmap") {
    return context.sources.files().open(resolve_path(definition, context),
                                        {definition.get_optional<int64_t>("num_documents"),
                                         definition.get_optional<int64_t>("num_tokens")});
  }
  if (type == "concatenated") {
    std::vector<data::IndexedPointer> parts;
    const Node* list = definition.find("datasets");
    for (size_t i = 0; list && i < list->size(); ++i) {
      parts.push_back(
          make_indexed(list->at(i), sampling, context.inside(fmt::format("datasets.{}", i))));
    }
    return data::make_concatenated(name_of(definition, "concatenated"), std::move(parts));
  }
  if (type == "concatenated_memmap") {
    std::vector<data::IndexedPointer> parts;
    for (const fs::path& prefix : data::memmap_prefixes(resolve_path(definition, context)))
      parts.push_back(context.sources.files().open(prefix));
    return data::make_concatenated("concatenated", std::move(parts));
  }
  if (type == "slice") {
    const Node& inner = inner_dataset(definition, context, "the documents to take a slice of");
    return data::make_slice(make_indexed(inner, sampling, context.inside("dataset")),
                            definition.get_optional<double>("begin").value_or(0),
                            definition.get_optional<double>("end").value_or(1));
  }
  refuse(context, definition,
         fmt::format("expected a dataset of documents ({}), found type {}",
                     one_of(dataset_types(/*of_documents=*/true)), type));
}

std::shared_ptr<const data::SampledDataset> make(const Node& definition,
                                                 const SamplingSettings& sampling,
                                                 const Context& context);

std::shared_ptr<const data::SampledDataset> make_stream(const Node& definition,
                                                        const SamplingSettings& sampling,
                                                        const Context& context) {
  return data::make_sampled(make_indexed(definition, sampling, context),
                            {.num_samples = sampling.num_samples,
                             .sequence_length = sampling.sequence_length,
                             .seed = sampling.seed,
                             .shuffle = data::parse_shuffle(sampling.shuffle),
                             .predicted_tokens = sampling.predicted_tokens,
                             .use_loss_masking_spans = sampling.use_loss_masking_spans,
                             .truncate_documents = sampling.truncate_documents,
                             .maximum_document_length = sampling.maximum_document_length});
}

std::shared_ptr<const data::SampledDataset> make_blended(const Node& definition,
                                                         const SamplingSettings& sampling,
                                                         const Context& context) {
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
                       return make(*inner, own, context.inside(fmt::format("datasets.{}", i)));
                     }});
  }
  return data::make_blended(name_of(definition, "blended"), parts, sampling.num_samples,
                            sampling.seed, definition.get_optional<bool>("legacy").value_or(false));
}

data::FimOptions fim_options(const Node& definition) {
  data::FimOptions options;
  auto set = [&]<class T>(const char* key, T& target) {
    if (auto value = definition.get_optional<T>(key)) target = *value;
  };
  set("rate", options.rate);
  options.max_middle_len = definition.get_optional<int64_t>("max_middle_len");
  options.split_sample = definition.get_optional<std::string>("split_sample");
  set("fragment_rate", options.fragment_rate);
  options.ignore_prefix = definition.get_optional<std::string>("ignore_prefix");
  set("spm_rate", options.spm_rate);
  set("truncate_or_pad", options.truncate_or_pad);
  set("prefix_token", options.prefix_token);
  set("middle_token", options.middle_token);
  set("pad_token", options.pad_token);
  set("suffix_token", options.suffix_token);
  return options;
}

std::shared_ptr<const data::SampledDataset> make_fim(const Node& definition,
                                                     const SamplingSettings& sampling,
                                                     Context context) {
  const data::FimOptions options = fim_options(definition);
  std::vector<std::string> added;
  // The built-in tokenizer has no such tokens of its own: they follow its last id.
  if (sampling.tokenizer_path == data::byte_tokenizer::kName) {
    for (const std::string& name :
         {options.prefix_token, options.middle_token, options.pad_token, options.suffix_token}) {
      // a name given twice is judged with all of them
      if (std::find(added.begin(), added.end(), name) == added.end()) added.push_back(name);
    }
  }
  context.inside_fim = true;
  const Node& inner = inner_dataset(definition, context, "what is turned");
  return data::make_fim(make(inner, sampling, context.inside("dataset")),
                        context.sources.tokenizer(sampling.tokenizer_path, std::move(added)),
                        options, sampling.seed);
}

std::shared_ptr<const data::SampledDataset> make_legacy(const Node& definition,
                                                        const SamplingSettings& sampling,
                                                        const Context& context) {
  LegacyDataset legacy;
  try {
    legacy =
        translate_legacy(definition, sampling.split_part, sampling.legacy_seed, context.folder);
  } catch (const LegacyError& error) {
    const Node* value = definition.find(error.key());
    refuse(context.inside(error.key()), value ? *value : definition, error.what());
  }
  const Node resolved =
      config::resolve_typed(core_schema(), kDatasetFamily, legacy.definition, context.where);
  return make(
      resolved, sampling,
      {context.where, legacy.folder, context.sources, context.depth + 1, context.inside_fim});
}

std::shared_ptr<const data::SampledDataset> make(const Node& definition,
                                                 const SamplingSettings& sampling,
                                                 const Context& context) {
  const std::string type = type_of(definition, context);
  if (gives_documents(type)) return make_stream(definition, sampling, context);
  if (type == "file") {
    auto [content, inner] = open_file(definition, sampling, context);
    return make(content, sampling, inner);
  }
  if (type == "random") {
    return data::make_random(name_of(definition, "dummy"), sampling.num_samples,
                             sampling.sequence_length, sampling.vocab_size, sampling.seed,
                             sampling.predicted_tokens);
  }
  if (type == "sampled") {
    const Node& inner = inner_dataset(definition, context, "what to sample");
    SamplingSettings own = sampling;
    own.override_by(definition);
    return make(inner, own, context.inside("dataset"));
  }
  if (type == "blended") return make_blended(definition, sampling, context);
  if (type == "fim") return make_fim(definition, sampling, context);
  if (type == "legacy") return make_legacy(definition, sampling, context);
  refuse(context, definition,
         fmt::format("expected a dataset of type {}, found {}",
                     one_of(dataset_types(/*of_documents=*/false)), type));
}

}  // namespace

SamplingSettings sampling_settings(const Settings& settings, const std::string& name,
                                   int64_t num_samples, int64_t vocab_size,
                                   int64_t predicted_tokens) {
  const DataSettings& data = settings.data;
  SamplingSettings sampling;
  sampling.num_samples = num_samples;
  sampling.sequence_length = settings.batch.sequence_length;
  sampling.predicted_tokens = predicted_tokens;
  sampling.seed = uint64_t(data.seed);
  sampling.shuffle = data.shuffle;
  sampling.use_loss_masking_spans = data.use_loss_masking_spans;
  sampling.truncate_documents = data.truncate_documents;
  sampling.maximum_document_length = data.maximum_document_length.value_or(0);
  sampling.vocab_size = vocab_size;
  sampling.tokenizer_path = data.tokenizer_path.value_or("");
  sampling.legacy_seed = int64_t(settings.distributed.seed);
  sampling.split_part = split_part(name);
  return sampling;
}

std::shared_ptr<const data::SampledDataset> make_dataset(const Node& definition,
                                                         const SamplingSettings& sampling,
                                                         const std::string& where,
                                                         DatasetSources& sources,
                                                         const fs::path& folder) {
  return make(definition, sampling, Context{where, folder, sources});
}

}  // namespace fastllm::train
