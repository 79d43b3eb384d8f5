// How every command reads its part of the command line: options spelt out in full, words between them.
#pragma once

#include <boost/program_options/options_description.hpp>

#include <set>
#include <string>
#include <vector>

namespace fastllm::host {

// Fills the variables that `options` names, and `words` with what is no option, in order; gives the
// long names of the options that were there. `command` is what --help is asked of ("fastllm-host
// compare"). Throws UsageError.
std::set<std::string> parse_arguments(const std::string& command,
                                      const std::vector<std::string>& arguments,
                                      const boost::program_options::options_description& options,
                                      std::vector<std::string>& words);

// `usage`, and below it the options, to standard output.
void print_help(const std::string& usage,
                const boost::program_options::options_description& options);

}  // namespace fastllm::host
