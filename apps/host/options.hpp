// The command line of fastllm-host.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace fastllm::host {

// Exit codes, as documented in docs/users/command-line.md.
enum ExitCode {
  kDone = 0,         // finished, or stopped as planned (shutdown interval, --validate)
  kFailed = 1,       // an error, told in one sentence
  kBadUsage = 2,     // the command line cannot be understood
  kInterrupted = 3,  // SIGINT or SIGTERM: the step was finished and everything is saved
  kDiverged = 4,     // a loss or gradient that is no number (training.divergence)
  kDifferent = 5,    // compare: the losses do not agree
};

struct Options {
  std::string command = "train";  // train, evaluate, plan, compare, plugins, schema, prepare
  std::string plugin;             // --plugin: a name or a path
  std::string model;              // --model: one of the plugin's; "": it has one
  std::string config_file;
  std::vector<std::string> overrides;  // a.b.c=VALUE, in order
  std::vector<std::filesystem::path> plugin_paths;
  bool allow_insecure_plugins = false;
  int processes = 1;  // ranks to start on this computer
  bool validate = false;
  int verbosity = 0;
  bool markdown = false;  // schema: the reference page instead
  bool help = false, version = false;
  std::vector<std::string> command_arguments;  // of plan, prepare and compare: all after the word
};

// Throws UsageError for what cannot be understood.
struct UsageError {
  std::string text;
};
// What is wrong is told by another rank; this one ends with the code.
struct ToldElsewhere {
  int code;
};
Options parse_options(int argc, char** argv);
std::string help_text();
// Words of a command that configures: overrides, and one file or folder.
void take_words(const std::vector<std::string>& words, Options& options);
// Throws when a --plugin-path is no folder.
void check_plugin_paths(const Options& options);

}  // namespace fastllm::host
