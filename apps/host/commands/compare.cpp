// fastllm-host compare RUN_A RUN_B: what differs in configuration, data and versions, and from
// which step on the losses do. Loads no plugin.
#include <fmt/format.h>

#include <boost/program_options.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

#include "apps/host/arguments.hpp"
#include "apps/host/commands/commands.hpp"
#include "core/train/compare.hpp"

namespace fastllm::host {
namespace {

namespace po = boost::program_options;

struct Arguments {
  std::vector<std::string> runs;
  double tolerance = 0;
  bool json = false, help = false;
};

po::options_description describe(Arguments& a) {
  po::options_description description("Options", 110, 70);
  description.add_options()("tolerance", po::value(&a.tolerance)->value_name("X"),
                            "losses agree when they differ by at most X times the larger one; "
                            "default 0: every bit")("json", po::bool_switch(&a.json),
                                                    "print one JSON object instead of text")(
      "help,h", po::bool_switch(&a.help), "print this and stop");
  return description;
}

}  // namespace

int run_compare(const Options& options) {
  Arguments arguments;
  const po::options_description visible = describe(arguments);
  parse_arguments("fastllm-host compare", options.command_arguments, visible, arguments.runs);
  if (arguments.help) {
    print_help(
        "fastllm-host compare RUN_A RUN_B\n\nEach is the folder of a run (runs/3) or of an "
        "experiment (all its runs).\nExit codes: 0 the losses of all steps that both logged agree, "
        "5 they do not, 1 an error, "
        "2 bad usage.",
        visible);
    return kDone;
  }
  if (arguments.runs.size() != 2) {
    throw UsageError{
        fmt::format("expected two folders to compare, found {}; see fastllm-host compare "
                    "--help",
                    arguments.runs.size())};
  }
  if (!(arguments.tolerance >= 0) || std::isinf(arguments.tolerance)) {
    throw UsageError{
        fmt::format("--tolerance: expected a number from 0 up, found {}", arguments.tolerance)};
  }
  const train::Comparison comparison = train::compare_runs(
      train::read_run(arguments.runs[0]), train::read_run(arguments.runs[1]), arguments.tolerance);
  const std::string text = arguments.json
                               ? config::to_json(train::comparison_node(comparison)) + "\n"
                               : train::comparison_text(comparison, arguments.tolerance);
  std::fputs(text.c_str(), stdout);
  return comparison.losses_agree() ? kDone : kDifferent;
}

}  // namespace fastllm::host
