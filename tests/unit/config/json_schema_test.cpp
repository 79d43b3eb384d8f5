// The JSON Schema says what the reader does: the same documents pass both.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/config/resolve.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm {
namespace {

using config::Node;

Node schema_tree() {
  return config::parse_json(config::json_schema(test::gpt_schema(), "gpt"), "schema");
}

TEST(JsonSchema, DescribesKeysWithTypesDefaultsAndBounds) {
  Node schema = schema_tree();
  EXPECT_EQ(schema.get<std::string>("$schema"), "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema.get<std::string>("title"), "gpt");
  EXPECT_FALSE(schema.get<bool>("additionalProperties"));
  const Node& keep = *schema.find("properties.training.properties.checkpoint.properties.keep");
  EXPECT_EQ(
      config::to_json(keep),
      R"({"description": "How many stay on the disk. null: keeps all.", "type": ["integer", "null"], )"
      R"("exclusiveMinimum": 0, "default": 5})");
  const Node& biases = *schema.find(
      "properties.model.properties.base_model.properties.transformer.properties.add_linear_biases");
  EXPECT_EQ(config::to_json(*biases.find("enum")),
            R"([true, false, "everywhere", "nowhere", "only_attn_qkv"])");
  const Node& old = *schema.find("properties.pretrained.properties.load_weights");
  EXPECT_TRUE(old.get<bool>("deprecated"));
  EXPECT_EQ(old.get<std::string>("description"), "Old name of model_weights.");
}

struct Document {
  const char* name;
  std::string yaml;
  bool valid;
};

std::vector<Document> documents() {
  std::vector<Document> result;
  for (const char* name : {"default-verbose-0", "default-verbose-20", "mistral-frozen"})
    result.push_back(
        {name,
         read_file(std::string(FASTLLM_SOURCE_DIR "/tests/fixtures/config/") + name + ".yaml"),
         true});
  const Document more[] = {
      {"nothing", "{}", true},
      {"nested datasets",
       "data: {datasets: {Training: {type: blended, weights: [1, 2], datasets: [{type: slice, end: "
       "0.5, dataset: {type: "
       "memmap, path: x}}, {type: sampled, dataset: {type: random}, sampling: {seed: 3}}]}}}",
       true},
      {"dtype with prefix", "model: {distributed: {training_dtype: torch.bf16}}", true},
      {"null data type", "training: {export: {data_type: null}}", true},
      {"script as text", "training: {checkpoint: {callback: {script: ls -l, environment: {A: b}}}}",
       true},
      {"script as list", "training: {checkpoint: {callback: {script: [ls, -l]}}}", true},
      {"path as text", "data: {path: some/prefix}", true},
      {"old name", "pretrained: {load_weights: false}", true},
      {"old switch", "model: {base_model: {transformer: {use_rotary_embeddings: true}}}", true},
      {"scales", "model: {base_model: {transformer: {mlp_lr_scale: [0, null, 1.5]}}}", true},
      {"big seed", "model: {distributed: {dp_seed_shift: 123456789012345678901234567890}}", true},
      {"unknown at the root", "optimiser: {}", false},
      {"unknown in a block", "training: {train_iter: 3}", false},
      {"unknown in the model", "model: {base_model: {transformer: {num_layer: 3}}}", false},
      {"unknown phase", "data: {datasets: {Trainin: 3}}", false},
      {"set of its own", "training: {validation: {code: {interval: 3, iterations: 1}}}", true},
      {"dataset of a set", "data: {datasets: {code: {type: random}}}", true},
      {"unknown in a set", "training: {validation: {code: {intervall: 3}}}", false},
      {"unknown beside the sets", "training: {validation: {intervall: 3}}", false},
      {"unknown in a dataset", "data: {datasets: {Training: {type: random, path: x}}}", false},
      {"unknown type", "data: {datasets: {Training: {type: parquet}}}", false},
      {"dataset without type", "data: {datasets: {Training: {path: x}}}", false},
      {"dataset without its path", "data: {datasets: {Training: {type: memmap}}}", false},
      {"dataset that has no place",
       "data: {datasets: {Training: {type: slice, dataset: {type: random}}}}", false},
      {"too few datasets",
       "data: {datasets: {Training: {type: blended, weights: [1], datasets: [{type: random}]}}}",
       false},
      {"keep 0", "training: {checkpoint: {keep: 0}}", false},
      {"negative", "training: {train_iters: -1}", false},
      {"text for a number", "training: {train_iters: 1_000}", false},
      {"number with a fraction", "training: {train_iters: 1.5}", false},
      {"boolean for a number", "training: {train_iters: true}", false},
      {"null for a number", "training: {train_iters: null}", false},
      {"number for a boolean", "schedule: {skip_step: 1}", false},
      {"number for a text", "run: {experiment_dir: 3}", false},
      {"number for a list", "model: {base_model: {transformer: {mlp_lr_scale: 0}}}", false},
      {"negative scale", "model: {base_model: {transformer: {mlp_lr_scale: [-1]}}}", false},
      {"no choice", "optimizer: {learning_rate: {decay_style: cosin}}", false},
      {"no dtype", "model: {distributed: {training_dtype: float31}}", false},
      {"block for a number", "optimizer: {learning_rate: 1e-4}", false},
      {"number in the environment", "training: {checkpoint: {callback: {environment: {A: 1}}}}",
       false},
      {"too large", "optimizer: {beta_1: 1.5}", false},
      {"zero stage", "model: {multi_stage: {zero_stage: 4}}", false},
  };
  for (const Document& document : more) result.push_back(document);
  return result;
}

TEST(JsonSchema, JudgesDocumentsAsTheReaderDoes) {
  config::Schema schema = test::gpt_schema();
  for (const Document& document : documents()) {
    bool valid = true;
    try {
      config::resolve(schema, config::parse_yaml(document.yaml, "t.yaml"));
    } catch (const Error&) {
      valid = false;
    }
    EXPECT_EQ(valid, document.valid) << document.name;
  }
  const char* python = std::getenv("FASTLLM_JUDGES_PYTHON");
  if (!python || !*python) GTEST_SKIP() << "FASTLLM_JUDGES_PYTHON names no Python with jsonschema";
  TemporaryDirectory folder;
  Node cases = Node::list();
  for (const Document& document : documents()) {
    Node entry = Node::map();
    entry.set_child("name", Node::text(document.name));
    entry.set_child("valid", Node::boolean(document.valid));
    entry.set_child("document", config::parse_yaml(document.yaml, document.name));
    cases.append(std::move(entry));
  }
  std::string schema_path = (folder.path() / "schema.json").string(),
              cases_path = (folder.path() / "cases.json").string();
  write_file_atomic(schema_path, config::json_schema(schema, "gpt"));
  write_file_atomic(cases_path, config::to_json(cases));
  std::string command = "'" + std::string(python) +
                        "' '" FASTLLM_SOURCE_DIR "/tests/unit/config/schema_judge.py' '" +
                        schema_path + "' '" + cases_path + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace fastllm
