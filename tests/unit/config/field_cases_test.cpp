// What users of other systems run into (docs/compatibility.md C33, C56, C57), over the real keys of
// the core and of gpt.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/config/resolve.hpp"
#include "tests/support/message_of.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm {
namespace {

using config::Node;

const config::Schema& schema() {
  static const config::Schema the_schema = test::gpt_schema();
  return the_schema;
}

std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return test::message_of(
      [&] {
        Node user = yaml.empty() ? Node::map() : config::parse_yaml(yaml, "a.yaml");
        config::apply_overrides(user, overrides);
        config::resolve(schema(), user);
      },
      Status::kInvalid);
}

Node value(const std::string& yaml, const std::string& path) {
  return *config::resolve(schema(), config::parse_yaml(yaml, "a.yaml")).root.find(path);
}

TEST(FieldCases, NumbersAreThoseOfYaml12) {
  const char* yaml =
      "optimizer: {learning_rate: {base: 1e-4, minimum: .5e-5}}\ntraining: {train_iters: 1000}\n";
  EXPECT_EQ(value(yaml, "optimizer.learning_rate.base"), Node::real(1e-4));
  EXPECT_EQ(value(yaml, "optimizer.learning_rate.minimum"), Node::real(5e-6));
  EXPECT_EQ(value(yaml, "training.train_iters"), Node::integer(1000));
  const std::string expected =
      "a.yaml:1: training.train_iters: expected an integer of at least 0, found ";
  auto iters = [](const std::string& text) {
    return error_of("training: {train_iters: " + text + "}");
  };
  EXPECT_EQ(iters("1_000"), expected + "the text \"1_000\"; write 1000");
  EXPECT_EQ(iters("1.000.000"), expected + "the text \"1.000.000\"; write 1000000");
  EXPECT_EQ(error_of("training:\n  train_iters: 1,000\n"),
            "a.yaml:2: training.train_iters: expected an integer of at least 0, found the text "
            "\"1,000\"; write 1000");
  EXPECT_EQ(iters("1000.0"), expected + "1000.0; write 1000");
  EXPECT_EQ(iters("'1000'"), expected + "the quoted text \"1000\"; write 1000 without quotes");
  EXPECT_EQ(iters("on"), expected + "the text \"on\"");
  EXPECT_EQ(value("optimizer: {learning_rate: {base: 1}}", "optimizer.learning_rate.base"),
            Node::real(1));
  for (const char* null : {"null", "~", ""})
    EXPECT_TRUE(value(std::string("training: {checkpoint: {keep: ") + null + "}}",
                      "training.checkpoint.keep")
                    .is_null());
  EXPECT_EQ(error_of("", {"training.train_iters=1_000"}),
            "command line: training.train_iters: expected an integer of at least 0, found the text "
            "\"1_000\"; write 1000");
  EXPECT_EQ(error_of("", {"optimizer.learning_rate.base=1e-4"}), "(no error)");
}

TEST(FieldCases, OnAndYesAreTexts) {
  auto flag = [](const std::string& text) {
    return error_of("schedule: {skip_step: " + text + "}");
  };
  const std::string expected =
      "a.yaml:1: schedule.skip_step: expected true or false, found the text ";
  EXPECT_EQ(flag("on"), expected + "\"on\"; write true");
  EXPECT_EQ(flag("yes"), expected + "\"yes\"; write true");
  EXPECT_EQ(flag("off"), expected + "\"off\"; write false");
  EXPECT_EQ(flag("no"), expected + "\"no\"; write false");
}

TEST(FieldCases, MisspeltAndMovedKeysAreAllToldWithWhatToWrite) {
  const char* yaml =
      "training: {train_iter: 10, validation: {intervall: 5}}\n"
      "optimiser: {weight_decay: 0.1}\n"
      "model: {transformer: {num_layers: 2}}\n"
      "batch: {learning_rate: 1.0e-4}\n"
      "optimizer: {learning_rate: 1.0e-4}\n"
      "schedule: {depth_first_micro_batches: 2}\n";
  EXPECT_EQ(error_of(yaml),
            "a.yaml:1: training.train_iter: unknown key; did you mean training.train_iters?\n"
            "a.yaml:1: training.validation.intervall: unknown key; did you mean "
            "training.validation.interval?\n"
            "a.yaml:2: optimiser: unknown key; did you mean optimizer?\n"
            "a.yaml:3: model.transformer: unknown key here; belongs one level deeper: "
            "model.base_model.transformer\n"
            "a.yaml:4: batch.learning_rate: unknown here; exists as optimizer.learning_rate.base\n"
            "a.yaml:5: optimizer.learning_rate: is a block, not a number; write "
            "optimizer.learning_rate.base: 1.0e-4\n"
            "a.yaml:6: schedule.depth_first_micro_batches: name of a later release; today: "
            "batch.depth_first_micro_batches");
}

TEST(FieldCases, AValueInPlaceOfABlockIsTakenForAKeyOnlyWhereThatIsSure) {
  EXPECT_EQ(error_of("training: 5"),
            "a.yaml:1: training: is a block, not a number; some of its keys are wall_clock_limit, "
            "train_iters, test_iters, num_workers, prefetch_factor, timeout");
  EXPECT_EQ(error_of("data: 5"),
            "a.yaml:1: data: is a block, not a number; some of its keys are split, format, path, "
            "data_sample_warn_time_ms, fim, sampling");
  EXPECT_EQ(error_of("training: {logs: 5, divergence: skip}"),
            "a.yaml:1: training.logs: is a block, not a number; write training.logs.interval: 5\n"
            "a.yaml:1: training.divergence: is a block, not a text; write "
            "training.divergence.policy: skip");
}

TEST(FieldCases, NamesOfLaterReleasesAreKnownAsSuch) {
  EXPECT_EQ(error_of("training: {evaluators: {v: {interval: 1}}}\nmodel: {base_model: {decoder: "
                     "{num_blocks: 2}}}\n"),
            "a.yaml:1: training.evaluators: name of a later release; today: training.validation "
            "(a block for each set)\n"
            "a.yaml:2: model.base_model.decoder.num_blocks: name of a later release; today: "
            "model.base_model.transformer.num_layers");
  EXPECT_EQ(error_of("peft: {type: lora}"),
            "a.yaml:1: peft: name of a later release; nothing like it today");
  EXPECT_EQ(
      error_of("data: {datasets: {training: {type: memmap}}}"),
      "a.yaml:1: data.datasets.training: name of a later release; today: data.datasets.Training");
  EXPECT_EQ(error_of("model: {base_model: {decoder: {block: {mixer: {heads: 4, colour: 1}}}}}"),
            "a.yaml:1: model.base_model.decoder.block.mixer.heads: name of a later release; today: "
            "model.base_model.transformer.num_attention_heads\n"
            "a.yaml:1: model.base_model.decoder.block.mixer.colour: unknown key");
  EXPECT_EQ(error_of("model: {distributed: {compute_dtype: bf16}}"),
            "a.yaml:1: model.distributed.compute_dtype: name of a later release; today: "
            "model.distributed.training_dtype");
}

TEST(FieldCases, HintsAtTheModelsKeysNeedAModelThatHasThem) {
  config::Schema core = config::Schema();
  core.add_later_name("model.base_model.decoder.num_blocks",
                      "model.base_model.transformer.num_layers");
  core.describe("model.base_model", "Another model.");
  EXPECT_EQ(test::message_of([&] {
              config::resolve(
                  core,
                  config::parse_yaml("model: {base_model: {decoder: {num_blocks: 2}}}", "a.yaml"));
            }),
            "a.yaml:1: model.base_model.decoder: unknown key");
}

TEST(FieldCases, AKeyOfAnotherBlockIsNamedWithItsPlaces) {
  EXPECT_EQ(
      error_of("optimizer: {iterations: 3}"),
      "a.yaml:1: optimizer.iterations: unknown here; exists as training.validation.iterations");
  EXPECT_EQ(error_of("optimizer: {interval: 3}"),
            "a.yaml:1: optimizer.interval: unknown here; exists as training.validation.interval, "
            "training.logs.interval, "
            "training.checkpoint.interval");
  EXPECT_EQ(error_of("optimizer: {lr: 3}"), "a.yaml:1: optimizer.lr: unknown key");
  EXPECT_EQ(
      error_of("model: {seed: 3}"),
      "a.yaml:1: model.seed: unknown key here; belongs one level deeper: model.distributed.seed");
}

TEST(FieldCases, KeepRefusesNumbersThatMeanNothingAndSaysWhatNullMeans) {
  for (const char* keep : {"-1", "0"}) {
    EXPECT_EQ(error_of(std::string("training: {checkpoint: {keep: ") + keep + "}}"),
              std::string("a.yaml:1: training.checkpoint.keep: expected an integer above 0, or "
                          "null (keeps all), found ") +
                  keep);
  }
  EXPECT_TRUE(value("training: {checkpoint: {keep: null}}", "training.checkpoint.keep").is_null());
}

TEST(FieldCases, OldNamesConvertWithAWarning) {
  auto result = config::resolve(
      schema(),
      config::parse_yaml("pretrained: {load_weights: false, load_optimizer: false}\n"
                         "model: {base_model: {transformer: {use_rotary_embeddings: true}}}\n",
                         "a.yaml"));
  EXPECT_EQ(result.root.get<bool>("pretrained.model_weights"), false);
  EXPECT_EQ(result.root.get<std::string>("model.base_model.transformer.rotary.type"), "default");
  EXPECT_THAT(result.warnings,
              testing::UnorderedElementsAre(
                  "a.yaml:1: pretrained.load_weights: old name; write pretrained.model_weights",
                  "a.yaml:1: pretrained.load_optimizer: old name; write pretrained.optimizer_state",
                  "a.yaml:2: model.base_model.transformer.use_rotary_embeddings: old name; write "
                  "model.base_model.transformer.rotary.type"));
  EXPECT_EQ(value("model: {base_model: {transformer: {use_rotary_embeddings: false}}}",
                  "model.base_model.transformer.rotary.type"),
            Node::text("none"));
}

TEST(FieldCases, ABareNumberIsNoScale) {
  EXPECT_EQ(error_of("", {"model.base_model.transformer.mlp_lr_scale=0"}),
            "command line: model.base_model.transformer.mlp_lr_scale: expected a list of numbers "
            "of at least 0 or null, "
            "found 0; write [0]");
}

TEST(FieldCases, IgnoredSettingsAreNoted) {
  auto result = config::resolve(schema(), config::parse_yaml("run: {triton_linear_kernels: true}\n"
                                                             "data: {sampling: {gpu: false}}\n",
                                                             "a.yaml"));
  EXPECT_THAT(result.warnings,
              testing::ElementsAre("a.yaml:1: run.triton_linear_kernels: no effect here",
                                   "a.yaml:2: data.sampling.gpu: no effect here"));
}

TEST(FieldCases, KeysOfPartsThatAreNotThereHaveNoEffect) {
  auto result = config::resolve(
      schema(), config::parse_yaml("training:\n"
                                   "  wandb: {alert: {interval: 100, offset: 1, status_updates: "
                                   "true}, group_name: g, project_name: p}\n"
                                   "run: {tensor_logs: {show: false, max_elements: 9},\n"
                                   "      experiment_name: x}\n"
                                   "model:\n"
                                   "  multi_stage: {debug_global_tensors: false,\n"
                                   "                debug_tensor_parallel: true}\n"
                                   "  distributed: {sample_seed_shift: 1,\n"
                                   "                valid_seed_shift: 2, test_seed_shift: 3}\n",
                                   "a.yaml"));
  std::vector<std::string> noted;
  for (const std::string& warning : result.warnings) {
    EXPECT_TRUE(warning.ends_with(": no effect here")) << warning;
    noted.push_back(warning.substr(0, warning.rfind(": no effect")));
  }
  EXPECT_THAT(
      noted, testing::UnorderedElementsAre(
                 "a.yaml:2: training.wandb.alert.interval", "a.yaml:2: training.wandb.alert.offset",
                 "a.yaml:2: training.wandb.alert.status_updates",
                 "a.yaml:2: training.wandb.group_name", "a.yaml:2: training.wandb.project_name",
                 "a.yaml:4: run.experiment_name", "a.yaml:8: model.distributed.sample_seed_shift",
                 "a.yaml:9: model.distributed.valid_seed_shift",
                 "a.yaml:9: model.distributed.test_seed_shift"));
}

TEST(FieldCases, NumbersAreFinite) {
  for (const char* number : {".inf", "-.inf", ".nan"}) {
    EXPECT_THAT(error_of(std::string("optimizer: {weight_decay: ") + number + "}"),
                testing::AllOf(testing::StartsWith("a.yaml:1: optimizer.weight_decay: expected a "
                                                   "number of at least 0, found "),
                               testing::HasSubstr(number), testing::EndsWith("finite number")));
  }
  EXPECT_THAT(error_of("model: {multi_stage: {layers_per_stage: .inf}}"),
              testing::StartsWith("a.yaml:1: model.multi_stage.layers_per_stage: expected"));
  EXPECT_THAT(error_of("model: {base_model: {transformer: {init_method_std: .inf}}}"),
              testing::StartsWith("a.yaml:1: model.base_model.transformer.init_method_std: "));
  EXPECT_THAT(error_of("model: {base_model: {transformer: {mlp_lr_scale: [.inf]}}}"),
              testing::HasSubstr("mlp_lr_scale: entry 0: expected"));
}

TEST(FieldCases, SettingsThatWouldChangeResultsAreRefused) {
  EXPECT_EQ(error_of("model: {multi_stage: {stages_per_pipeline_stage: 2}}"),
            "a.yaml:1: model.multi_stage.stages_per_pipeline_stage: expected 1, found 2: more than "
            "one is not offered; "
            "leave the key out");
  EXPECT_EQ(error_of("schedule: {estimate_critical_batch: true}"),
            "a.yaml:1: schedule.estimate_critical_batch: expected false, found true: no longer "
            "supported; leave the key "
            "out");
  EXPECT_EQ(error_of("training: {wandb: {entity_name: me}}"),
            "a.yaml:1: training.wandb.entity_name: expected null, found the text \"me\": this "
            "program is built without "
            "it; leave the key out, the same numbers are in the run's metrics.jsonl");
}

TEST(FieldCases, DatasetsOfDocumentsRefuseBlendedOnes) {
  EXPECT_EQ(error_of("data: {datasets: {Training: {type: slice, dataset: {type: blended}}}}"),
            "a.yaml:1: data.datasets.Training.dataset.type: expected one of memmap, concatenated, "
            "slice, file, "
            "concatenated_memmap, found blended; blended has no place here");
  EXPECT_EQ(
      error_of("data: {datasets: {Training: {type: parquet}}}"),
      "a.yaml:1: data.datasets.Training.type: expected one of memmap, concatenated, slice, file, "
      "concatenated_memmap, random, sampled, blended, fim, legacy, test_slow, found parquet");
}

}  // namespace
}  // namespace fastllm
