// Two runs' folders compared: what counts as different, what is told, and folders that are no runs.
#include "core/train/compare.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "core/base/file.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CompareTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto path = folder.path() / name;
    make_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  static std::string line(int iteration, const std::string& loss,
                          const std::string& phase = "training") {
    return "{\"phase\":\"" + phase +
           "\",\"train_iters\":9,\"iteration\":" + std::to_string(iteration) +
           ",\"language_model_loss\":" + loss +
           ",\"step_time_ms\":" + std::to_string(iteration * 17) + "}\n";
  }
  RecordedRun read(const std::string& name) const { return read_run(folder.path() / name); }
  Comparison compare(double tolerance = 0) const {
    return compare_runs(read("a"), read("b"), tolerance);
  }
  std::string error_of(const std::string& name) const {
    return test::message_of([&] { read(name); });
  }

  TemporaryDirectory folder;
};

TEST_F(CompareTest, EqualLossesAgreeWhateverTheClockSays) {
  write("a/metrics.jsonl", line(1, "4.5") + line(2, "null"));
  write("b/metrics.jsonl", line(1, "4.5") +
                               "{\"phase\":\"training\",\"iteration\":2,"
                               "\"language_model_loss\":null,\"step_time_ms\":1}\n");
  const Comparison c = compare();
  EXPECT_TRUE(c.losses_agree());
  EXPECT_EQ(c.compared, 2);
  EXPECT_EQ(c.largest.relative, 0);
  EXPECT_FALSE(c.has_configuration);
  EXPECT_THAT(comparison_text(c, 0), HasSubstr("Config diff: not recorded by both"));
}

TEST_F(CompareTest, NamesTheFirstStepAndTheLargestDifference) {
  write("a/metrics.jsonl", line(1, "4") + line(2, "3") + line(3, "2") + line(3, "2", "validation"));
  write("b/metrics.jsonl",
        line(1, "4") + line(2, "3.003") + line(3, "2.1") + line(3, "2", "validation"));
  const Comparison c = compare();
  EXPECT_FALSE(c.losses_agree());
  ASSERT_EQ(c.beyond.size(), 2u);
  EXPECT_EQ(c.beyond[0].iteration, 2);
  EXPECT_NEAR(c.beyond[0].relative, 0.003 / 3.003, 1e-12);
  EXPECT_EQ(c.largest.iteration, 3);
  const std::string text = comparison_text(c, 0);
  EXPECT_THAT(text, HasSubstr("first:   training @ 2: language_model_loss: 3 != 3.003"));
  EXPECT_THAT(text, HasSubstr("largest: training @ 3: language_model_loss: 2 != 2.1"));
  EXPECT_EQ(compare(0.002).beyond.size(), 1u);
  EXPECT_TRUE(compare(0.05).losses_agree());
}

TEST_F(CompareTest, ALineThatOneLacksIsANoteAndNoDifference) {
  write("a/metrics.jsonl", line(1, "4") + line(2, "3"));
  write("b/metrics.jsonl", line(1, "4"));
  const Comparison c = compare();
  EXPECT_THAT(c.only_a, ElementsAre("training @ 2"));
  EXPECT_THAT(c.only_b, IsEmpty());
  EXPECT_TRUE(c.losses_agree());
  EXPECT_THAT(
      comparison_text(c, 0),
      HasSubstr("Note: 1 only in the first run (training @ 2), which the verdict leaves out"));
}

// A kill or a full disk leaves the beginning of a line.
TEST_F(CompareTest, ALastLineThatWasCutOffIsLeftOutWithANote) {
  const std::string whole = line(1, "4") + line(2, "3");
  write("a/metrics.jsonl", whole);
  for (const size_t cut : {size_t(1), size_t(20), line(2, "3").size() - 1}) {
    write("b/metrics.jsonl", whole.substr(0, whole.size() - cut));
    const Comparison c = compare();
    EXPECT_TRUE(c.losses_agree());
    EXPECT_EQ(c.compared, 1);
    EXPECT_THAT(c.only_a, ElementsAre("training @ 2"));
    EXPECT_THAT(comparison_text(c, 0), HasSubstr("Note: " + (folder.path() / "b").string() +
                                                 "/metrics.jsonl:2: the last line was cut off and "
                                                 "is left out"));
    EXPECT_EQ(comparison_node(c).find("notes")->size(), 1u);
  }
}

TEST_F(CompareTest, NoNumberDiffersFromANumber) {
  write("a/metrics.jsonl", line(1, "null"));
  write("b/metrics.jsonl", line(1, "4"));
  EXPECT_EQ(compare(0.5).beyond.size(), 1u);
}

TEST_F(CompareTest, ListsKeysDataAndVersionsThatDiffer) {
  for (const char* run : {"a", "b"}) write(std::string(run) + "/metrics.jsonl", line(1, "4"));
  write("a/config.yaml", "optimizer: {weight_decay: 0.01, beta_1: 0.9}\ndata: {path: [x]}\n");
  write("b/config.yaml", "optimizer: {weight_decay: 0.1, beta_1: 0.9}\ndata: {path: [x, y]}\n");
  write("a/provenance.yaml",
        "host_version: 1\nplugins: {gpt: {path: /a, sha256: q}}\ndata: {Training: [d 1]}\n");
  write("b/provenance.yaml",
        "host_version: 2\nplugins: {gpt: {path: /b, sha256: q}}\ndata: {Training: [d 2]}\n");
  const Comparison c = compare();
  EXPECT_TRUE(c.losses_agree());  // the rest explains, it does not judge
  const std::string text = comparison_text(c, 0);
  EXPECT_THAT(text, HasSubstr("Config diff:\n  `data.path.1`: `absent` != `y`\n"
                              "  `optimizer.weight_decay`: `0.01` != `0.1`\n"));
  EXPECT_THAT(text, HasSubstr("Data:\n  `Training.0`: `d 1` != `d 2`\n"));
  EXPECT_THAT(text, HasSubstr("Versions:\n  `host_version`: `1` != `2`\n"));
  const config::Node node = comparison_node(c);
  EXPECT_TRUE(node.get<bool>("losses_agree"));
  EXPECT_EQ(node.find("configuration")->size(), 2u);
  EXPECT_EQ(node.get<std::string>("configuration.1.b"), "0.1");
}

TEST_F(CompareTest, AnExperimentIsAllItsRunsTheLastOneCounting) {
  write("a/runs/9/metrics.jsonl", line(1, "4") + line(2, "3"));
  write("a/runs/10/metrics.jsonl", line(2, "3.5") + line(3, "2"));
  write("a/runs/notes.txt", "");
  write("b/metrics.jsonl", line(1, "4") + line(2, "3.5") + line(3, "2"));
  EXPECT_TRUE(compare().losses_agree());
}

TEST_F(CompareTest, FilesThatAreNoRunsAreSentences) {
  EXPECT_THAT(error_of("none"), HasSubstr("expected the folder of a run (with metrics.jsonl) or of "
                                          "an experiment (with runs/), found neither at "));
  write("bad/metrics.jsonl", line(1, "4") + "{\"phase\": 3}\n");
  EXPECT_THAT(error_of("bad"), HasSubstr("metrics.jsonl:2: expected an object with a phase and an "
                                         "iteration, found something else"));
  write("cut/metrics.jsonl", line(1, "4") + "{\"phase\": \"trai\n");
  EXPECT_THAT(error_of("cut"), HasSubstr("metrics.jsonl:2"));
  write("twice/metrics.jsonl", line(1, "4") + line(1, "4"));
  EXPECT_THAT(error_of("twice"),
              HasSubstr("metrics.jsonl:2: expected each phase and iteration once in a run, found "
                        "training @ 1 again"));
  write("text/metrics.jsonl", line(1, "\"four\""));
  EXPECT_THAT(error_of("text"), HasSubstr("expected a number or null for language_model_loss"));
  write("yaml/metrics.jsonl", line(1, "4"));
  write("yaml/config.yaml", "a: [1\n");
  EXPECT_THAT(error_of("yaml"), HasSubstr("config.yaml:"));
  write("a/metrics.jsonl", line(1, "4"));
  write("b/metrics.jsonl", line(2, "4"));
  EXPECT_THAT(test::message_of([&] { compare(); }), HasSubstr("expected losses that both "));
}

}  // namespace
}  // namespace fastllm::train
