// One function a subcommand; each returns an exit code and throws Error for what the user must know.
#pragma once

#include "apps/host/options.hpp"

namespace fastllm::host {

// command_line: as typed, for the log.
int run_train(const Options& options, const std::string& command_line);
int run_evaluate(const Options& options, const std::string& command_line);
// --nproc: the same command, as several processes. Needs nothing of what a command loads.
int run_ranks(const Options& options, int argc, char** argv);
int run_plan(const Options& options, int argc, char** argv);
int run_compare(const Options& options);
int run_plugins(const Options& options);
int run_schema(const Options& options);
int run_prepare(const Options& options);

}  // namespace fastllm::host
