// The allocation table against the reference's lines and against an independent predictor, tests/fixtures/memory_table.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string_view>

#include "core/base/file.hpp"
#include "core/base/tensor.hpp"
#include "core/shard/store.hpp"
#include "tests/support/gpt_description.hpp"

namespace fastllm::shard {
namespace {

using test::gpt_description;
using test::GptShape;
using testing::ElementsAre;

TEST(AllocationTable, LinesOfTheDefaultModel) {
  const model::Description d = gpt_description({});
  const AllocationTable table = allocation_table(Layout(d, {}, {}), 0, {});
  EXPECT_EQ(table.weight_buffer_bytes, 726175744);
  EXPECT_EQ(table.gradient_buffer_bytes, 726175744);
  EXPECT_EQ(table.shard_bytes, 2904702976);
  EXPECT_EQ(table.total_bytes(), 4357054464);
  EXPECT_THAT(table.lines(), ElementsAre(">>> Allocating 14 weight buffers (692.54 MiB)",
                                         ">>> Allocating 14 grad buffers (692.54 MiB)",
                                         ">>> Allocating 4 shards (2,770.14 MiB)",
                                         "Total allocated: 4,155.21 MiB"));
}

TEST(AllocationTable, LinesWithFrozenMlp) {
  GptShape shape;
  shape.scales["mlp"] = {0};
  const model::Description d = gpt_description(shape);
  EXPECT_THAT(
      allocation_table(Layout(d, {}, {}), 0, {}).lines(),
      ElementsAre(">>> Allocating 14 weight buffers (692.54 MiB)",
                  ">>> Allocating 14 grad buffers (308.30 MiB)",
                  ">>> Allocating 4 shards (1,617.44 MiB)", "Total allocated: 2,618.27 MiB"));
}

// Without a second copy of what is frozen; where nothing is, that changes nothing.
TEST(AllocationTable, LinesWithFrozenMlpInTheBuffersAlone) {
  StoreOptions options;
  options.wide_frozen_weights = false;
  const model::Description plain = gpt_description({});
  EXPECT_EQ(allocation_table(Layout(plain, {}, {}), 0, options).lines(),
            allocation_table(Layout(plain, {}, {}), 0, {}).lines());
  GptShape shape;
  shape.scales["mlp"] = {0};
  const model::Description d = gpt_description(shape);
  EXPECT_THAT(
      allocation_table(Layout(d, {}, {}), 0, options).lines(),
      ElementsAre(">>> Allocating 14 weight buffers (692.54 MiB)",
                  ">>> Allocating 14 grad buffers (308.30 MiB)",
                  ">>> Allocating 4 shards (1,233.20 MiB)", "Total allocated: 2,234.04 MiB"));
}

// Half the bytes of weight buffers, and of gradient buffers when they are not float32.
TEST(AllocationTable, LinesInSixteenBits) {
  const model::Description d = gpt_description({});
  for (const DLDataType type : {kBfloat16, kFloat16}) {
    StoreOptions options;
    options.training = type;
    EXPECT_THAT(
        allocation_table(Layout(d, {}, {}), 0, options).lines(),
        ElementsAre(">>> Allocating 14 weight buffers (346.27 MiB)",
                    ">>> Allocating 14 grad buffers (692.54 MiB)",
                    ">>> Allocating 4 shards (2,770.14 MiB)", "Total allocated: 3,808.94 MiB"));
    options.full_precision_gradients = false;
    EXPECT_THAT(
        allocation_table(Layout(d, {}, {}), 0, options).lines(),
        ElementsAre(">>> Allocating 14 weight buffers (346.27 MiB)",
                    ">>> Allocating 14 grad buffers (346.27 MiB)",
                    ">>> Allocating 4 shards (2,770.14 MiB)", "Total allocated: 3,462.68 MiB"));
  }
}

TEST(AllocationTable, InferenceHasWeightsAlone) {
  const model::Description d = gpt_description({});
  StoreOptions options;
  options.training_mode = false;
  EXPECT_THAT(allocation_table(Layout(d, {}, {}), 0, options).lines(),
              ElementsAre(">>> Allocating 14 weight buffers (692.54 MiB)",
                          ">>> Allocating 1 shards (692.54 MiB)", "Total allocated: 1,385.07 MiB"));
}

// ---------------------------------------------------------------- the predictor

struct Case {
  std::string name, arguments;
  GptShape shape;
  World world;
  LayoutOptions layout;
  StoreOptions store;
};

void freeze(Case& c, const std::string& kind, const std::string& values) {
  c.arguments += " --" + kind + "-lr-scale " + values;
  std::stringstream list(values);
  for (std::string value; std::getline(list, value, ',');)
    c.shape.scales[kind].push_back(std::stod(value));
}

// Every value of every dimension appears beside many of the others; the dimensions' cycles have different lengths.
std::vector<Case> grid() {
  std::vector<Case> cases;
  for (int i = 0; i < 60; ++i) {
    Case c;
    auto flag = [&](const std::string& text) { c.arguments += " " + text; };
    auto number = [&](const std::string& option, auto value) {
      std::stringstream text;
      text << " --" << option << " " << value;
      c.arguments += text.str();
    };
    c.name = "case " + std::to_string(i);
    c.world.tensor = std::array{1, 2, 4, 1}[i % 4];
    c.world.pipeline = std::array{1, 2, 3}[i % 3];
    c.world.data = std::array{1, 2, 8, 1, 3}[i % 5];
    c.world.pipeline_first = i % 2;
    number("tp", c.world.tensor);
    number("pp", c.world.pipeline);
    number("dp", c.world.data);
    c.store.zero_stage = std::array{1, 2, 3, 1, 1, 2, 3}[i % 7];
    number("zero", c.store.zero_stage);
    c.layout.layers_per_stage =
        std::array{1.0, 2.0, 0.5, 1.0, 1.5, 1.0, 3.0, 1.0, 1.0, 2.5, 1.0}[i % 11];
    number("layers-per-stage", c.layout.layers_per_stage);
    c.shape.layers = 7 + i % 6;
    number("num-layers", c.shape.layers);
    c.shape.head_groups = i % 2 ? 4 : 1;
    number("head-groups", c.shape.head_groups);
    if ((c.shape.tied = i % 5 < 3) == false) flag("--untied");
    if ((c.shape.rotary = i % 7 < 3)) flag("--rotary");
    if ((c.shape.rms_norm = i % 3 == 1)) flag("--rms-norm");
    if ((c.shape.gated = i % 4 == 3)) flag("--gated");
    if (i % 6 == 5) {
      c.shape.experts = 8;
      c.shape.shared_experts = i % 12 == 5 ? 2 : 0;
      number("num-experts", c.shape.experts);
      number("num-shared-experts", c.shape.shared_experts);
    }
    if ((c.shape.biases = c.shape.experts == 1 && i % 8 != 1) == false) flag("--no-linear-biases");
    if ((c.shape.parallel_embeddings = i % 9 != 4) == false) flag("--no-parallel-embeddings");
    if (i % 13 == 6) {
      c.store.num_weight_buffers = 4;
      c.store.num_gradient_buffers = 3;
      number("num-weight-buffers", 4);
      number("num-grad-buffers", 3);
    }
    if (i % 5 == 2) {
      const bool brain = i % 3 > 0;
      c.store.training = brain ? kBfloat16 : kFloat16;
      flag(brain ? "--training-dtype bfloat16" : "--training-dtype float16");
      if (i % 2) {
        c.store.full_precision_gradients = false;
        flag("--no-full-precision-gradients");
      }
    }
    switch (i % 10) {
      case 1:
        freeze(c, "mlp", "0");
        break;
      case 3:
        freeze(c, "attention", "0");
        break;
      case 4:
        freeze(c, "embeddings", "0");
        break;
      case 5:
        freeze(c, c.shape.experts > 1 ? "router" : "norm", "0");
        break;
      case 6:
        freeze(c, "norm", "0");
        freeze(c, "mlp", "0");
        break;
      case 7:
        freeze(c, "mlp", "0.5");
        break;
      case 8:
        if (!c.shape.tied) freeze(c, "output", "0");
        break;
      case 9:
        for (const char* kind : {"mlp", "attention", "embeddings", "norm", "router", "output"})
          freeze(c, kind, "0");
        break;
    }
    if (c.shape.experts > 1 && i % 10 == 7) c.shape.scales["mlp"] = {0.5};
    cases.push_back(c);
    c.name += ", frozen weights not in the optimization type";
    c.arguments += " --no-store-frozen-weights-in-optimization-precision";
    c.store.wide_frozen_weights = false;
    cases.push_back(c);
  }
  Case experts;  // partly frozen experts stay where trainable ones are
  experts.name = "some experts frozen";
  experts.shape.experts = 4;
  experts.shape.biases = false;
  experts.arguments = " --num-experts 4 --no-linear-biases";
  freeze(experts, "mlp", "0,0,1,1");
  cases.push_back(experts);
  return cases;
}

// What the script prints for each case. One interpreter for all: starting one takes longer than the arithmetic.
std::vector<std::string> predict(const std::vector<Case>& cases) {
  const TemporaryDirectory folder;
  const std::filesystem::path input = folder.path() / "cases";
  std::string lines;
  for (const Case& c : cases) lines += c.arguments + "\n";
  write_file_atomic(input, lines);
  const char* python = std::getenv("FASTLLM_JUDGES_PYTHON");
  const std::string command = std::string(python && *python ? python : "python3") +
                              " -Bc 'import sys; sys.path.insert(0, \"" FASTLLM_SOURCE_DIR
                              "/tests/fixtures\"); import memory_table\n"
                              "for line in sys.stdin: sys.argv[1:] = line.split(); "
                              "memory_table.main(); print(\"====\")' < " +
                              input.string();
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::vector<std::string> printed(1);
  std::array<char, 256> line;
  while (fgets(line.data(), line.size(), pipe.get())) {
    if (line.data() == std::string_view("====\n"))
      printed.emplace_back();
    else
      printed.back() += line.data();
  }
  printed.pop_back();
  return printed;
}

// As the script prints it: "key   1,234" lines, then the log lines.
std::string print(const Layout& layout, int rank, const StoreOptions& options) {
  const AllocationTable table = allocation_table(layout, rank, options);
  int64_t trainable = 0, owned = 0;
  for (const Stage& stage : layout.stages()) {
    owned += stage.pipeline_rank == layout.world().pipeline_rank(rank);
    for (const Group& group : stage.groups) trainable += group.frozen ? 0 : group.count;
  }
  const int64_t grad_shard = layout.state_elements(rank, "grads") * (options.optimization.bits / 8);
  const std::pair<const char*, int64_t> rows[] = {
      {"stages", layout.stages().size()},
      {"stages_owned", owned},
      {"stages_on_device", layout.on_device(rank).size()},
      {"parameters", layout.parameters_total()},
      {"trainable", trainable},
      {"num_weight_buffers", table.weight_buffers},
      {"weight_buffers", table.weight_buffer_bytes},
      {"num_grad_buffers", table.gradient_buffers},
      {"grad_buffers", table.gradient_buffer_bytes},
      {"num_shards", table.shards},
      {"weight_shard", table.shard_bytes - 3 * grad_shard},
      {"grad_shard", grad_shard},
      {"shards", table.shard_bytes},
      {"total", table.total_bytes()}};
  std::ostringstream text;
  for (const auto& [key, value] : rows) text << key << " " << value << "\n";
  for (const std::string& line : table.lines()) text << line << "\n";
  return text.str();
}

// Key, one space, number without separators; log lines stay.
std::string normalise(const std::string& printed) {
  std::istringstream lines(printed);
  std::ostringstream text;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.find(">>>") == 0 || line.find("Total") == 0 ||
        line.find("pipeline rank") == 0) {
      text << line << "\n";
      continue;
    }
    std::istringstream words(line);
    std::string key, value;
    words >> key >> value;
    std::erase(value, ',');
    text << key << " " << value << "\n";
  }
  return text.str();
}

TEST(AllocationTable, EqualsThePredictor) {
  const std::vector<Case> cases = grid();
  const std::vector<std::string> predicted = predict(cases);
  ASSERT_EQ(predicted.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    SCOPED_TRACE(c.name + ":" + c.arguments);
    const model::Description d = gpt_description(c.shape);
    d.validate();
    const Layout layout(d, c.world, c.layout);
    std::string found;
    for (int pipeline = 0; pipeline < c.world.pipeline; ++pipeline) {
      if (c.world.pipeline > 1)
        found +=
            (pipeline ? "\npipeline rank " : "pipeline rank ") + std::to_string(pipeline) + "\n";
      std::string of_rank;
      for (int rank = 0; rank < c.world.size(); ++rank) {
        if (c.world.pipeline_rank(rank) != pipeline) continue;
        const std::string text = print(layout, rank, c.store);
        if (of_rank.empty()) of_rank = text;
        EXPECT_EQ(text, of_rank) << "ranks that differ in data or tensor rank hold the same, rank "
                                 << rank;
      }
      found += of_rank;
    }
    EXPECT_EQ(found, normalise(predicted[i]));
  }
}

}  // namespace
}  // namespace fastllm::shard
