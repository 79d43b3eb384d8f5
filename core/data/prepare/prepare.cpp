// The whole way: options checked, inputs listed, blocks encoded by workers and collected in order,
// shards and definitions written, the folder put in its place.
#include "core/data/prepare/prepare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/data/ordered_workers.hpp"
#include "core/data/prepare/prepare_encode.hpp"
#include "core/data/prepare/prepared_shards.hpp"
#include "core/data/prepare/splits.hpp"
#include "core/data/prepare/work_folder.hpp"
#include "core/data/tokenizers/tokenizer.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLeastTokensPerShard = 100'000;
constexpr int kMostWorkers = 1024;  // as training.num_workers
constexpr int kBlocksAhead = 3;     // per worker: what bounds the memory
constexpr int64_t kSmallBlockBytes = int64_t(1) << 20;

std::vector<double> split_ratios(const PrepareOptions& options) {
  std::vector<double> ratios;
  for (const auto& [name, ratio] : options.splits) ratios.push_back(ratio);
  return ratios;
}

// Everything that can be judged before an input or the tokenizer is opened.
void check(const PrepareOptions& options) {
  auto at_least = [](const char* name, int64_t value, int64_t least) {
    if (value < least) {
      throw Error(Status::kInvalid,
                  fmt::format("expected {} from {} up, found {}", name, least, value));
    }
  };
  if (options.output_path.empty())
    throw Error(Status::kInvalid, "expected output_path, found none; name a folder");
  at_least("tokens_per_shard", options.tokens_per_shard, kLeastTokensPerShard);
  at_least("workers", options.workers, 1);
  if (options.workers > kMostWorkers) {
    throw Error(Status::kInvalid, fmt::format("expected at most {} workers, found {}; more than "
                                              "the computer has cores gain nothing",
                                              kMostWorkers, options.workers));
  }
  at_least("block_bytes", options.block_bytes, 1);
  at_least("vocab_size", options.vocab_size, 0);
  if (options.holdout_every != 0) at_least("holdout_every", options.holdout_every, 2);
  if (options.holdout_every != 0 && !options.splits.empty()) {
    throw Error(Status::kInvalid, "expected splits or holdout_every, found both; leave one out");
  }
  for (size_t i = 0; i < options.splits.size(); ++i) {
    const std::string& name = options.splits[i].first;
    bool legal = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '_' || c == '-';
    });
    if (!legal) {
      throw Error(
          Status::kInvalid,
          fmt::format("expected names of splits of letters, digits, '_' and '-' (they become "
                      "part of a file name), found '{}'",
                      name));
    }
    for (size_t j = 0; j < i; ++j) {
      if (options.splits[j].first == name) {
        throw Error(Status::kInvalid,
                    fmt::format("expected every split once, found '{}' twice", name));
      }
    }
  }
  if (!options.splits.empty()) check_split_ratios(split_ratios(options));
}

EncodeSettings encode_settings(const PrepareOptions& options, const Tokenizer& tokenizer) {
  EncodeSettings settings{&tokenizer, options.text_field, options.spans_field, options.vocab_size,
                          TokenType::kInt16};
  int64_t vocabulary = options.vocab_size > 0 ? options.vocab_size : tokenizer.vocabulary();
  settings.type = options.token_type.value_or(token_type_for_vocabulary(vocabulary));
  return settings;
}

// An output that is replaced must not be what it is made from.
void check_inputs_outside(const std::vector<InputFile>& files, const fs::path& output) {
  std::error_code ignored;
  fs::path inside = fs::weakly_canonical(output, ignored);
  for (const InputFile& file : files) {
    fs::path real = fs::weakly_canonical(file.path, ignored);
    if (std::mismatch(inside.begin(), inside.end(), real.begin(), real.end()).first ==
        inside.end()) {
      throw Error(
          Status::kInvalid,
          fmt::format("expected inputs outside of the output {}, found {} in it; name fewer "
                      "inputs or another output_path",
                      output.string(), file.path.string()));
    }
  }
}

// Names an output may hold: what an overwrite may remove.
bool is_output_name(const std::string& name) {
  return name.starts_with("shard_") || name == kMetadataFile ||
         (name.starts_with("fast_llm_config") && name.ends_with(".yaml"));
}

// Takes blocks in order and gives every document to its group: 0, or 1 when it is held out.
class Distributor {
 public:
  Distributor(std::vector<std::unique_ptr<PreparedShards>>& groups, int64_t holdout_every,
              int64_t itemsize)
      : groups_(groups), holdout_every_(holdout_every), itemsize_(size_t(itemsize)) {}

  void add(const EncodedBlock& block) {
    std::span<const std::byte> tokens = block.tokens;
    size_t begin = 0, end = 0;  // tokens that wait to be written to the current group, in one go
    for (const EncodedPiece& piece : block.pieces) {
      if (!piece.continues) {
        size_t group = group_of(documents_++);
        if (group != group_) {
          groups_[group_]->append_tokens(tokens.subspan(begin, end - begin));
          begin = end;
          group_ = group;
        }
        groups_[group_]->begin_document(piece.tokens, piece.spans);
      } else {
        groups_[group_]->continue_document(piece.tokens);
      }
      end += size_t(piece.tokens) * itemsize_;
    }
    FASTLLM_ASSERT(end == tokens.size());
    groups_[group_]->append_tokens(tokens.subspan(begin));
  }

 private:
  size_t group_of(int64_t document) const {
    return holdout_every_ > 0 && document % holdout_every_ == holdout_every_ - 1 ? 1 : 0;
  }

  std::vector<std::unique_ptr<PreparedShards>>& groups_;
  int64_t holdout_every_;
  size_t itemsize_;
  int64_t documents_ = 0;
  size_t group_ = 0;
};

// Writes the YAML of each split into the work folder; reports under the final one.
void write_configurations(const PrepareOptions& options,
                          const std::vector<std::vector<ShardSizes>>& shards, const fs::path& work,
                          PrepareReport& report) {
  auto write = [&](const std::string& suffix, const std::vector<ShardSizes>& all,
                   const std::vector<SplitPiece>& pieces) {
    std::string name = fmt::format("fast_llm_config{}.yaml", suffix);
    write_file_atomic(work / name, dataset_yaml(all, pieces));
    report.configurations.push_back(options.output_path / name);
  };
  if (options.holdout_every > 0) {
    write("_training", shards[0], split_shards(shards[0], {1})[0]);
    write("_validation", shards[1], split_shards(shards[1], {1})[0]);
  } else if (options.splits.empty()) {
    write("", shards[0], split_shards(shards[0], {1})[0]);
  } else {
    auto pieces = split_shards(shards[0], split_ratios(options));
    for (size_t i = 0; i < pieces.size(); ++i) {
      const std::string& name = options.splits[i].first;
      if (pieces[i].empty()) {
        report.warnings.push_back(fmt::format("Datasets split {} is empty!", name));
      } else {
        write("_" + name, shards[0], pieces[i]);
      }
    }
  }
}

// One output has one description: that of the first input with one.
void copy_metadata(const std::vector<std::string>& inputs, const fs::path& work,
                   PrepareReport& report) {
  const std::vector<fs::path> found = metadata_files(inputs);
  if (found.empty()) return;
  write_file_atomic(work / kMetadataFile, read_file(found[0]));
  for (size_t i = 1; i < found.size(); ++i) {
    report.warnings.push_back(fmt::format("{} is not copied: the output describes {} already",
                                          found[i].string(), found[0].string()));
  }
}

}  // namespace

PrepareReport prepare(const PrepareOptions& options,
                      const std::function<void(int64_t, int64_t)>& progress,
                      const std::function<bool()>& cancelled) {
  check(options);
  auto stop_if_cancelled = [&] {
    if (cancelled && cancelled()) {
      throw Error(Status::kCancelled,
                  fmt::format("stopped before the dataset was complete; nothing was written to {}",
                              options.output_path.string()));
    }
  };
  std::shared_ptr<const Tokenizer> tokenizer =
      open_tokenizer({options.tokenizer, {}, options.workers, options.python});
  // Before the inputs are listed: what an interrupted run left may lie among them.
  WorkFolder folder(options.output_path, options.overwrite, is_output_name);
  std::vector<InputFile> files = list_inputs(options.inputs, options.format, options.exclude);
  // A tokenizer that takes long for a byte gets small blocks, so that all workers end together.
  std::vector<InputBlock> blocks = cut_into_blocks(
      files,
      tokenizer->is_concatenative() ? options.block_bytes
                                    : std::min(options.block_bytes, kSmallBlockBytes),
      tokenizer->is_concatenative());
  check_inputs_outside(files, options.output_path);

  PrepareReport report;
  for (const InputFile& file : files) report.input_bytes += file.state.bytes;
  report.files = int64_t(files.size());
  report.warnings = folder.notes();
  EncodeSettings settings = encode_settings(options, *tokenizer);
  report.token_type = settings.type;

  std::vector<std::unique_ptr<PreparedShards>> groups;
  for (const char* name : {"collecting", "collecting_held_out"}) {
    if (groups.empty() || options.holdout_every > 0) {
      groups.push_back(
          std::make_unique<PreparedShards>(folder.path(), name, settings.type, options.one_file));
    }
  }
  Distributor distributor(groups, options.holdout_every, token_type_info(settings.type).bytes);
  {
    // A thread that waits for a process leaves its core to another, which reads and parses.
    int threads = options.workers + (tokenizer->is_remote() ? 1 : 0);
    OrderedWorkers<EncodedBlock> workers(
        int64_t(blocks.size()), threads, int64_t(threads) * kBlocksAhead,
        [&](int64_t number) { return encode_block(files, blocks[size_t(number)], settings); });
    int64_t done = 0;
    for (const InputBlock& block : blocks) {
      stop_if_cancelled();
      try {
        distributor.add(workers.next());
      } catch (const Error& error) {
        if (error.status() == Status::kCancelled) stop_if_cancelled();  // its words say more
        throw;
      }
      done += block.bytes();
      if (progress) progress(done, report.input_bytes);
    }
  }

  std::vector<std::vector<ShardSizes>> shards;
  for (const auto& group : groups) {
    if (group->num_tokens() == 0) {
      throw Error(
          Status::kInvalid,
          shards.empty()
              ? fmt::format("expected documents with tokens in the {} input files, found none",
                            files.size())
              : fmt::format("expected at least {} documents to hold out every one of that number, "
                            "found {}; "
                            "lower holdout_every",
                            options.holdout_every, report.documents));
    }
    report.documents += group->num_documents();
    report.tokens += group->num_tokens();
    shards.push_back(
        group->write(options.tokens_per_shard, int64_t(report.shards.size()), stop_if_cancelled));
    for (const ShardSizes& shard : shards.back())
      report.shards.push_back(options.output_path / shard.path);
  }
  write_configurations(options, shards, folder.path(), report);
  copy_metadata(options.inputs, folder.path(), report);
  check_unchanged(files);
  stop_if_cancelled();
  folder.publish();
  return report;
}

}  // namespace fastllm::data
