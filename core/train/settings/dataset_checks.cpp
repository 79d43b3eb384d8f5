// One walk over nested definitions; each type has its own questions.
#include "core/train/settings/dataset_checks.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/data/tokenizers/byte_tokenizer.hpp"
#include "core/train/settings/legacy_dataset.hpp"

namespace fastllm::train {
namespace {

using config::Node;

constexpr int64_t kMarkedVocabulary = data::byte_tokenizer::kVocabulary + 4;

class Walk {
 public:
  explicit Walk(const DatasetReport& report) : report_(report) {}

  void check(const Node& definition, const std::string& path, const DatasetRules& rules) const {
    auto add = [&](const std::string& key, const std::string& sentence) {
      const Node* value = definition.find(key);
      report_(value ? *value : definition, path + "." + key, sentence);
    };
    const std::string type = definition.get<std::string>("type");
    DatasetRules inner = rules;
    if (type == "test_slow") {
      add("type",
          "expected a dataset, found test_slow, a test aid that only slows a start down; write "
          "for example type: random");
    } else if (type == "memmap" || type == "concatenated_memmap") {
      if (rules.shuffle == "legacy" && !rules.truncate_documents)
        add("type",
            "expected truncate_documents: true with shuffle: legacy, which cuts documents, found "
            "false; write shuffle: epoch, or truncate_documents: true");
    } else if (type == "blended") {
      check_blended(definition, add);
    } else if (type == "slice") {
      if (!(definition.get<double>("begin") < definition.get<double>("end")))
        add("end", fmt::format("expected more than begin ({}), found {}",
                               definition.find("begin")->scalar_text(),
                               definition.find("end")->scalar_text()));
    } else if (type == "sampled") {
      inner.override_by(definition);
      if (rules.inside_fim && inner.use_loss_masking_spans && !rules.use_loss_masking_spans)
        add("sampling.use_loss_masking_spans", spans_sentence());
    } else if (type == "fim") {
      check_fim("", rules, add);
      inner.inside_fim = true;
      inner.use_loss_masking_spans = false;
    } else if (type == "legacy") {
      check_legacy(definition, rules, add);
    }
    if (const Node* one = definition.child("dataset")) check(*one, path + ".dataset", inner);
    const Node* list = definition.child("datasets");
    for (size_t i = 0; list && i < list->size(); ++i)
      check(list->at(i), fmt::format("{}.datasets.{}", path, i), inner);
  }

 private:
  static std::string spans_sentence() {
    return "expected false with fill-in-the-middle, which moves tokens out of their spans, found "
           "true; leave it out for this dataset";
  }

  template <class Add>
  static void check_blended(const Node& definition, const Add& add) {
    const Node &list = *definition.child("datasets"), &weights = *definition.child("weights");
    if (weights.size() != list.size())
      add("weights", fmt::format("expected one weight for each of the {} datasets, found {}",
                                 list.size(), weights.size()));
    bool any = false;
    for (size_t i = 0; i < weights.size(); ++i) any = any || weights.at(i).as_real() > 0;
    if (!any) add("weights", "expected at least one weight above 0, found none");
  }

  // prefix: of its keys, "fim." in the legacy definition.
  template <class Add>
  static void check_fim(const std::string& prefix, const DatasetRules& rules, const Add& add) {
    const std::string key = prefix.empty() ? "type" : prefix + "rate";
    if (rules.use_loss_masking_spans)
      add(key,
          "expected use_loss_masking_spans: false with fill-in-the-middle, which moves tokens out "
          "of their spans, found true; leave one of them out");
    if (rules.tokenizer_path.empty()) {
      add(key,
          "expected data.tokenizer.path to be set, since fill-in-the-middle cuts text, found "
          "null; write data.tokenizer.path: FOLDER, the one the data was prepared with");
    } else if (rules.tokenizer_path == data::byte_tokenizer::kName && rules.vocab_size > 0 &&
               rules.vocab_size < kMarkedVocabulary) {
      add(key, fmt::format("expected a vocab_size of the model from {} up, since the four marks of "
                           "fill-in-the-middle are the ids {} to {} of the tokenizer {}, found {}",
                           kMarkedVocabulary, data::byte_tokenizer::kVocabulary,
                           kMarkedVocabulary - 1, data::byte_tokenizer::kName, rules.vocab_size));
    }
  }

  template <class Add>
  static void check_legacy(const Node& definition, const DatasetRules& rules, const Add& add) {
    if (!rules.truncate_documents)
      add("type",
          "expected truncate_documents: true with this definition, whose order cuts documents, "
          "found false; leave it out");
    if (definition.get<double>("fim.rate") > 0) check_fim("fim.", rules, add);
    if (definition.get<std::string>("format") == "file") return;  // judged when it is read
    try {
      translate_legacy(definition, rules.split_part, 0, {});
    } catch (const LegacyError& error) {
      add(error.key(), error.what());
    }
  }

  const DatasetReport& report_;
};

}  // namespace

void check_dataset(const Node& definition, const std::string& path, const DatasetRules& rules,
                   const DatasetReport& report) {
  Walk(report).check(definition, path, rules);
}

void check_dataset(const Node& definition, const std::string& path, const DatasetRules& rules) {
  std::string text;
  check_dataset(definition, path, rules,
                [&](const Node& value, const std::string& key, const std::string& sentence) {
                  std::string place = value.mark.text();
                  if (place.empty()) place = definition.mark.text();
                  text += fmt::format("{}{}{}{}: {}", text.empty() ? "" : "\n", place,
                                      place.empty() ? "" : ": ", key, sentence);
                });
  if (!text.empty()) throw Error(Status::kInvalid, text);
}

size_t split_part(const std::string& name) {
  return name == "Training" ? 0 : name == "Test" ? 2 : 1;
}

}  // namespace fastllm::train
