#include "core/train/datasets/dataset_type.hpp"
#include "core/train/field_builders.hpp"

namespace fastllm::train::types {
namespace {

void declare(config::Schema& schema, const std::string& block) {
  schema.add(block,
             at_least(0, real("sleep", "1", config::kCore, "Seconds for the first sample.")));
}

void check(const DatasetCheck& check) {
  check.add("type",
            "expected a dataset, found test_slow, a test aid that only slows a start down; write "
            "for example type: random");
}

}  // namespace

extern constinit const DatasetType test_slow = {
    .name = "test_slow",
    .help = "Random tokens that take their time (test aid).",
    .declare = declare,
    .check = check};

}  // namespace fastllm::train::types
