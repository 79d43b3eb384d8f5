// Definitions that are valid key by key, and mean nothing together.
#include "core/train/datasets/dataset_checks.hpp"

#include <gmock/gmock.h>

#include "core/base/error.hpp"
#include "core/config/resolve.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm::train {
namespace {

using config::Node;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string problem(const std::string& yaml, const DatasetRules& rules = {}) {
  static const config::Schema schema = test::gpt_schema();
  Node definition = config::resolve_typed(schema, "dataset", config::parse_yaml(yaml, "set.yaml"));
  try {
    check_dataset(definition, "data.datasets.Test", rules);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(DatasetChecks, TellAllProblemsWithTheirPlaces) {
  EXPECT_EQ(problem("type: blended\nweights: [1]\ndatasets:\n- {type: random}\n"
                    "- {type: test_slow}\n"),
            "set.yaml:2: data.datasets.Test.weights: expected one weight for each of the 2 "
            "datasets, found 1\n"
            "set.yaml:5: data.datasets.Test.datasets.1.type: expected a dataset, found test_slow, "
            "a test aid that only slows a start down; write for example type: random");
  EXPECT_EQ(problem("type: blended\nweights: [0, 0]\ndatasets: [{type: random}, {type: random}]"),
            "set.yaml:2: data.datasets.Test.weights: expected at least one weight above 0, found "
            "none");
  EXPECT_EQ(problem("type: blended\nweights: [0, 1]\ndatasets: [{type: random}, {type: random}]"),
            "no error");
}

TEST(DatasetChecks, FillInTheMiddleNeedsATokenizerAndNoSpans) {
  const std::string fim = "type: fim\nrate: 0.5\ndataset: {type: random}";
  EXPECT_THAT(problem(fim), AllOf(HasSubstr("set.yaml:1: data.datasets.Test.type: expected "
                                            "data.tokenizer.path to be set"),
                                  HasSubstr("write data.tokenizer.path: FOLDER")));
  DatasetRules rules;
  rules.tokenizer_path = "folder";
  EXPECT_EQ(problem(fim, rules), "no error");
  rules.use_loss_masking_spans = true;
  EXPECT_THAT(problem(fim, rules),
              HasSubstr("expected use_loss_masking_spans: false with fill-in-the-middle"));
  // Allowed when the choice for this dataset is another; refused when it is for what is inside.
  EXPECT_EQ(problem("type: sampled\nsampling: {use_loss_masking_spans: false}\n"
                    "dataset: {type: fim, rate: 0.5, dataset: {type: random}}",
                    rules),
            "no error");
  rules.use_loss_masking_spans = false;
  EXPECT_EQ(
      problem("type: fim\nrate: 0.5\ndataset:\n  type: sampled\n  dataset: {type: random}\n"
              "  sampling:\n    use_loss_masking_spans: true",
              rules),
      "set.yaml:7: data.datasets.Test.dataset.sampling.use_loss_masking_spans: expected false "
      "with fill-in-the-middle, which moves tokens out of their spans, found true; leave it "
      "out for this dataset");
  // The built-in tokenizer has four ids more for the marks.
  rules.tokenizer_path = "bytes";
  EXPECT_EQ(problem(fim, rules), "no error");  // the model does not say
  rules.vocab_size = 262;
  EXPECT_THAT(problem(fim, rules), AllOf(HasSubstr("from 263 up"), HasSubstr("found 262"),
                                         HasSubstr("the ids 259 to 262")));
  rules.vocab_size = 263;
  EXPECT_EQ(problem(fim, rules), "no error");
}

TEST(DatasetChecks, TheLegacyOrderCutsDocuments) {
  DatasetRules rules;
  rules.truncate_documents = false;
  EXPECT_EQ(problem("{type: memmap, path: x}", rules), "no error");
  EXPECT_THAT(problem("{type: sampled, sampling: {shuffle: legacy}, dataset: {type: memmap, path: "
                      "x}}",
                      rules),
              HasSubstr("set.yaml:1: data.datasets.Test.dataset.type: expected "
                        "truncate_documents: true with shuffle: legacy"));
  EXPECT_EQ(problem("{type: sampled, sampling: {shuffle: legacy, truncate_documents: true}, "
                    "dataset: {type: memmap, path: x}}",
                    rules),
            "no error");
  EXPECT_THAT(problem("{type: legacy, path: x}", rules),
              HasSubstr("expected truncate_documents: true with this definition"));
}

}  // namespace
}  // namespace fastllm::train
