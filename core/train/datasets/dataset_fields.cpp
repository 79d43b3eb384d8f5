#include "core/train/datasets/dataset_fields.hpp"

#include <utility>

#include "core/train/datasets/dataset_type.hpp"

namespace fastllm::train {

void add_dataset_family(config::Schema& schema) {
  const std::string family = kDatasetFamily;
  schema.add_family(family, "A source of samples; its key type says which other keys it has.");
  for (const DatasetType* type : dataset_types()) {
    const std::string name(type->name);
    schema.add_type(family, name, type->help, type->type_last);
    type->declare(schema, family + ":" + name);
  }
  schema.add_later_type(family, "streaming", "");
}

const config::Schema& dataset_schema() {
  static const config::Schema schema = [] {
    config::Schema made;
    add_dataset_family(made);
    return made;
  }();
  return schema;
}

config::Nested one_dataset(const std::string& path, Inside inside, const std::string& help) {
  config::Nested nested;
  nested.path = path;
  nested.family = kDatasetFamily;
  // Those that take documents one by one refuse anything else.
  if (inside == Inside::kDocuments) nested.types = dataset_type_names(/*of_documents=*/true);
  nested.help = help;
  return nested;
}

config::Nested several_datasets(const std::string& path, size_t minimum, Inside inside,
                                const std::string& help) {
  config::Nested nested = one_dataset(path, inside, help);
  nested.form = config::Nested::Form::kList;
  nested.minimum = minimum;
  return nested;
}

}  // namespace fastllm::train
