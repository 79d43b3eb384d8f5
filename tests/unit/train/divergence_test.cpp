// What a step with something wrong is found out about: where it began, and what that may cost.
#include "core/train/divergence.hpp"

#include <gmock/gmock.h>

#include "core/train/executor/initialize.hpp"
#include "tests/unit/train/toy_model.hpp"

namespace fastllm::train {
namespace {

using ::testing::HasSubstr;

// Two micro-batches of one sample on a toy model, as the trainer has them in memory.
struct Rig {
  explicit Rig(const test::ToyOptions& options = {}) : model(options), workspace(settings, model) {
    initialize(workspace.store, model, 5);
    for (int b = 0; b < 2; ++b) {
      data::Batch& batch = batches[b];
      batch.samples = 1;
      batch.length = 5;
      for (int64_t i = 0; i < 5; ++i) {
        batch.tokens.push_back((b + 3 * i) % 11);
        batch.labels.push_back((b + 3 * i + 3) % 11);
        batch.positions.push_back(i);
        batch.documents.push_back(0);
      }
      batch.cu_seqlens = {0, 5};
      batch.valid_labels = 5;
      input.micro_batches.push_back(&batch);
      input.valid_labels += 5;
    }
    input.step = 1;
  }
  static Settings make_settings() {
    Settings settings;
    settings.batch.batch_size = 2;
    settings.batch.sequential_micro_batches = settings.batch.depth_first_micro_batches = 2;
    settings.batch.sequence_length = 5;
    return settings;
  }

  Settings settings = make_settings();
  test::ToyModel model;
  Workspace workspace;
  data::Batch batches[2];
  StepInput input;
};

TEST(FindNonFinite, NamesTheOutputByItsLayerAndItsNameWhateverDotsTheyHold) {
  test::ToyOptions options;
  options.hidden = "hidden.states";
  Rig rig(options);
  rig.model.poison = {3, false, 1, 1, 1};
  EXPECT_THAT(find_non_finite(rig.workspace, rig.input),
              HasSubstr("The first that is not finite: output hidden.states of layer block_1 (1 of "
                        "30 values, the first nan at [0, 1]) in forward of micro-batch 1."));
}

// Logits of a step are the largest tensor by far: where they are made for the search alone, a run
// that fits its memory would die of looking.
TEST(FindNonFinite, AsksForNoOutputThatTheStepDoesNotMake) {
  Rig rig;
  rig.model.poison = {2, false, 1, 1, 0};
  find_non_finite(rig.workspace, rig.input);
  EXPECT_GT(rig.model.counts.back().forward, 0);
  EXPECT_FALSE(rig.model.logits_made);
}

}  // namespace
}  // namespace fastllm::train
