// One walk over nested definitions; each type has its own questions.
#include "core/train/datasets/dataset_checks.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/train/datasets/dataset_type.hpp"

namespace fastllm::train {

using config::Node;

void check_dataset(const Node& definition, const std::string& path, const DatasetRules& rules,
                   const DatasetReport& report) {
  const DatasetType* type = find_dataset_type(definition.get<std::string>("type"));
  FASTLLM_ASSERT(type != nullptr);  // the schema has them from the same table
  DatasetRules inside = rules;
  if (type->check) {
    type->check(
        {definition, rules, inside, [&](const std::string& key, const std::string& sentence) {
           const Node* value = definition.find(key);
           report(value ? *value : definition, path + "." + key, sentence);
         }});
  }
  if (const Node* one = definition.child("dataset"))
    check_dataset(*one, path + ".dataset", inside, report);
  const Node* list = definition.child("datasets");
  for (size_t i = 0; list && i < list->size(); ++i)
    check_dataset(list->at(i), fmt::format("{}.datasets.{}", path, i), inside, report);
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
