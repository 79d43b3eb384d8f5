#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/data/sampling/fim.hpp"
#include "core/data/tokenizers/byte_tokenizer.hpp"
#include "core/train/datasets/dataset_context.hpp"
#include "core/train/datasets/dataset_fields.hpp"
#include "core/train/datasets/types/fim.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

using config::Node;

constexpr int64_t kMarkedVocabulary = data::byte_tokenizer::kVocabulary + 4;

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block, fim_fields(""));
  schema.add(block, one_dataset("dataset", Inside::kAny, "What is turned."));
}

void check(const DatasetCheck& check) {
  check_fim("type", check);
  check.inside.inside_fim = true;
  check.inside.use_loss_masking_spans = false;
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

SampledPointer sample(const Node& definition, const SamplingSettings& sampling,
                      const DatasetContext& context) {
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
  const Node& inner = inner_dataset(definition, context, "what is turned");
  DatasetContext inside = context.inside("dataset");
  inside.inside_fim = true;
  return data::make_fim(make_samples(inner, sampling, inside),
                        context.sources.tokenizer(sampling.tokenizer_path, std::move(added)),
                        options, sampling.seed);
}

}  // namespace

void check_fim(const std::string& key, const DatasetCheck& check) {
  const DatasetRules& rules = check.rules;
  if (rules.use_loss_masking_spans)
    check.add(key,
              "expected use_loss_masking_spans: false with fill-in-the-middle, which moves tokens "
              "out of their spans, found true; leave one of them out");
  if (rules.tokenizer_path.empty()) {
    check.add(key,
              "expected data.tokenizer.path to be set, since fill-in-the-middle cuts text, found "
              "null; write data.tokenizer.path: FOLDER, the one the data was prepared with");
  } else if (rules.tokenizer_path == data::byte_tokenizer::kName && rules.vocab_size > 0 &&
             rules.vocab_size < kMarkedVocabulary) {
    check.add(key,
              fmt::format("expected a vocab_size of the model from {} up, since the four marks of "
                          "fill-in-the-middle are the ids {} to {} of the tokenizer {}, found {}",
                          kMarkedVocabulary, data::byte_tokenizer::kVocabulary,
                          kMarkedVocabulary - 1, data::byte_tokenizer::kName, rules.vocab_size));
  }
}

extern constinit const DatasetType fim = {.name = "fim",
                                          .help = "Fill-in-the-middle over another dataset.",
                                          .declare = declare,
                                          .check = check,
                                          .sample = sample};

}  // namespace fastllm::train::types

namespace fastllm::train {

std::vector<Field> fim_fields(const std::string& prefix) {
  std::vector<Field> fields = {
      between(0, 1,
              real("rate", "0", config::kCore,
                   "Share of documents turned into prefix, suffix, middle.")),
      nullable("no limit", above(0, integer("max_middle_len", "null", config::kFeature,
                                            "Longest middle, in characters."))),
      nullable("whole documents", text("split_sample", "null", config::kFeature,
                                       "Token that cuts a document into fragments.")),
      between(0, 1,
              real("fragment_rate", "0", config::kFeature, "Share of fragments that are turned.")),
      nullable("none", text("ignore_prefix", "null", config::kFeature,
                            "Documents and fragments that begin with this text are left alone.")),
      between(0, 1,
              real("spm_rate", "0.5", config::kFeature,
                   "Share of turned texts in the order suffix, prefix, middle.")),
      boolean("truncate_or_pad", "false", config::kFeature,
              "Cut or pad a turned text to its old length, in tokens."),
      text("prefix_token", "<fim_prefix>", config::kFeature, "Token before the prefix."),
      text("middle_token", "<fim_middle>", config::kFeature, "Token before the middle."),
      text("pad_token", "<fim_pad>", config::kFeature, "Token that fills a turned text up."),
      text("suffix_token", "<fim_suffix>", config::kFeature, "Token before the suffix."),
  };
  for (Field& field : fields) field.path = prefix + field.path;
  return fields;
}

}  // namespace fastllm::train
