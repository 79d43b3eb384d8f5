// Settings from resolved keys: sizes, intervals, ranks, cross-field rules, and what this version
// refuses.
#include "core/train/settings/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/base/error.hpp"
#include "core/config/resolve.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm::train {
namespace {

using config::Node;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Node resolved(const std::string& yaml) {
  static const config::Schema schema = test::gpt_schema();
  Node user = yaml.empty() ? Node::map() : config::parse_yaml(yaml, "t.yaml");
  Node root = config::resolve(schema, user).root;
  test::fill_gpt_defaults(root);
  return root;
}

Settings made(const std::string& yaml, const Environment& environment = {}) {
  Node root = resolved(yaml);
  return make_settings(root, environment);
}

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::kInvalid);
    return error.what();
  }
  return "no error";
}

std::string error_of(const std::string& yaml, const Environment& environment = {}) {
  return text_of([&] { made(yaml, environment); });
}

std::string refusal_of(const std::string& yaml, const Environment& environment = {}) {
  return text_of([&] {
    Node root = resolved(yaml);
    check_launch(root, environment);
    Settings settings = make_settings(root, environment);
    check_supported(settings, root);
  });
}

// ---------------------------------------------------------------- intervals

TEST(Interval, IsDueEachNthIteration) {
  Interval plain(100, 0), moved(30, 5), never;
  EXPECT_TRUE(plain.enabled(100));
  EXPECT_TRUE(plain.enabled(0));
  EXPECT_FALSE(plain.enabled(150));
  EXPECT_TRUE(moved.enabled(35));
  EXPECT_FALSE(moved.enabled(30));
  EXPECT_FALSE(never.enabled(100));
  EXPECT_TRUE(plain.enabled());
  EXPECT_FALSE(never.enabled());
}

TEST(Interval, CountsHowOftenItWasDue) {
  EXPECT_EQ(Interval(100, 0).count(100), 2);
  EXPECT_EQ(Interval(30, 0).count(100), 4);
  EXPECT_EQ(Interval(30, 0).count(29), 1);
  EXPECT_EQ(Interval(30, 5).count(4), 0);
  EXPECT_EQ(Interval(30, 5).count(5), 1);
  EXPECT_EQ(Interval().count(100), 0);
}

TEST(Interval, IsDueByTimeToo) {
  const Interval both(10, 0, 60), time(std::nullopt, 0, 60);
  EXPECT_TRUE(both.due(10, 0));
  EXPECT_TRUE(both.due(11, 60));
  EXPECT_FALSE(both.due(11, 59.9));
  EXPECT_FALSE(Interval(10, 0).due(11, 1e9));
  EXPECT_TRUE(time.enabled());
  EXPECT_FALSE(time.enabled(60));
  EXPECT_EQ(time.count(60), 0);
}

TEST(Interval, ReducesItsOffset) {
  EXPECT_EQ(Interval(5, 7).offset, 2);
  EXPECT_EQ(Interval(std::nullopt, 7).offset, 7);
}

TEST(Interval, KnowsWhatItIsPartOf) {
  EXPECT_TRUE(Interval(200, 50).is_sub_interval_of({100, 50}));
  EXPECT_FALSE(Interval(200, 50).is_sub_interval_of({100, 0}));
  EXPECT_FALSE(Interval(100, 0).is_sub_interval_of({200, 0}));
  EXPECT_TRUE(Interval().is_sub_interval_of({}));
  EXPECT_TRUE(Interval().is_sub_interval_of({7, 0}));
  EXPECT_FALSE(Interval(7, 0).is_sub_interval_of({}));
}

TEST(Settings, ReducesAndNotesOffsets) {
  Node root = resolved("training: {logs: {interval: 5, offset: 7}}");
  Settings settings = make_settings(root, {});
  EXPECT_EQ(settings.training.logs.offset, 2);
  EXPECT_EQ(root.get<int64_t>("training.logs.offset"), 2);
  EXPECT_THAT(
      settings.notes,
      ElementsAre("t.yaml:1: training.logs.offset: 7 is reduced modulo the interval 5 to 2"));
}

TEST(Settings, RefusesIntervalsThatDoNotFitTogether) {
  const std::string folder = "run: {experiment_dir: x}\n";
  EXPECT_EQ(error_of(folder + "training: {checkpoint: {interval: 3}, shutdown: {interval: 4}}"),
            "t.yaml:2: training.shutdown.interval: is not a sub-interval of training.checkpoint: "
            "expected a multiple of "
            "training.checkpoint.interval (3), found 4; write 3 or 6");
  EXPECT_EQ(error_of(folder + "training: {checkpoint: {interval: 8}, shutdown: {interval: 4}}"),
            "t.yaml:2: training.shutdown.interval: is not a sub-interval of training.checkpoint: "
            "expected a multiple of "
            "training.checkpoint.interval (8), found 4; write 8");
  EXPECT_EQ(error_of("training: {logs: {interval: 10}, wandb: {alert: {interval: 15}}}"),
            "t.yaml:1: training.wandb.alert.interval: is not a sub-interval of training.logs: "
            "expected a multiple of "
            "training.logs.interval (10), found 15; write 10 or 20");
  EXPECT_EQ(error_of("training: {shutdown: {interval: 4}}"),
            "t.yaml:1: training.shutdown.interval: is not a sub-interval of training.checkpoint, "
            "whose interval is null; "
            "write training.checkpoint.interval: 4");
  EXPECT_EQ(error_of(folder +
                     "training: {checkpoint: {interval: 3, offset: 1}, shutdown: {interval: 6}}"),
            "training.shutdown.offset: is not a sub-interval of training.checkpoint: expected an "
            "offset that leaves 1 "
            "when divided by training.checkpoint.interval (3), as training.checkpoint.offset does, "
            "found 0; write 1");
  EXPECT_EQ(
      error_of(
          folder +
          "training: {checkpoint: {interval: 3, offset: 1}, shutdown: {interval: 6, offset: 4}}"),
      "no error");
}

TEST(Settings, WantsAFolderToSaveIn) {
  const std::string rest =
      ": expected run.experiment_dir to be set too, found null; write run.experiment_dir: FOLDER, "
      "or leave this out";
  EXPECT_EQ(error_of("training: {checkpoint: {interval: 3}}"),
            "t.yaml:1: training.checkpoint.interval" + rest);
  EXPECT_EQ(error_of("training: {export: {interval: 3}}"),
            "t.yaml:1: training.export.interval" + rest);
  EXPECT_EQ(error_of("run: {tensor_logs: {save: true}}"), "t.yaml:1: run.tensor_logs.save" + rest);
}

TEST(Settings, ValidationNeedsANumberOfSteps) {
  EXPECT_EQ(error_of("training: {validation: {interval: 3}}"),
            "training.validation.iterations: expected a number of steps, since "
            "training.validation.interval is set, "
            "found null; write for example 10");
}

// ---------------------------------------------------------------- batch

struct BatchCase {
  const char* yaml;
  int64_t ranks;
  int64_t micro, depth, breadth, sequential, total;
};

TEST(Batch, SizesFollowFromTheGivenOnes) {
  const BatchCase cases[] = {
      {"{}", 1, 1, 1, 1, 1, 1},
      {"{batch_size: 8, depth_first_micro_batches: 4}", 1, 2, 4, 1, 4, 8},
      {"{batch_size: 480, micro_batch_size: 60}", 8, 60, 1, 1, 1, 480},
      {"{batch_size: 64, micro_batch_size: 2}", 1, 2, 32, 1, 32, 64},
      {"{batch_size: 64, micro_batch_size: 2, breadth_first_micro_batches: 4}", 1, 2, 8, 4, 32, 64},
      {"{batch_size: 64, micro_batch_size: 2, depth_first_micro_batches: 4}", 1, 2, 4, 8, 32, 64},
      {"{batch_size: 64, micro_batch_size: 2, depth_first_micro_batches: 4, "
       "breadth_first_micro_batches: 8}",
       1, 2, 4, 8, 32, 64},
      {"{micro_batch_size: 3, depth_first_micro_batches: 2, breadth_first_micro_batches: 2}", 2, 3,
       2, 2, 4, 24},
      {"{depth_first_micro_batches: 3}", 1, 1, 3, 1, 3, 3},
      {"{micro_batch_size: 4}", 8, 4, 1, 1, 1, 32},
  };
  for (const BatchCase& c : cases) {
    Node root = resolved(std::string("batch: ") + c.yaml);
    BatchSettings batch =
        make_settings(root, {.world_size = c.ranks, .rank = 0, .local_world_size = 1}).batch;
    EXPECT_EQ(batch.micro_batch_size, c.micro) << c.yaml;
    EXPECT_EQ(batch.depth_first_micro_batches, c.depth) << c.yaml;
    EXPECT_EQ(batch.breadth_first_micro_batches, c.breadth) << c.yaml;
    EXPECT_EQ(batch.sequential_micro_batches, c.sequential) << c.yaml;
    EXPECT_EQ(batch.batch_size, c.total) << c.yaml;
    EXPECT_EQ(root.get<int64_t>("batch.batch_size"), c.total) << c.yaml;
    EXPECT_EQ(root.get<int64_t>("batch.micro_sequence_length"), 2048) << c.yaml;
  }
}

TEST(Batch, PipelinesPreferBreadth) {
  BatchSettings batch = made(
                            "batch: {batch_size: 64, micro_batch_size: 2}\nmodel: {distributed: "
                            "{pipeline_parallel: 2}}",
                            {.world_size = 2, .rank = 0, .local_world_size = 2})
                            .batch;
  EXPECT_EQ(batch.depth_first_micro_batches, 1);
  EXPECT_EQ(batch.breadth_first_micro_batches, 32);
}

TEST(Batch, PipelinesTakeMicroBatchesInBreadthAlone) {
  const std::string two = "model: {distributed: {world_size: 2, pipeline_parallel: 2}}\n";
  EXPECT_EQ(error_of(two + "batch: {depth_first_micro_batches: 4}"),
            "t.yaml:2: batch.depth_first_micro_batches: expected 1, since "
            "model.distributed.pipeline_parallel is 2, found 4; write 4 as "
            "batch.breadth_first_micro_batches instead");
  EXPECT_THAT(made(two + "batch: {breadth_first_micro_batches: 2}").notes, IsEmpty());
  EXPECT_THAT(made(two).notes,
              ElementsAre("batch.batch_size: 1 micro-batches keep 2 pipeline-parallel ranks "
                          "waiting; at least as many micro-batches as ranks, better several times "
                          "as many, do not"));
  EXPECT_THAT(
      made("batch: {depth_first_micro_batches: 2, breadth_first_micro_batches: 2}").notes,
      ElementsAre(HasSubstr("batch.depth_first_micro_batches: micro-batches go partly one after "
                            "the other, partly stage by stage")));
}

TEST(Batch, SizesThatDoNotDivideAreNamed) {
  EXPECT_EQ(error_of("batch: {batch_size: 7, micro_batch_size: 2}"),
            "t.yaml:1: batch.batch_size: expected a multiple of batch.micro_batch_size times "
            "data-parallel ranks = 2, "
            "found 7: 7%2!=0; write 6 or 8");
  EXPECT_EQ(error_of("batch: {batch_size: 1, micro_batch_size: 2}"),
            "t.yaml:1: batch.batch_size: expected a multiple of batch.micro_batch_size times "
            "data-parallel ranks = 2, "
            "found 1: 1%2!=0; write 2");
  EXPECT_EQ(error_of("batch: {batch_size: 7, depth_first_micro_batches: 2}"),
            "t.yaml:1: batch.batch_size: expected a multiple of the number of micro-batches times "
            "data-parallel ranks = "
            "2, found 7: 7%2!=0; write 6 or 8");
  EXPECT_EQ(error_of("batch: {batch_size: 8, micro_batch_size: 1, depth_first_micro_batches: 3}"),
            "t.yaml:1: batch.depth_first_micro_batches: expected a divisor of the 8 micro-batches "
            "that batch_size and "
            "micro_batch_size ask for, found 3: 8%3!=0");
  EXPECT_EQ(error_of("batch: {batch_size: 8, micro_batch_size: 1, breadth_first_micro_batches: 3}"),
            "t.yaml:1: batch.breadth_first_micro_batches: expected a divisor of the 8 "
            "micro-batches that batch_size and "
            "micro_batch_size ask for, found 3: 8%3!=0");
  EXPECT_EQ(error_of("batch: {batch_size: 8, micro_batch_size: 1, depth_first_micro_batches: 2, "
                     "breadth_first_micro_batches: 2}"),
            "t.yaml:1: batch.depth_first_micro_batches: expected depth_first_micro_batches times "
            "breadth_first_micro_batches to be 8, what batch_size and micro_batch_size ask for, "
            "found 2 times 2; leave "
            "one out");
  EXPECT_EQ(error_of("batch: {sequence_length: 100, micro_sequence_length: 30}"),
            "t.yaml:1: batch.micro_sequence_length: expected a divisor of batch.sequence_length "
            "(100), found 30: "
            "100%30!=0");
  EXPECT_EQ(
      error_of("batch: {micro_batch_size: 9223372036854775807, depth_first_micro_batches: 2}"),
      "t.yaml:1: batch: expected sizes whose product fits in 64 bits, found 9223372036854775807 "
      "times 2");
}

TEST(Batch, TokensDivideOverSequenceTensorRanks) {
  const std::string two =
      "model: {distributed: {world_size: 2, local_world_size: 2, tensor_parallel: 2, "
      "sequence_tensor_parallel: true}}\n";
  EXPECT_EQ(error_of(two + "batch: {sequence_length: 31, micro_batch_size: 3}"),
            "t.yaml:2: batch.sequence_length: expected batch.micro_batch_size times the sequence "
            "length to be a multiple of 2, the ranks that share its tokens with "
            "model.distributed.sequence_tensor_parallel, found 3 times 31; choose another length "
            "or write sequence_tensor_parallel: false");
  EXPECT_EQ(error_of(two + "batch: {sequence_length: 31, micro_batch_size: 4}"), "no error");
  EXPECT_EQ(error_of("model: {distributed: {world_size: 2, local_world_size: 2, tensor_parallel: "
                     "2}}\nbatch: {sequence_length: 31, micro_batch_size: 3}"),
            "no error");
}

TEST(Batch, SamplesDivideOverSequenceDataRanks) {
  const std::string three = "model: {distributed: {world_size: 3, sequence_data_parallel: 3}}\n";
  EXPECT_EQ(error_of(three + "batch: {sequence_length: 32, micro_batch_size: 3}"),
            "t.yaml:2: batch.sequence_length: expected a multiple of "
            "model.distributed.sequence_data_parallel (3), the ranks that share each sample, found "
            "32: 32%3=2; choose another length");
  EXPECT_EQ(error_of(three + "batch: {sequence_length: 33, micro_batch_size: 5}"), "no error");
}

TEST(Batch, MicroBatchesAreCountable) {
  const std::string most = std::to_string(kMostMicroBatches);
  for (const char* key : {"depth_first_micro_batches", "breadth_first_micro_batches"}) {
    EXPECT_EQ(error_of(std::string("batch: {") + key + ": 4294967297}"),
              std::string("t.yaml:1: batch.") + key + ": expected an integer from 1 to " + most +
                  ", or null (computed), found 4294967297");
    EXPECT_EQ(error_of(std::string("batch: {") + key + ": " + most + "}"), "no error");
  }
  // Those that follow from others, too: 2^32 + 1 is 1 in 32 bits.
  EXPECT_EQ(error_of("batch: {batch_size: 4294967297, micro_batch_size: 1}"),
            "t.yaml:1: batch.batch_size: expected at most " + most +
                " micro-batches a step, found 4294967297; enlarge batch.micro_batch_size or make "
                "the batch smaller");
  EXPECT_THAT(error_of("batch: {depth_first_micro_batches: 2048, breadth_first_micro_batches: "
                       "2048}"),
              HasSubstr("batch.batch_size: expected at most " + most +
                        " micro-batches a step, "
                        "found 4194304"));
}

TEST(Batch, AGivenNumberOfMicroBatchesIsReplaced) {
  EXPECT_THAT(made("batch: {sequential_micro_batches: 3}").notes,
              ElementsAre("t.yaml:1: batch.sequential_micro_batches: 3 is replaced by 1, which "
                          "follows from the other "
                          "sizes"));
}

TEST(Settings, PhasesTakeTheReferencesNumbersOfSamples) {
  Settings settings = made(
      "training: {train_iters: 100, test_iters: 3, validation: {interval: 30, iterations: 5}}\n"
      "batch: {batch_size: 8}");
  EXPECT_EQ(settings.samples(Phase::kTraining), 800);
  EXPECT_EQ(settings.samples(Phase::kTest), 24);
  EXPECT_EQ(settings.samples(settings.training.validation.at(0)), 200);
  settings = made(
      "training: {train_iters: 90, validation: {interval: 30, iterations: 5}}\nbatch: {batch_size: "
      "8}");
  EXPECT_EQ(settings.samples(settings.training.validation.at(0)), 8 * 5 * 4);
  EXPECT_THAT(made("training: {train_iters: 100}").training.validation, IsEmpty());
  settings = made("training: {validation: {interval: 30, iterations: 5}}");
  EXPECT_EQ(settings.samples(settings.training.validation.at(0)), 0);
}

TEST(Settings, EveryValidationSetHasPositionsOfItsOwn) {
  const Settings settings = made(
      "training: {train_iters: 100, validation: {interval: 30, iterations: 5, code: {interval: 20, "
      "offset: 3, iterations: 2}, by-time: {seconds: 60, iterations: 4}, later: {iterations: 1}}}\n"
      "batch: {batch_size: 8}");
  const auto& sets = settings.training.validation;
  ASSERT_EQ(sets.size(), 4u);
  std::vector<std::string> datasets, keys;
  for (const ValidationSet& set : sets) {
    datasets.push_back(set.dataset());
    keys.push_back(set.key());
  }
  EXPECT_THAT(datasets, ElementsAre("Validation", "code", "by-time", "later"));
  EXPECT_THAT(keys, ElementsAre("training.validation", "training.validation.code",
                                "training.validation.by-time", "training.validation.later"));
  EXPECT_EQ(settings.samples(sets[0]), 8 * 5 * 5);
  EXPECT_EQ(settings.samples(sets[1]), 8 * 2 * 6);  // at 3, 23, 43, 63, 83 and at the end
  EXPECT_EQ(settings.samples(sets[2]), 8 * 4);      // the same ones each time
  EXPECT_EQ(settings.samples(sets[3]), 0);          // not while training
  EXPECT_EQ(Settings::first_validation_step(sets[0], 30), 5);
  EXPECT_EQ(Settings::first_validation_step(sets[1], 3), 0);
  EXPECT_EQ(Settings::first_validation_step(sets[1], 100), 10);
  EXPECT_EQ(Settings::first_validation_step(sets[2], 100), 0);
}

TEST(Settings, NamedSetsAndDatasetsBelongTogether) {
  EXPECT_EQ(error_of("training: {validation: {Test: {interval: 1, iterations: 1}}}"),
            "t.yaml:1: training.validation.Test: expected a name of your own, found Test, whose "
            "dataset belongs to a phase; give the set and its dataset another name");
  EXPECT_EQ(error_of("data: {datasets: {Trainig: {type: random}}}"),
            "t.yaml:1: data.datasets.Trainig: unknown key; did you mean data.datasets.Training?");
  EXPECT_EQ(error_of("data: {datasets: {code: {type: random}}}"),
            "t.yaml:1: data.datasets.code: unknown key; the dataset of a set of its own needs "
            "training.validation.code too");
  EXPECT_EQ(error_of("data: {datasets: {code: {type: random}}}\n"
                     "training: {validation: {code: {interval: 5, iterations: 1}}}"),
            "no error");
  EXPECT_EQ(
      refusal_of("data: {datasets: {Training: {type: random}}}\n"
                 "training: {train_iters: 4, validation: {code: {interval: 2, iterations: 1}}}"),
      "data.datasets.code: expected a dataset, since this phase takes 3 samples, found none; "
      "write for example {type: memmap, path: PREFIX}");
  EXPECT_EQ(error_of("training: {validation: {code: {interval: 5}}}"),
            "training.validation.code.iterations: expected a number of steps, since "
            "training.validation.code.interval is set, found null; write for example 10");
  EXPECT_THAT(text_of([] { resolved("training: {validation: {'a b': {interval: 5}}}"); }),
              HasSubstr("t.yaml:1: training.validation.a b: expected a name of letters, digits, _ "
                        "and -, found \"a b\""));
  EXPECT_THAT(text_of([] { resolved("training: {validation: {code: {intervall: 5}}}"); }),
              HasSubstr("training.validation.code.intervall: unknown key; did you mean "
                        "training.validation.code.interval?"));
}

TEST(Settings, NamedSetsAreDumpedAndReadAgain) {
  const config::Schema schema = test::gpt_schema();
  Node root = resolved(
      "training: {validation: {interval: 7, iterations: 2, code: {interval: 5, iterations: 1}}}\n"
      "data: {datasets: {code: {type: random}, Validation: {type: random}}}");
  make_settings(root, {});
  for (int verbosity : {0, 20, -1}) {
    const Node dumped = config::dump(schema, root, verbosity);
    EXPECT_EQ(dumped.get<int64_t>("training.validation.code.interval"), 5);
    EXPECT_EQ(dumped.get<std::string>("data.datasets.code.type"), "random");
    EXPECT_FALSE(dumped.has("training.validation.*"));
    Node again = config::resolve(schema, dumped).root;
    EXPECT_TRUE(config::dump(schema, again, verbosity) == dumped);
  }
}

TEST(Settings, TimeStandsBesideIterations) {
  const std::string folder = "run: {experiment_dir: x}\n";
  const Settings settings =
      made(folder +
           "training: {logs: {seconds: 30}, checkpoint: {interval: 10, seconds: 600}, "
           "wall_clock_limit: 3600}");
  EXPECT_EQ(settings.training.logs.seconds, 30);
  EXPECT_EQ(settings.training.checkpoint.when.seconds, 600);
  EXPECT_EQ(settings.training.checkpoint.when.interval, 10);
  EXPECT_EQ(settings.training.wall_clock_limit, 3600);
  EXPECT_EQ(error_of("training: {checkpoint: {seconds: 5}}"),
            "t.yaml:1: training.checkpoint.seconds: expected run.experiment_dir to be set too, "
            "found null; write run.experiment_dir: FOLDER, or leave this out");
  EXPECT_EQ(error_of(folder + "training: {checkpoint: {seconds: 5, keep_every: 2}}"),
            "t.yaml:2: training.checkpoint.keep_every: expected training.checkpoint.interval to be "
            "set too, since saves by time have no count, found null; write "
            "training.checkpoint.interval, or leave this out");
  EXPECT_EQ(error_of(folder + "training: {checkpoint: {seconds: 5}, shutdown: {interval: 4}}"),
            "no error");
  EXPECT_EQ(error_of("training: {validation: {interval: 3, seconds: 5, iterations: 1}}"),
            "t.yaml:1: training.validation.seconds: expected null, since "
            "training.validation.interval is set, found 5: an evaluation by iterations goes on in "
            "its data, one by time begins again; leave one of them out");
  EXPECT_EQ(error_of("training: {validation: {seconds: 5}}"),
            "training.validation.iterations: expected a number of steps, since "
            "training.validation.seconds is set, found null; write for example 10");
}

TEST(Settings, RefusesMoreTokensThanCanBeCounted) {
  EXPECT_EQ(
      error_of("training: {train_iters: 9223372036854775807}"),
      "t.yaml:1: training.train_iters: expected a number of tokens that fits in 64 bits, found "
      "9223372036854775807 steps of 1 samples of 2048 tokens");
  EXPECT_THAT(error_of("training: {test_iters: 9223372036854775807}"),
              HasSubstr("t.yaml:1: training.test_iters: "));
  EXPECT_THAT(
      error_of("training: {train_iters: 1000000, validation: {interval: 1, iterations: "
               "9223372036854775807}}"),
      HasSubstr("t.yaml:1: training.validation.iterations: expected a number of tokens that fits"));
}

TEST(Settings, ASequenceFitsTheTableOfPositions) {
  EXPECT_EQ(error_of("training: {train_iters: 1}\nbatch: {sequence_length: 4096}"),
            "t.yaml:2: batch.sequence_length: expected at most "
            "model.base_model.max_position_embeddings (2048), found "
            "4096; shorten the sequence or enlarge the table");
  EXPECT_EQ(error_of("training: {train_iters: 1}\nbatch: {sequence_length: 4096}\n"
                     "model: {base_model: {transformer: {rotary: {type: default}}}}"),
            "no error");
}

// ---------------------------------------------------------------- ranks and seeds

TEST(Settings, RanksComeFromTheEnvironmentUnlessGiven) {
  Node root = resolved("");
  DistributedSettings ranks =
      make_settings(root, {.world_size = 4, .rank = 3, .local_world_size = 2}).distributed;
  EXPECT_EQ(ranks.world_size, 4);
  EXPECT_EQ(ranks.rank, 3);
  EXPECT_EQ(ranks.data_parallel, 4);
  EXPECT_EQ(root.get<int64_t>("model.distributed.local_world_size"), 2);
  ranks = made(
              "model: {distributed: {world_size: 8, tensor_parallel: 2, local_world_size: 2, "
              "sequence_data_parallel: 2}}")
              .distributed;
  EXPECT_EQ(ranks.world_size, 8);
  EXPECT_EQ(ranks.data_parallel, 4);
  EXPECT_EQ(ranks.batch_data_parallel, 2);
}

TEST(Settings, RefusesRanksThatDoNotDivide) {
  auto error = [](const std::string& yaml) {
    return error_of("model: {distributed: " + yaml + "}");
  };
  EXPECT_EQ(error("{world_size: 3, tensor_parallel: 2, local_world_size: 2}"),
            "t.yaml:1: model.distributed.world_size: expected a multiple of tensor_parallel times "
            "pipeline_parallel = 2, "
            "found 3");
  EXPECT_EQ(error("{world_size: 4, sequence_data_parallel: 3}"),
            "t.yaml:1: model.distributed.sequence_data_parallel: expected a divisor of the 4 "
            "data-parallel ranks, found 3");
  EXPECT_EQ(error("{world_size: 2, rank: 2}"),
            "t.yaml:1: model.distributed.rank: expected less than model.distributed.world_size "
            "(2), found 2");
  EXPECT_EQ(error("{world_size: 2, tensor_parallel: 2, local_world_size: 1}"),
            "t.yaml:1: model.distributed.local_world_size: expected a multiple of tensor_parallel "
            "(2), found 1");
}

TEST(Settings, AllBrokenRulesComeTogether) {
  EXPECT_EQ(error_of("training: {checkpoint: {interval: 3}, validation: {interval: 2}}\n"
                     "batch: {batch_size: 7, micro_batch_size: 2}"),
            "t.yaml:2: batch.batch_size: expected a multiple of batch.micro_batch_size times "
            "data-parallel ranks = 2, "
            "found 7: 7%2!=0; write 6 or 8\n"
            "t.yaml:1: training.checkpoint.interval: expected run.experiment_dir to be set too, "
            "found null; write "
            "run.experiment_dir: FOLDER, or leave this out\n"
            "training.validation.iterations: expected a number of steps, since "
            "training.validation.interval is set, "
            "found null; write for example 10");
}

TEST(Settings, SequenceTensorParallelNeedsTensorParallel) {
  Node root = resolved("model: {distributed: {sequence_tensor_parallel: true}}");
  EXPECT_THAT(make_settings(root, {}).notes,
              ElementsAre("t.yaml:1: model.distributed.sequence_tensor_parallel: true is replaced "
                          "by false, since there "
                          "is one tensor-parallel rank"));
  EXPECT_FALSE(root.get<bool>("model.distributed.sequence_tensor_parallel"));
}

TEST(Settings, SeedsAreSumsModulo2To64) {
  auto shifts = [](const std::string& text) {
    return made("model: {distributed: {seed: 10, pp_gen_init_seed_shift: " + text +
                ", tp_gen_init_seed_shift: 5}}")
        .distributed.initialization_seed;
  };
  EXPECT_EQ(shifts("0"), 15u);
  EXPECT_EQ(shifts("18446744073709551616"), 15u);
  EXPECT_EQ(shifts("-1"), 14u);
  DistributedSettings one = made("").distributed,
                      other = made("model: {distributed: {seed: 1235}}").distributed;
  EXPECT_EQ(one.seed, 1234u);
  EXPECT_EQ(other.initialization_seed - one.initialization_seed, 1u);
  EXPECT_EQ(other.training_seed - one.training_seed, 1u);
  EXPECT_NE(one.training_seed, one.initialization_seed);
}

class Variables : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override { clear(); }
  static void clear() {
    for (const char* name : {"WORLD_SIZE", "RANK", "LOCAL_WORLD_SIZE"}) unsetenv(name);
  }
};

TEST_F(Variables, AreRead) {
  Environment none = Environment::from_process();
  EXPECT_FALSE(none.world_size || none.rank || none.local_world_size);
  setenv("WORLD_SIZE", "4", 1);
  setenv("RANK", "3", 1);
  setenv("LOCAL_WORLD_SIZE", "2", 1);
  Environment environment = Environment::from_process();
  EXPECT_EQ(environment.world_size, 4);
  EXPECT_EQ(environment.rank, 3);
  EXPECT_EQ(environment.local_world_size, 2);
}

TEST_F(Variables, ThatHoldNoNumberAreNamedTogether) {
  setenv("WORLD_SIZE", "0", 1);
  setenv("RANK", "one", 1);
  EXPECT_EQ(text_of([] { Environment::from_process(); }),
            "environment: WORLD_SIZE: expected an integer of at least 1, found \"0\"; unset it, or "
            "start with a launcher "
            "that sets it\n"
            "environment: RANK: expected an integer of at least 0, found \"one\"; unset it, or "
            "start with a launcher that "
            "sets it");
}

TEST_F(Variables, ThatContradictEachOtherAreNamed) {
  setenv("WORLD_SIZE", "2", 1);
  EXPECT_EQ(text_of([] { Environment::from_process(); }),
            "environment: RANK: expected the number of this process, since WORLD_SIZE is 2, found "
            "nothing; start with a "
            "launcher that sets both, or unset WORLD_SIZE");
}

// ---------------------------------------------------------------- the rest

TEST(Settings, ReadsWhatThePartsNeed) {
  Settings settings = made(
      "run: {experiment_dir: out/run-3.1/, threads: 3}\n"
      "model: {multi_stage: {zero_stage: 3, layers_per_stage: 2}}\n"
      "training:\n"
      "  checkpoint: {interval: 10, keep: null, keep_every: 4, callback: {script: 'say \"a b\"', "
      "environment: {A: b}}}\n"
      "  num_workers: 4\n"
      "  prefetch_factor: 3\n"
      "  recompute_activations: true\n"
      "data: {sampling: {seed: 5, shuffle: full}, datasets: {Test: {type: random}}}\n"
      "optimizer: {learning_rate: {base: 1e-3, minimum: 1e-4, warmup_iterations: 10, "
      "decay_iterations: 110,\n"
      "            decay_style: cosine}, beta_2: 0.95, gradient_scaler: {constant: 0}}\n");
  EXPECT_EQ(settings.run.experiment_dir, "out/run-3.1/");
  EXPECT_EQ(settings.run.threads, 3);
  EXPECT_EQ(settings.multi_stage.num_weight_buffers, 2);
  EXPECT_EQ(settings.multi_stage.num_gradient_buffers, 2);
  EXPECT_EQ(settings.multi_stage.layers_per_stage, 2.0);
  EXPECT_EQ(settings.training.checkpoint.keep, std::nullopt);
  EXPECT_EQ(settings.training.checkpoint.keep_every, 4);
  EXPECT_THAT(settings.training.checkpoint.callback.script, ElementsAre("say", "a b"));
  EXPECT_EQ(settings.training.checkpoint.callback.environment.at(0).second, "b");
  EXPECT_EQ(settings.training.num_workers, 4);
  EXPECT_EQ(settings.training.prefetch_factor, 3);
  EXPECT_TRUE(settings.training.recompute_activations);
  EXPECT_EQ(settings.data.seed, 5);
  EXPECT_EQ(settings.data.shuffle, "full");
  EXPECT_TRUE(settings.data.dataset("Training").is_null());
  EXPECT_EQ(settings.data.dataset("Test").get<std::string>("name"), "dummy");
  EXPECT_NEAR(settings.optimizer.learning_rate.at(60), 5.5e-4, 1e-12);
  EXPECT_EQ(settings.optimizer.adamw.beta_2, 0.95);
  EXPECT_EQ(settings.optimizer.scaler.kind, optim::ScalerKind::kNone);
}

TEST(Settings, LossScalingFollowsFromConstantAndType) {
  const auto scaler = [](const std::string& type, const std::string& keys) {
    return made("model: {distributed: {training_dtype: " + type +
                "}}\noptimizer: {gradient_scaler: {" + keys + "}}\n")
        .optimizer.scaler;
  };
  using Kind = optim::ScalerKind;
  EXPECT_EQ(scaler("float32", "").kind, Kind::kNone);
  EXPECT_EQ(scaler("bf16", "constant: 0").kind, Kind::kNone);
  EXPECT_EQ(scaler("bf16", "constant: 2").kind, Kind::kConstant);
  EXPECT_EQ(scaler("fp16", "constant: 128").constant, 128);
  EXPECT_EQ(scaler("fp16", "constant: 128").kind, Kind::kConstant);
  const optim::ScalerOptions plain = scaler("fp16", "constant: 0");
  EXPECT_EQ(plain.kind, Kind::kDynamic);
  EXPECT_EQ(plain.initial, 65536);
  EXPECT_EQ(plain.minimum, 1);
  EXPECT_EQ(plain.window, 1000);
  EXPECT_EQ(plain.hysteresis, 2);
  const optim::ScalerOptions own =
      scaler("fp16", "initial: 8, minimum: 0.5, window: 3, hysteresis: 4");
  EXPECT_EQ(own.initial, 8);
  EXPECT_EQ(own.minimum, 0.5);
  EXPECT_EQ(own.window, 3);
  EXPECT_EQ(own.hysteresis, 4);
}

TEST(Settings, RefusesALossScaleThatFloat32CannotCarry) {
  const std::string found = error_of("optimizer: {gradient_scaler: {initial: 1e38}}\n");
  EXPECT_THAT(found,
              HasSubstr("optimizer.gradient_scaler.initial: expected at most 2^100, since losses "
                        "and their gradients are float32, found 1e+38; write for example 65536"));
}

TEST(Settings, NamesTheKeyOfABadLearningRate) {
  EXPECT_THAT(error_of("optimizer: {learning_rate: {decay_style: cosine}}"),
              HasSubstr("optimizer.learning_rate.decay_"));
  EXPECT_THAT(error_of("optimizer: {learning_rate: {schedule: nonsense}}"),
              HasSubstr("t.yaml:1: optimizer.learning_rate.schedule: expected"));
}

TEST(Settings, RefusesABetaThatLetsNothingIn) {
  EXPECT_EQ(error_of("optimizer: {beta_1: 1}"),
            "t.yaml:1: optimizer.beta_1: expected a number below 1, found 1: no gradient would "
            "ever count; write for "
            "example 0.9");
}

TEST(Settings, FormatsWithoutOptimizerStateRefuseIt) {
  Node root = resolved("training: {export: {format: llama}}");
  make_settings(root, {});
  EXPECT_FALSE(root.get<bool>("training.export.optimizer_state"));
  EXPECT_EQ(
      error_of("training: {export: {format: llama, optimizer_state: true}}"),
      "t.yaml:1: training.export.optimizer_state: expected false, since training.export.format is "
      "llama, which "
      "holds no optimizer state, found true; write false, or training.export.format: distributed");
  EXPECT_EQ(error_of("pretrained: {format: qwen2, optimizer_state: true}"),
            "t.yaml:1: pretrained.optimizer_state: expected false, since pretrained.format is "
            "qwen2, which holds no "
            "optimizer state, found true; write false, or pretrained.format: distributed");
}

TEST(Settings, NotesKeysThatDoNothing) {
  EXPECT_THAT(
      made("data: {sampling: {gpu: true}}").notes,
      ElementsAre("t.yaml:1: data.sampling.gpu: no effect here: the order is always the CPU's"));
  EXPECT_THAT(made("data: {path: x, datasets: {Test: {type: random}}}").notes,
              ElementsAre("t.yaml:1: data.path: no effect, since data.datasets is set"));
  EXPECT_THAT(made("").notes, IsEmpty());
}

TEST(Settings, WhatIsWrittenNeedsAFolder) {
  const std::string rest =
      ": expected run.experiment_dir to be set too, found null; write run.experiment_dir: FOLDER, "
      "or leave this out";
  EXPECT_EQ(error_of("profiling: {cpu: true, export: true}"), "t.yaml:1: profiling.export" + rest);
  EXPECT_EQ(error_of("profiling: {cpu: true, averages: true}"),
            "t.yaml:1: profiling.averages" + rest);
  EXPECT_EQ(error_of("profiling: {cpu: true, trace: true, log: true}"), "no error");
  EXPECT_EQ(error_of("schedule: {profile_schedule: true}"),
            "t.yaml:1: schedule.profile_schedule" + rest);
}

TEST(Settings, ReadsWhatToLookAt) {
  const Settings settings = made(
      "run: {experiment_dir: x, tensor_logs: {save: true, show: false, max_elements: 3}}\n"
      "model: {multi_stage: {debug_layer_outputs: 13, debug_layer_gradients: 12, debug_param_init: "
      "3, debug_param_gradients: 4, debug_all_param_gradients: 5, debug_param_update: 6, "
      "debug_global_tensors: false, debug_activation_memory: true}}\n"
      "profiling: {cpu: true, skip: 2, wait: 3, warmup: 4, cycles: 5, averages: true, trace: true, "
      "export: true, table_width: 90, ranks: [0, 2], log: true}\n"
      "schedule: {skip_step: true, debug_schedule: true, profile_schedule: true}\n"
      "training: {divergence: {policy: skip, max_skipped: 3, loss_threshold: 9, loss_factor: 2}}");
  const TensorLogSettings& logs = settings.tensor_logs;
  EXPECT_TRUE(logs.save && !logs.show && !logs.global && logs.activation_memory);
  EXPECT_EQ(logs.max_elements, 3);
  EXPECT_EQ(logs.levels.layer_outputs, 13);
  EXPECT_EQ(logs.levels.layer_gradients, 12);
  EXPECT_EQ(logs.levels.param_init, 3);
  EXPECT_EQ(logs.levels.param_gradients, 4);
  EXPECT_EQ(logs.levels.all_param_gradients, 5);
  EXPECT_EQ(logs.levels.param_update, 6);
  const ProfilingSettings& p = settings.profiling;
  EXPECT_TRUE(p.cpu && p.averages && p.trace && p.chrome && p.log);
  EXPECT_EQ(p.skip, 2);
  EXPECT_EQ(p.wait, 3);
  EXPECT_EQ(p.warmup, 4);
  EXPECT_EQ(p.cycles, 5);
  EXPECT_EQ(p.table_width, 90);
  EXPECT_THAT(p.ranks, ElementsAre(0, 2));
  EXPECT_TRUE(settings.skip_step && settings.debug_schedule && settings.profile_schedule);
  EXPECT_THAT(settings.notes, testing::Contains(HasSubstr("schedule.skip_step: no update of the "
                                                          "weights takes place")));
  const DivergenceSettings& divergence = settings.training.divergence;
  EXPECT_EQ(divergence.policy, DivergenceSettings::Policy::kSkip);
  EXPECT_EQ(divergence.max_skipped, 3);
  EXPECT_EQ(divergence.loss_threshold, 9);
  EXPECT_EQ(divergence.loss_factor, 2);
}

TEST(Settings, ALegacySplitHasThreeParts) {
  EXPECT_EQ(
      error_of("data: {split: [1, 2, 3, 4]}"),
      "t.yaml:1: data.split: expected at most 3 numbers (training, validation, test), found 4");
}

TEST(Plan, SaysHowProgressIsKept) {
  EXPECT_THAT(plan_lines(made("run: {experiment_dir: x}\ntraining: {train_iters: 1000}")),
              ElementsAre("checkpoints: none - all progress is lost if the run stops"));
  EXPECT_THAT(
      plan_lines(
          made("run: {experiment_dir: x}\ntraining: {train_iters: 9, checkpoint: {interval: 3}}")),
      ElementsAre("checkpoints: every 3 iterations and at the end, the last 5 are kept"));
  EXPECT_THAT(
      plan_lines(made("run: {experiment_dir: x}\n"
                      "training: {train_iters: 9, checkpoint: {interval: 3, offset: 1, keep: null, "
                      "keep_every: 4}}")),
      ElementsAre("checkpoints: every 3 iterations from 1 and at the end, all are kept, and each "
                  "4th for good"));
  EXPECT_THAT(plan_lines(made("run: {experiment_dir: x}\n"
                              "training: {train_iters: 9, checkpoint: {seconds: 600}}")),
              ElementsAre("checkpoints: every 600 s and at the end, the last 5 are kept"));
  EXPECT_THAT(plan_lines(made("")), IsEmpty());
}

// ---------------------------------------------------------------- not done yet

TEST(Supported, DefaultsAre) { EXPECT_EQ(refusal_of(""), "no error"); }

TEST(Supported, TrainingTypesAndLossScales) {
  for (const char* type : {"fp32", "bf16", "torch.float16"})
    EXPECT_EQ(refusal_of(std::string("model: {distributed: {training_dtype: ") + type +
                         "}}\noptimizer: {gradient_scaler: {constant: 8}}"),
              "no error");
}

struct Refusal {
  const char *yaml, *sentence;
};

TEST(Supported, RefusesWhatThisVersionDoesNotDo) {
  const std::string folder = "run: {experiment_dir: x}\n";
  const Refusal cases[] = {
      {"model: {distributed: {training_dtype: fp64}}",
       "model.distributed.training_dtype: expected float32, bfloat16 or float16, found float64; "
       "write for example training_dtype: bfloat16"},
      {"model: {distributed: {optimization_dtype: bf16}}",
       "model.distributed.optimization_dtype: expected float32, in which this program keeps "
       "weights and optimizer state, found bfloat16; write optimization_dtype: float32 or leave "
       "the key out"},
      {"pretrained: {path: x}",
       "pretrained.path: starting from a checkpoint of elsewhere is not supported yet by this "
       "version; leave the key "
       "out; a run resumes from its own checkpoints without it"},
      {"training: {export: {callback: {script: ls}}}",
       "training.export.callback.script: a script after each save is not supported yet by this "
       "version; leave the key "
       "out"},
      {"training: {checkpoint: {callback: {script: [ls]}}}",
       "training.checkpoint.callback.script: a script after each save is not supported yet by this "
       "version; leave the "
       "key out"},
      {"batch: {sequence_length: 64, micro_sequence_length: 32}",
       "batch.micro_sequence_length: computing a sample in pieces is not supported yet by this "
       "version; write 64 or "
       "leave the key out"},
      {"training: {train_iters: 2}",
       "data.datasets.Training: expected a dataset, since this phase takes 2 samples, found none; "
       "write for example "
       "{type: memmap, path: PREFIX}"},
      {"training: {test_iters: 2}\ndata: {datasets: {Training: {type: random}}}",
       "data.datasets.Test: expected a dataset, since this phase takes 2 samples, found none; "
       "write for example {type: "
       "memmap, path: PREFIX}"},
  };
  for (const Refusal& c : cases) {
    std::string found = refusal_of(c.yaml), sentence = c.sentence;
    EXPECT_TRUE(found == sentence || found == "t.yaml:1: " + sentence) << found << "\nexpected\n"
                                                                       << sentence;
  }
  EXPECT_EQ(refusal_of(folder + "training: {export: {interval: 4}}"),
            "t.yaml:2: training.export.interval: export is not supported yet by this version; "
            "leave the key out, and use "
            "training.checkpoint");
  EXPECT_EQ(refusal_of("model: {distributed: {world_size: 2, sequence_data_parallel: 2}}"),
            "no error");
  EXPECT_EQ(
      refusal_of("model: {distributed: {world_size: 2, tensor_parallel: 2, local_world_size: 2}}"),
      "no error");
  EXPECT_EQ(refusal_of("model: {distributed: {world_size: 4, local_world_size: 2}}"), "no error");
  EXPECT_EQ(refusal_of("model: {distributed: {local_world_size: 2}}"),
            "t.yaml:1: model.distributed.local_world_size: expected at most "
            "model.distributed.world_size (1), found 2");
}

TEST(Supported, RefusesALauncherThatSaysSomethingElse) {
  EXPECT_EQ(refusal_of("model: {distributed: {world_size: 1, rank: 0, local_world_size: 1}}",
                       {.world_size = 4, .rank = 2, .local_world_size = 3}),
            "t.yaml:1: model.distributed.world_size: expected 4, as the variable WORLD_SIZE says, "
            "found 1; leave the key "
            "out\n"
            "t.yaml:1: model.distributed.rank: expected 2, as the variable RANK says, found 0; "
            "leave the key out\n"
            "t.yaml:1: model.distributed.local_world_size: expected 3, as the variable "
            "LOCAL_WORLD_SIZE says, found 1; "
            "leave the key out");
}

// What follows from the contradiction is not told: no size of a batch would be right for both.
TEST(Supported, NamesTheContradictionAndNotWhatFollowsFromIt) {
  EXPECT_EQ(refusal_of("model: {distributed: {world_size: 3}}\nbatch: {batch_size: 4}",
                       {.world_size = 2, .rank = 0}),
            "t.yaml:1: model.distributed.world_size: expected 2, as the variable WORLD_SIZE says, "
            "found 3; leave the key out");
}

TEST(Supported, RefusesATestAidWhenItsPhaseTakesPlace) {
  auto training = [](const std::string& dataset, int iterations = 1) {
    return refusal_of("training: {train_iters: " + std::to_string(iterations) +
                      "}\ndata: {datasets: {Training: " + dataset + "}}");
  };
  const std::string rest =
      "expected a dataset, found test_slow, a test aid that only slows a start down; write for "
      "example type: random";
  const std::string at = "t.yaml:2: data.datasets.Training";
  EXPECT_EQ(training("{type: test_slow}"), at + ".type: " + rest);
  EXPECT_EQ(
      training("{type: blended, weights: [1, 1], datasets: [{type: random}, {type: test_slow}]}"),
      at + ".datasets.1.type: " + rest);
  EXPECT_EQ(training("{type: test_slow}", 0), "no error");
}

TEST(Supported, ChecksDefinitionsOfDatasets) {
  const std::string start = "training: {train_iters: 1}\ndata: {datasets: {Training: ";
  EXPECT_EQ(
      refusal_of(start +
                 "{type: blended, weights: [1], datasets: [{type: random}, {type: random}]}}}"),
      "t.yaml:2: data.datasets.Training.weights: expected one weight for each of the 2 datasets, "
      "found 1");
  EXPECT_EQ(
      refusal_of(start + "{type: slice, begin: 0.5, end: 0.5, dataset: {type: memmap, path: x}}}}"),
      "t.yaml:2: data.datasets.Training.end: expected more than begin (0.5), found 0.5");
}

TEST(Supported, TakesTheLegacyDefinition) {
  auto refusal = [](const std::string& data, const std::string& training = "train_iters: 1") {
    return refusal_of("training: {" + training + "}\ndata: {" + data + "}");
  };
  EXPECT_EQ(refusal("path: some/prefix"), "no error");
  EXPECT_EQ(refusal("path: ['0.3', a, '0.7', b]"), "no error");
  EXPECT_EQ(refusal("format: random"), "no error");
  EXPECT_EQ(refusal("format: file, path: list.json"), "no error");  // judged when it is read
  EXPECT_EQ(refusal("path: [a, b, c]"),
            "t.yaml:2: data.path: expected one prefix, or weight, prefix, weight, prefix, ..., "
            "found 3 entries");
  EXPECT_EQ(refusal("path: x, split: [1, 0, 1]", "train_iters: 1, test_iters: 1"), "no error");
  EXPECT_EQ(refusal("path: x, split: [1]", "train_iters: 1, test_iters: 1"),
            "t.yaml:2: data.split: expected a share above 0 for test, which takes samples, found "
            "none; write for example [969, 30, 1]");
  EXPECT_EQ(refusal("path: x, fim: {rate: 0.5}"),
            "t.yaml:2: data.fim.rate: expected data.tokenizer.path to be set, since "
            "fill-in-the-middle cuts text, found null; write data.tokenizer.path: FOLDER, the one "
            "the data was prepared with");
  EXPECT_EQ(refusal("path: x, sampling: {truncate_documents: false}"),
            "data.type: expected truncate_documents: true with this definition, whose order cuts "
            "documents, found false; leave it out");
  EXPECT_EQ(refusal("sampling: {seed: 1}").substr(0, 60),
            "data.datasets.Training: expected a dataset, since this phase");
}

}  // namespace
}  // namespace fastllm::train
