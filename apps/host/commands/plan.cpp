// fastllm-host plan CONFIG: memory, traffic, time and disk of a run on any number of ranks, without
// memory for it and without ranks.
#include "core/plan/plan.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <boost/program_options.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "apps/host/arguments.hpp"
#include "apps/host/commands/commands.hpp"
#include "apps/host/job.hpp"
#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/tensor.hpp"
#include "core/distributed/session.hpp"
#include "core/plan/measure.hpp"
#include "core/plan/report.hpp"
#include "core/plugin/host_memory.hpp"

namespace fastllm::host {
namespace {

namespace po = boost::program_options;
namespace fs = std::filesystem;

constexpr int64_t kMostRanks = 1 << 20;  // of model.distributed.world_size
constexpr int64_t kUsualRanksPerComputer = 8;

struct Arguments {
  std::vector<std::string> words, bandwidths;
  std::string peak, memory, memory_bandwidth;
  int64_t world_size = 0, ranks_per_computer = 0;  // 0: not given
  double overlap = 0;
  bool measure = false, json = false, help = false;
};

po::options_description describe(Arguments& a, Options& o) {
  po::options_description description("Options", 110, 70);
  auto add = description.add_options();
  add("plugin", po::value(&o.plugin)->value_name("NAME"), "the model plugin");
  add("model", po::value(&o.model)->value_name("TYPE"), "which model of the plugin");
  add("config,c", po::value(&o.config_file)->value_name("FILE"),
      "the YAML file, or the folder of a run; the same as naming it without -c");
  add("world-size", po::value(&a.world_size)->value_name("N"),
      "for N ranks, whatever the file says");
  add("ranks-per-node", po::value(&a.ranks_per_computer)->value_name("N"),
      "ranks on one computer; else what the file says, else 8");
  add("memory", po::value(&a.memory)->value_name("BYTES"),
      "what a rank may take, as 80G or 80Gi: whether it fits");
  add("peak", po::value(&a.peak)->value_name("FLOPS"),
      "operations a second of a rank in its products, as 400T");
  add("bandwidth", po::value(&a.bandwidths)->value_name("[WHERE=]BYTES")->composing(),
      "bytes a second that a rank sends, as 50G; WHERE: intra (on its computer), inter (to "
      "others), "
      "or a group such as data");
  add("memory-bandwidth", po::value(&a.memory_bandwidth)->value_name("BYTES"),
      "bytes a second that a rank reads and writes in memory, as 3.3T");
  add("overlap", po::value(&a.overlap)->value_name("SHARE"),
      "share of gathering weights and reducing gradients that takes place while layers compute: 0 "
      "(default) to 1");
  add("measure", po::bool_switch(&a.measure),
      "measure peak and memory bandwidth here, in seconds; in a run of several ranks (--nproc, "
      "torchrun, srun) the bandwidth between them, too. What is given besides comes first");
  add("nproc", po::value(&o.processes)->value_name("N"),
      "with --measure: by N ranks of this computer at once");
  add("json", po::bool_switch(&a.json), "print one JSON object instead of text");
  add("plugin-path", po::value(&o.plugin_paths)->value_name("DIR")->composing(),
      "look for plugins here first; may be given several times");
  add("allow-insecure-plugins", po::bool_switch(&o.allow_insecure_plugins),
      "load plugins from files and folders that others may write to");
  add("help,h", po::bool_switch(&a.help), "print this and stop");
  return description;
}

double quantity(const std::string& option, const std::string& text) {
  const auto value = plan::parse_quantity(text);
  if (value) return *value;
  throw UsageError{
      fmt::format("{}: expected a number above 0 with k, M, G, T or P behind it, as "
                  "400T, found \"{}\"",
                  option, text)};
}

void take_bandwidth(const std::string& text, plan::Hardware& hardware) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    hardware.intra = hardware.inter = quantity("--bandwidth", text);
    return;
  }
  const std::string where = text.substr(0, equals);
  const double value = quantity("--bandwidth", text.substr(equals + 1));
  if (where == "intra") {
    hardware.intra = value;
  } else if (where == "inter") {
    hardware.inter = value;
  } else if (distributed::group_of_name(where)) {
    hardware.group[where] = value;
  } else {
    throw UsageError{
        fmt::format("--bandwidth: expected intra, inter or a group (data, pipeline, "
                    "tensor, sequence_data) before the =, found \"{}\"",
                    where)};
  }
}

plan::Hardware hardware_of(const Arguments& a) {
  plan::Hardware hardware;
  if (!a.peak.empty()) hardware.peak = quantity("--peak", a.peak);
  if (!a.memory.empty()) hardware.memory = quantity("--memory", a.memory);
  if (!a.memory_bandwidth.empty())
    hardware.memory_bandwidth = quantity("--memory-bandwidth", a.memory_bandwidth);
  for (const std::string& text : a.bandwidths) take_bandwidth(text, hardware);
  if (!(a.overlap >= 0 && a.overlap <= 1))
    throw UsageError{fmt::format("--overlap: expected a share from 0 to 1, found {}", a.overlap)};
  hardware.overlap = a.overlap;
  return hardware;
}

void check_counts(const Arguments& a, const std::set<std::string>& given) {
  const auto check = [&](const char* option, int64_t value) {
    if (given.contains(option) && (value < 1 || value > kMostRanks))
      throw UsageError{fmt::format("--{}: expected a number of ranks from 1 to {}, found {}",
                                   option, kMostRanks, value)};
  };
  check("world-size", a.world_size);
  check("ranks-per-node", a.ranks_per_computer);
}

void replace_folder(Options& options) {
  if (!fs::is_directory(options.config_file)) return;
  const fs::path file = fs::path(options.config_file) / "config.yaml";
  if (!fs::exists(file))
    throw Error(Status::kInvalid,
                fmt::format("expected a configuration file, or the folder of an experiment or run, "
                            "found no config.yaml in {}",
                            options.config_file));
  options.config_file = file.string();
}

// What the configuration says of its ranks gives way to what the plan is for. Sizes that follow from
// others are worked out again: the file of a run has them all.
void set_world(const Arguments& a, Options& options) {
  std::vector<std::string> overrides = {"model.distributed.rank=null"};
  if (a.world_size > 0) {
    overrides.push_back(fmt::format("model.distributed.world_size={}", a.world_size));
    overrides.push_back("model.distributed.local_world_size=null");
    config::Node user =
        options.config_file.empty() ? config::Node::map() : config::load_file(options.config_file);
    config::apply_overrides(user, options.overrides);
    const auto has = [&](const char* key) {
      const config::Node* value = user.find(key);
      return value && !value->is_null();
    };
    if (has("batch.batch_size") && has("batch.micro_batch_size"))
      for (const char* key : {"depth_first", "breadth_first", "sequential"})
        overrides.push_back(fmt::format("batch.{}_micro_batches=null", key));
  }
  if (a.ranks_per_computer > 0)
    overrides.push_back(fmt::format("model.distributed.local_world_size={}", a.ranks_per_computer));
  options.overrides.insert(options.overrides.end(), overrides.begin(), overrides.end());
}

// Where nobody says how many ranks a computer has: as many as it usually has, of which tensor ranks
// stay together.
train::Environment usual_world(const config::Node& root) {
  const auto number = [&](const char* key, int64_t otherwise = 1) {
    return root.get_optional<int64_t>(std::string("model.distributed.") + key).value_or(otherwise);
  };
  const int64_t launched = distributed::LaunchEnvironment::from_process().world_size.value_or(1);
  const int64_t world = number("world_size", launched), tensor = number("tensor_parallel");
  train::Environment environment;
  environment.world_size = world;
  environment.local_world_size = world;
  for (int64_t local = tensor; local < world; local += tensor) {
    if (local < kUsualRanksPerComputer || world % local) continue;
    environment.local_world_size = local;
    break;
  }
  return environment;
}

// What was not given, as this process and those beside it find it. Gives what layers keep inside.
std::vector<int64_t> fill_measured(Job& job, plan::Hardware& hardware) {
  const auto launch = distributed::LaunchEnvironment::from_process();
  const int size = int(launch.world_size.value_or(1)), rank = int(launch.rank.value_or(0));
  const int local = int(launch.local_world_size.value_or(size));
  const distributed::World world{.data = size, .local_world_size = local};
  if (const auto& threads = job.settings().run.threads) omp_set_num_threads(int(*threads));
  const auto session = distributed::Session::join(launch, world, rank, {});
  distributed::Communicator& all = session->group(distributed::GroupKind::kWorld);
  const plan::Measured measured =
      plan::measure(job.settings(), job.model(), size > 1 ? &all : nullptr,
                    [] { return int64_t(plugin::cached_bytes()); });
  session->finish();
  if (!hardware.peak) hardware.peak = measured.peak;
  if (!hardware.memory_bandwidth) hardware.memory_bandwidth = measured.memory_bandwidth;
  auto& bandwidth = local < size ? hardware.inter : hardware.intra;
  if (!bandwidth) bandwidth = measured.bandwidth;
  return measured.kept;
}

}  // namespace

int run_plan(const Options& given, int argc, char** argv) {
  Options options = given;
  Arguments arguments;
  const po::options_description visible = describe(arguments, options);
  const std::set<std::string> found =
      parse_arguments("fastllm-host plan", given.command_arguments, visible, arguments.words);
  if (arguments.help) {
    print_help(
        "fastllm-host plan --plugin gpt CONFIG [a.b.c=VALUE ...]\n\nWhat a run takes of memory, "
        "network, time and disk, on any number of ranks, without memory for it and without ranks. "
        "CONFIG is a file, or the folder of an experiment or run.",
        visible);
    return kDone;
  }
  check_counts(arguments, found);
  if (found.contains("nproc") && !arguments.measure)
    throw UsageError{
        "--nproc: expected with --measure only, since a plan starts no ranks; write "
        "--world-size for the number of ranks to plan for"};
  plan::Hardware hardware = hardware_of(arguments);
  if (options.processes > 1) return run_ranks(options, argc, argv);
  take_words(arguments.words, options);
  check_plugin_paths(options);
  replace_folder(options);
  set_world(arguments, options);
  Job job(options);
  job.resolve(usual_world);
  const std::string& type = job.settings().distributed.training_dtype;
  if (!compute_dtype(type))
    throw Error(
        Status::kInvalid,
        fmt::format("{}: expected float32, bfloat16 or float16, found {}",
                    config::where(job.configuration(), "model.distributed.training_dtype"), type));
  std::vector<int64_t> kept;
  if (arguments.measure) kept = fill_measured(job, hardware);
  if (distributed::LaunchEnvironment::from_process().rank.value_or(0) != 0)
    return kDone;  // one of them tells
  const plan::Question question{
      job.settings(), job.model(), hardware,
      job.configuration().get_optional<bool>("training.export.optimizer_state").value_or(false),
      kept};
  plan::Plan plan = plan::make_plan(question);
  plan.alternatives = plan::alternatives(question);
  const std::string text = arguments.json
                               ? config::to_json(plan::report_node(plan, hardware)) + "\n"
                               : plan::report_text(plan, hardware);
  std::fputs(text.c_str(), stdout);
  return kDone;
}

}  // namespace fastllm::host
