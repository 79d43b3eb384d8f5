// Turns text files, JSON lines or token ids into a memory-mapped dataset: {output}/shard_0_k.bin
// and .idx, and a YAML that a training configuration includes. The result depends on inputs and
// options alone, never on the number of workers. The output folder appears complete or not at all,
// also when the process is killed: work is done in a folder beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/data/prepare/prepare_inputs.hpp"
#include "core/data/token_type.hpp"

namespace fastllm::data {

struct PrepareOptions {
  // Files, folders (all files below) and patterns (*, ?, [a-z]; ** for any folders). Order counts:
  // documents keep it; what a folder or a pattern gives is sorted by path.
  std::vector<std::string> inputs;
  // Patterns over whole paths, `*` standing for "/" too ("*/tests/*"): such files are left out.
  std::vector<std::string> exclude;
  InputFormat format = InputFormat::kAuto;
  std::filesystem::path output_path;
  bool overwrite = false;  // replaces an earlier output of prepare, and nothing else

  std::string tokenizer = "bytes";  // as TokenizerOptions::path
  std::string python;               // as TokenizerOptions::python
  // Fields of a JSON line. Spans are optional there; an empty name: not read.
  std::string text_field = "text";
  std::string spans_field = "loss_masking_spans";
  int64_t vocab_size = 0;               // for token ids; 0: the tokenizer's
  std::optional<TokenType> token_type;  // unset: by vocab_size (docs/compatibility.md)

  int64_t tokens_per_shard = 1'000'000'000;  // target; from 100,000 up
  bool one_file = false;  // shards are *.fast_llm_dataset files instead of .idx/.bin pairs
  // Name and ratio, over the tokens in order, cut between documents; each gets a
  // fast_llm_config_{name}.yaml.
  std::vector<std::pair<std::string, double>> splits;
  // Every n-th document goes to shards of its own: splits "training" and "validation". 0: off.
  int64_t holdout_every = 0;

  int workers = 1;                         // threads, or processes, that tokenize
  int64_t block_bytes = int64_t(8) << 20;  // input handled at a time by a worker
};

struct PrepareReport {
  int64_t files = 0, input_bytes = 0;
  int64_t documents = 0, tokens = 0;
  TokenType token_type = TokenType::kInt16;
  std::vector<std::filesystem::path> shards;          // prefixes
  std::vector<std::filesystem::path> configurations;  // YAML files
  std::vector<std::string> warnings;
};

// progress(done, total): bytes of input; cancelled(): true ends with Error(kCancelled). Both may be
// empty; both are called on the caller's thread.
PrepareReport prepare(const PrepareOptions& options,
                      const std::function<void(int64_t done, int64_t total)>& progress = {},
                      const std::function<bool()>& cancelled = {});

}  // namespace fastllm::data
