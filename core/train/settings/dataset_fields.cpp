// The keys of each type of dataset, and which types may stand inside which.
#include "core/train/settings/dataset_fields.hpp"

#include "core/train/settings/dataset_types.hpp"
#include "core/train/settings/field_builders.hpp"

namespace fastllm::train {

using config::kCore;
using config::kDeprecated;
using config::kExpert;
using config::kFeature;
using config::kOptional;
using config::Nested;
using config::Type;

namespace {

// Documents one by one: the others that hold datasets of this kind refuse anything else.
const std::vector<std::string> kIndexed = dataset_types(/*of_documents=*/true);

Nested one(const std::string& path, std::vector<std::string> types, const std::string& help) {
  Nested nested;
  nested.path = path;
  nested.family = kDatasetFamily;
  nested.types = std::move(types);
  nested.help = help;
  return nested;
}

Nested several(const std::string& path, size_t minimum, std::vector<std::string> types,
               const std::string& help) {
  Nested nested = one(path, std::move(types), help);
  nested.form = Nested::Form::kList;
  nested.minimum = minimum;
  return nested;
}

}  // namespace

std::vector<Field> fim_fields(const std::string& prefix) {
  std::vector<Field> fields = {
      between(0, 1,
              real("rate", "0", kCore, "Share of documents turned into prefix, suffix, middle.")),
      nullable("no limit", above(0, integer("max_middle_len", "null", kFeature,
                                            "Longest middle, in characters."))),
      nullable("whole documents", text("split_sample", "null", kFeature,
                                       "Token that cuts a document into fragments.")),
      between(0, 1, real("fragment_rate", "0", kFeature, "Share of fragments that are turned.")),
      nullable("none", text("ignore_prefix", "null", kFeature,
                            "Documents and fragments that begin with this text are left alone.")),
      between(0, 1,
              real("spm_rate", "0.5", kFeature,
                   "Share of turned texts in the order suffix, prefix, middle.")),
      boolean("truncate_or_pad", "false", kFeature,
              "Cut or pad a turned text to its old length, in tokens."),
      text("prefix_token", "<fim_prefix>", kFeature, "Token before the prefix."),
      text("middle_token", "<fim_middle>", kFeature, "Token before the middle."),
      text("pad_token", "<fim_pad>", kFeature, "Token that fills a turned text up."),
      text("suffix_token", "<fim_suffix>", kFeature, "Token before the suffix."),
  };
  for (Field& field : fields) field.path = prefix + field.path;
  return fields;
}

std::vector<Field> legacy_dataset_fields() {
  Field path = key(Type::kTextList, "path", "[]", kDeprecated,
                   "Prefixes of .idx/.bin pairs: one, or weight, prefix, weight, prefix, ...");
  path.from_text = config::FromText::kOneEntry;
  std::vector<Field> fields = {
      at_least(0,
               key(Type::kRealList, "split", "[969, 30, 1]", kCore,
                   "Shares of documents for training, validation and test (legacy definition).")),
      choice("format", "list", kDeprecated, {"list", "file", "random"},
             "What path holds: prefixes, a JSON file of prefixes, or nothing (random tokens)."),
      path,
  };
  for (const Field& field : fim_fields("fim.")) fields.push_back(field);
  return fields;
}

void add_dataset_family(config::Schema& schema) {
  const std::string family = kDatasetFamily;
  schema.add_family(family, "A source of samples; its key type says which other keys it has.");

  schema.add_type(family, "memmap", "One file or .idx/.bin pair of documents.");
  schema.add(family + ":memmap",
             {required(text("path", "null", kCore,
                            "A .fast_llm_dataset file, or the pair without .idx or .bin.")),
              nullable("not checked", at_least(0, integer("num_documents", "null", kOptional,
                                                          "Documents the index must hold."))),
              nullable("not checked", at_least(0, integer("num_tokens", "null", kOptional,
                                                          "Tokens the index must hold.")))});

  schema.add_type(family, "concatenated",
                  "The documents of several datasets, one after the other.");
  schema.add(family + ":concatenated", text("name", "concatenated", kCore, "Name in messages."));
  schema.add(family + ":concatenated", several("datasets", 1, kIndexed, "The parts, in order."));

  schema.add_type(family, "slice", "A share of a dataset's documents.");
  schema.add(family + ":slice", one("dataset", kIndexed, "What is cut."));
  schema.add(
      family + ":slice",
      {between(0, 1, real("begin", "0", kCore, "Where it begins, as a share of the documents.")),
       between(0, 1, real("end", "1", kCore, "Where it ends, as a share of the documents."))});

  schema.add_type(family, "file", "A dataset defined in a YAML file of its own.");
  schema.add(family + ":file",
             required(text("path", "null", kCore,
                           "The file; each path in it is relative to its folder.")));

  schema.add_type(family, "concatenated_memmap", "All .idx/.bin pairs of a folder (deprecated).");
  schema.add(
      family + ":concatenated_memmap",
      required(text("path", "null", kCore, "The folder, with index.txt or the pairs alone.")));

  schema.add_type(family, "random", "Uniformly random tokens, for tests and timing.");
  schema.add(family + ":random", text("name", "dummy", kCore, "Name in messages."));

  schema.add_type(family, "sampled", "A dataset with sampling settings of its own.");
  schema.add(family + ":sampled", one("dataset", {}, "What is sampled."));
  schema.add(
      family + ":sampled",
      {nullable("inherited", integer("sampling.seed", "null", kFeature, "Seed of the order.")),
       nullable("inherited", boolean("sampling.gpu", "null", kFeature,
                                     "No effect: the order is always the CPU's.")),
       nullable("inherited", boolean("sampling.use_loss_masking_spans", "null", kFeature,
                                     "Leave the spans that the files mark out of the loss.")),
       nullable("inherited", choice("sampling.shuffle", "null", kFeature,
                                    {"full", "epoch", "skip_first_epoch", "disabled", "legacy"},
                                    "What is shuffled.")),
       nullable("inherited", boolean("sampling.truncate_documents", "null", kExpert,
                                     "Cut documents where samples end.")),
       nullable("inherited", above(0, integer("sampling.maximum_document_length", "null", kExpert,
                                              "Tokens of the longest document.")))});

  schema.add_type(family, "blended", "Samples of several datasets, mixed by weight.");
  schema.add(family + ":blended", text("name", "blended", kCore, "Name in messages."));
  schema.add(family + ":blended", several("datasets", 2, {}, "What is mixed."));
  schema.add(family + ":blended",
             {required(at_least(0, key(Type::kRealList, "weights", "null", kCore,
                                       "Share of each dataset; need not add up to 1."))),
              boolean("legacy", "false", kDeprecated,
                      "Number and seeds of samples as older versions had them.")});

  schema.add_type(family, "fim", "Fill-in-the-middle over another dataset.");
  schema.add(family + ":fim", fim_fields(""));
  schema.add(family + ":fim", one("dataset", {}, "What is turned."));

  schema.add_type(family, "legacy", "The older definition: prefixes with weights, split in three.",
                  true);
  schema.add(family + ":legacy", legacy_dataset_fields());

  schema.add_type(family, "test_slow", "Random tokens that take their time (test aid).");
  schema.add(family + ":test_slow",
             at_least(0, real("sleep", "1", kCore, "Seconds for the first sample.")));
}

}  // namespace fastllm::train
