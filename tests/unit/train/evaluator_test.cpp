// An evaluation on its own: what is published, and what a wish to stop in its middle leaves.
#include "core/train/evaluator.hpp"

#include <gmock/gmock.h>

#include "tests/unit/train/toy_step.hpp"

namespace fastllm::train {
namespace {

class SomeTokens : public data::SampledDataset {
 public:
  int64_t size() const override { return 100; }
  void get(int64_t index, data::Sample& sample) const override {
    for (size_t i = 0; i < sample.tokens.size(); ++i)
      sample.tokens[i] = (index * 7 + int64_t(i) * 3) % 11;
    sample.document_lengths = {int64_t(sample.tokens.size())};
  }
  std::string name() const override { return "some"; }
  std::vector<std::string> fingerprints() const override { return {"some"}; }
};

struct EvaluatorRig {
  explicit EvaluatorRig(std::function<bool()> stop)
      : step({}, settings()),
        evaluator({step.settings, step.workspace, datasets, reporter, [] { return 0.; }, 0, nullptr,
                   std::move(stop)}) {}
  static Settings settings() {
    Settings s = test::toy_settings();
    s.training.validation = {{"", Interval(1, 0), 3}};
    s.training.num_workers = 0;
    return s;
  }

  test::ToyStep step;
  Datasets datasets{{"Validation", std::make_shared<SomeTokens>()}};
  Reporter reporter{step.settings, nullptr};
  Evaluator evaluator;
};

TEST(Evaluator, AsksBeforeEachStepWhetherToStopAndThenPublishesNothing) {
  for (const int steps : {0, 1, 2, 3}) {
    int asked = 0;
    EvaluatorRig rig([&] { return asked++ == steps; });
    EXPECT_EQ(rig.evaluator.validate(rig.step.settings.training.validation[0], 5), steps == 3);
    EXPECT_EQ(rig.step.model.counts.back().forward, 2 * steps);  // micro-batches
    EXPECT_EQ(rig.reporter.published().has("Validation"), steps == 3);
  }
}

TEST(Evaluator, WithoutAnybodyToAskItEndsByItself) {
  EvaluatorRig rig({});
  EXPECT_TRUE(rig.evaluator.validate(rig.step.settings.training.validation[0], 5));
  EXPECT_TRUE(rig.reporter.published().has("Validation.loss"));
}

}  // namespace
}  // namespace fastllm::train
