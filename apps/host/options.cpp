#include "apps/host/options.hpp"

#include <fmt/format.h>

#include <boost/program_options.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "apps/host/arguments.hpp"

namespace fastllm::host {
namespace {

namespace po = boost::program_options;

constexpr int kMostProcesses = 1024;

const char* const kCommands[] = {"train",   "evaluate", "plan",   "compare",
                                 "plugins", "schema",   "prepare"};

po::options_description visible_options(Options& options) {
  po::options_description visible("Options", 110, 70);
  auto add = visible.add_options();
  add("plugin", po::value(&options.plugin)->value_name("NAME"),
      "the model plugin: a name (libfastllm_NAME.so in the search path) or a path with a slash");
  add("model", po::value(&options.model)->value_name("TYPE"),
      "which model of the plugin, when it has several (see fastllm-host plugins)");
  add("config,c", po::value(&options.config_file)->value_name("FILE"),
      "the YAML file; the same as naming it without -c");
  add("validate,v", po::bool_switch(&options.validate),
      "check and print the configuration, run nothing");
  add("verbose", po::value(&options.verbosity)->value_name("N"),
      "how much of the configuration is printed: 0 what matters (default), 10, 20 more, -1 "
      "everything");
  add("nproc", po::value(&options.processes)->value_name("N"),
      "start N ranks on this computer, each with its share of the cores");
  add("plugin-path", po::value(&options.plugin_paths)->value_name("DIR")->composing(),
      "look for plugins here first; may be given several times");
  add("allow-insecure-plugins", po::bool_switch(&options.allow_insecure_plugins),
      "load plugins from files and folders that others may write to");
  add("markdown", po::bool_switch(&options.markdown),
      "schema: print the reference page of docs/configuration.md");
  add("version", po::bool_switch(&options.version), "print the version and stop");
  add("help,h", po::bool_switch(&options.help), "print this and stop");
  return visible;
}

// Of the reference's command line: its other syntax, which would say the same in words of its own.
void refuse_hydra(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (argument.rfind("--hydra", 0) != 0) continue;
    throw UsageError{"expected a configuration file and a.b.c=VALUE, found " +
                     argument.substr(0, argument.find('=')) +
                     ": Hydra's way of composing configurations is not offered; write the composed "
                     "configuration into one YAML file and name it"};
  }
}

// Which commands look at an option; --help and --version are anybody's.
const std::map<std::string, std::set<std::string>> kMeant = {
    {"plugin", {"train", "evaluate", "schema"}},
    {"model", {"train", "evaluate", "schema"}},
    {"config", {"train", "evaluate"}},
    {"validate", {"train", "evaluate"}},
    {"verbose", {"train", "evaluate"}},
    {"nproc", {"train", "evaluate"}},
    {"plugin-path", {"train", "evaluate", "schema", "plugins"}},
    {"allow-insecure-plugins", {"train", "evaluate", "schema", "plugins"}},
    {"markdown", {"schema"}},
};

void check_meant(const std::string& command, const std::set<std::string>& given) {
  for (const std::string& option : given) {
    const auto meant = kMeant.find(option);
    if (meant == kMeant.end() || meant->second.contains(command)) continue;
    std::string commands;
    for (const std::string& name : meant->second) commands += (commands.empty() ? "" : ", ") + name;
    throw UsageError{"--" + option + ": expected with " + commands + " only, found with " +
                     command + "; see fastllm-host --help"};
  }
}

// a.b.c=VALUE. A path may have a = in a folder's name, but then has a slash before it.
bool is_override(const std::string& word) {
  const size_t at = word.find('=');
  return at != std::string::npos && word.find('/') >= at;
}

}  // namespace

std::string help_text() {
  Options unused;
  std::ostringstream text;
  text << "fastllm-host --plugin gpt [train.yaml] [a.b.c=VALUE ...]     train a model\n"
          "fastllm-host evaluate --plugin gpt FOLDER [a.b.c=VALUE ...]  evaluate a checkpoint\n"
          "fastllm-host plan --plugin gpt train.yaml                    memory, traffic, time and "
          "disk of a run, before it (plan --help)\n"
          "fastllm-host compare RUN_A RUN_B                             where two runs differ\n"
          "fastllm-host prepare --help                                  turn text into a data set\n"
          "fastllm-host schema --plugin gpt                             JSON Schema of train.yaml, "
          "for editors\n"
          "fastllm-host plugins                                         what plugins there are, "
          "and why one is not used\n\n"
          "VALUE is YAML: true, 1e-4, [0], {a: 1}. No configuration at all is valid. Ctrl-C "
          "finishes the step, saves, and\n"
          "ends with code 3; a second Ctrl-C ends at once. Exit codes: 0 done, 1 error, 2 bad "
          "usage, 3 interrupted and saved, 4 diverged, 5 compared and different.\n\n"
       << visible_options(unused);
  return text.str();
}

namespace {

bool is_command(const std::string& word) {
  return std::find(std::begin(kCommands), std::end(kCommands), word) != std::end(kCommands);
}

}  // namespace

void take_words(const std::vector<std::string>& words, Options& options) {
  for (const std::string& word : words) {
    if (is_override(word)) {
      options.overrides.push_back(word);
    } else if (is_command(word) && !std::filesystem::exists(word)) {
      throw UsageError{
          fmt::format("expected a command as the first word, found {0} after others; "
                      "write fastllm-host {0} ...",
                      word)};
    } else if (options.config_file.empty()) {
      options.config_file = word;
    } else {
      throw UsageError{"expected one configuration file, found " + options.config_file + " and " +
                       word + "; a change of one key is written a.b.c=VALUE"};
    }
  }
}

void check_plugin_paths(const Options& options) {
  for (const auto& folder : options.plugin_paths) {
    std::error_code code;
    if (!std::filesystem::is_directory(folder, code)) {
      throw UsageError{"--plugin-path: expected a folder, found none at " + folder.string() +
                       "; remove the option or make the folder"};
    }
  }
}

Options parse_options(int argc, char** argv) {
  Options options;
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && is_command(arguments.front())) {
    options.command = arguments.front();
    arguments.erase(arguments.begin());
  }
  if (options.command == "prepare" || options.command == "compare" ||
      options.command == "plan") {  // have options of their own
    options.command_arguments = arguments;
    return options;
  }
  refuse_hydra(arguments);
  std::vector<std::string> words;
  check_meant(options.command,
              parse_arguments("fastllm-host", arguments, visible_options(options), words));
  take_words(words, options);
  const bool configures = options.command == "train" || options.command == "evaluate";
  if (!configures && (!options.config_file.empty() || !options.overrides.empty())) {
    throw UsageError{
        "expected no further words after " + options.command + ", found " +
        (options.config_file.empty() ? options.overrides.front() : options.config_file) +
        "; see fastllm-host --help"};
  }
  if (options.processes < 1 || options.processes > kMostProcesses) {
    throw UsageError{fmt::format("--nproc: expected a number of ranks from 1 to {}, found {}",
                                 kMostProcesses, options.processes)};
  }
  check_plugin_paths(options);
  return options;
}

}  // namespace fastllm::host
