// fastllm-host prepare: text files, JSON lines or token ids become a dataset (docs/compatibility.md).
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <chrono>
#include <cstdio>
#include <thread>

#include "apps/host/arguments.hpp"
#include "apps/host/commands/commands.hpp"
#include "core/base/cancel.hpp"
#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/data/prepare/prepare.hpp"

namespace fastllm::host {
namespace {

namespace po = boost::program_options;

struct Arguments {
  data::PrepareOptions options;
  std::string format = "auto", token_type;
  std::vector<std::string> splits;
  bool help = false;
};

po::options_description describe(Arguments& a) {
  po::options_description description("Options", 110, 70);
  auto& o = a.options;
  a.options.workers = int(std::max(1u, std::thread::hardware_concurrency()));
  description.add_options()("output,o", po::value(&o.output_path)->value_name("DIR"),
                            "folder to make; appears complete or not at all")(
      "format", po::value(&a.format)->value_name("NAME")->default_value(a.format),
      "auto (by name: .jsonl and .ndjson are JSON lines, all else text), text (a file is a "
      "document), jsonl (a line is a document: "
      "{\"text\": ...} or {\"tokens\": [...]})")(
      "tokenizer", po::value(&o.tokenizer)->value_name("PATH")->default_value(o.tokenizer),
      "folder of a pretrained tokenizer (tokenizer.json or tokenizer.model), or that file; bytes "
      "is "
      "built in: 259 ids, 256 begins and 257 ends a document")(
      "python", po::value(&o.python)->value_name("PROGRAM"),
      "Python with the package tokenizers, for tokenizer.json; else FASTLLM_PYTHON, else python3, "
      "else the one of scripts/setup.sh --tokenizers")(
      "field", po::value(&o.text_field)->value_name("KEY")->default_value(o.text_field),
      "key of the text in a JSON line")(
      "spans-field", po::value(&o.spans_field)->value_name("KEY")->default_value(o.spans_field),
      "key of the loss-masking spans in a JSON line")(
      "vocab-size", po::value(&o.vocab_size)->value_name("N"),
      "for token ids: the size of their vocabulary")(
      "data-type", po::value(&a.token_type)->value_name("TYPE"),
      "type of a stored id; by the vocabulary when not given")(
      "split", po::value(&a.splits)->value_name("NAME=RATIO")->composing(),
      "cut by tokens between documents; give it once a split")(
      "holdout-every", po::value(&o.holdout_every)->value_name("N"),
      "every N-th document goes to the split validation, the others to training")(
      "tokens-per-shard",
      po::value(&o.tokens_per_shard)->value_name("N")->default_value(o.tokens_per_shard),
      "a new file pair after about so many tokens")(
      "one-file", po::bool_switch(&o.one_file),
      "write *.fast_llm_dataset files, the later format, instead of .idx/.bin pairs")(
      "workers", po::value(&o.workers)->value_name("N")->default_value(o.workers),
      "threads that tokenize (processes, for tokenizer.json); the result does not depend on it")(
      "exclude", po::value(&o.exclude)->value_name("PATTERN")->composing(),
      "leave out files whose path matches; may be given several times")(
      "overwrite", po::bool_switch(&o.overwrite), "replace an earlier output of prepare")(
      "help,h", po::bool_switch(&a.help), "print this and stop");
  return description;
}

data::InputFormat parse_format(const std::string& name) {
  if (name == "auto") return data::InputFormat::kAuto;
  if (name == "text") return data::InputFormat::kText;
  if (name == "jsonl") return data::InputFormat::kJsonLines;
  throw UsageError{"--format: expected auto, text or jsonl, found " + name};
}

data::TokenType parse_token_type(const std::string& name) {
  if (auto info = data::find_token_type(name)) return info->type;
  std::string known;
  for (const auto& info : data::kTokenTypes)
    known += fmt::format("{}{}", known.empty() ? "" : ", ", info.name);
  throw UsageError{"--data-type: expected one of " + known + ", found " + name};
}

std::pair<std::string, double> parse_split(const std::string& text) {
  size_t at = text.find('=');
  char* end = nullptr;
  double ratio = at == std::string::npos ? 0 : std::strtod(text.c_str() + at + 1, &end);
  if (at == 0 || at == std::string::npos || end == text.c_str() + at + 1 || *end != '\0') {
    throw UsageError{"--split: expected NAME=RATIO, for example training=0.9, found " + text};
  }
  return {text.substr(0, at), ratio};
}

// "prepare  45 % | 12.3 of 27.1 MiB | 0:00:03 left"
class Progress {
 public:
  void operator()(int64_t done, int64_t total) {
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    double left = done > 0 ? seconds * double(total - done) / double(done) : 0;
    log::progress(fmt::format("prepare {:3} % | {} of {} | {} left",
                              total > 0 ? 100 * done / total : 100, mib_text(done), mib_text(total),
                              duration_text(left)));
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

int run_prepare(const Options& options) {
  Arguments arguments;
  const po::options_description visible = describe(arguments);
  parse_arguments("fastllm-host prepare", options.command_arguments, visible,
                  arguments.options.inputs);
  if (arguments.help) {
    print_help(
        "fastllm-host prepare INPUT ... --output DIR\n\nINPUT is a file, a folder (all files "
        "below) or a pattern.",
        visible);
    return kDone;
  }
  auto& prepare = arguments.options;
  if (prepare.inputs.empty())
    throw UsageError{
        "expected at least one input (a file, a folder or a pattern), found none; see fastllm-host "
        "prepare --help"};
  if (prepare.output_path.empty())
    throw UsageError{"expected --output DIR, found none; see fastllm-host prepare --help"};
  prepare.format = parse_format(arguments.format);
  if (!arguments.token_type.empty()) prepare.token_type = parse_token_type(arguments.token_type);
  for (const auto& split : arguments.splits) prepare.splits.push_back(parse_split(split));

  install_stop_handlers();
  data::PrepareReport report = data::prepare(prepare, Progress(), [] { return stop_requested(); });
  log::progress("");
  for (const auto& warning : report.warnings) log::warning(warning);
  log::info(fmt::format("Prepared {} documents, {} tokens from {} files ({}) in {} shards.",
                        with_commas(double(report.documents), 0),
                        with_commas(double(report.tokens), 0), with_commas(double(report.files), 0),
                        mib_text(report.input_bytes), report.shards.size()));
  for (const auto& file : report.configurations)
    log::info("Use it with {type: file, path: " + file.string() + "}");
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
    throw Error(Status::kUnavailable,
                fmt::format("the dataset is complete at {}, only its summary could not be written "
                            "to standard output; use the dataset, and send the output elsewhere "
                            "next time",
                            prepare.output_path.string()));
  }
  return kDone;
}

}  // namespace fastllm::host
