#include "apps/host/arguments.hpp"

#include <boost/program_options.hpp>

#include <cstdio>
#include <sstream>

#include "apps/host/options.hpp"

namespace fastllm::host {

namespace po = boost::program_options;

std::set<std::string> parse_arguments(const std::string& command,
                                      const std::vector<std::string>& arguments,
                                      const po::options_description& options,
                                      std::vector<std::string>& words) {
  po::options_description all;
  all.add(options).add_options()("words", po::value(&words));
  po::positional_options_description positional;
  positional.add("words", -1);
  // A guessed prefix would change meaning when an option is added.
  const auto style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
  try {
    po::variables_map values;
    po::store(
        po::command_line_parser(arguments).options(all).positional(positional).style(style).run(),
        values);
    po::notify(values);
    std::set<std::string> given;
    for (const auto& [name, value] : values)
      if (!value.defaulted() && name != "words") given.insert(name);
    return given;
  } catch (const po::error& e) {
    throw UsageError{std::string(e.what()) + "; see " + command + " --help"};
  }
}

void print_help(const std::string& usage, const po::options_description& options) {
  std::ostringstream text;
  text << usage << "\n\n" << options;
  std::fputs(text.str().c_str(), stdout);
}

}  // namespace fastllm::host
