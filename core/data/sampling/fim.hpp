// Fill in the middle (docs/compatibility.md): texts of a sample are cut in prefix, middle and
// suffix, at characters, and put in an order where the middle comes last. Bit for bit the
// reference's: a generator of its own for each sample, seeded by its number.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/data/batch.hpp"
#include "core/data/tokenizers/tokenizer.hpp"

namespace fastllm::data {

struct FimOptions {
  double rate = 0;                                // share of texts that are turned
  std::optional<int64_t> max_middle_len = {};     // characters
  std::optional<std::string> split_sample = {};   // text of the token that cuts a text in fragments
  double fragment_rate = 0;                       // share of fragments that are turned
  std::optional<std::string> ignore_prefix = {};  // texts that begin so are left alone
  double spm_rate = 0.5;                          // share of turned texts with the suffix first
  bool truncate_or_pad = false;                   // a turned text keeps its number of tokens
  std::string prefix_token = "<fim_prefix>", middle_token = "<fim_middle>";
  std::string pad_token = "<fim_pad>", suffix_token = "<fim_suffix>";
};

// Samples keep their length: cut at the end, or filled with the pad token. Documents of a sample are
// then what lies between its end-of-text tokens. Spans do not survive: has_spans() is false.
// Throws Error(kInvalid) when the tokenizer lacks one of the tokens.
std::shared_ptr<const SampledDataset> make_fim(std::shared_ptr<const SampledDataset> dataset,
                                               std::shared_ptr<const Tokenizer> tokenizer,
                                               const FimOptions& options, uint64_t seed);

}  // namespace fastllm::data
