// What compiled files define, read with nm.
#pragma once

#include <cstdio>
#include <memory>
#include <regex>
#include <set>
#include <stdexcept>
#include <string>

namespace fastllm::testing {

inline std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string output;
  char buffer[4096];
  while (pipe && std::fgets(buffer, sizeof buffer, pipe.get())) output += buffer;
  if (output.empty()) throw std::runtime_error("nothing came from: " + command);
  return output;
}

// Names of the functions that files (separated by spaces) define right in a namespace for others to
// call.
inline std::set<std::string> functions_in(const std::string& name_space, const std::string& files) {
  const std::string symbols = output_of("nm --demangle --defined-only " + files);
  // A code symbol; templates show what they return, clones for a processor what they are for.
  const std::regex line(" [TWi] (?:void )?" + name_space + R"(::(\w+)(?:<[^(]*>)?\()");
  std::set<std::string> names;
  for (std::sregex_iterator at(symbols.begin(), symbols.end(), line), end; at != end; ++at)
    names.insert((*at)[1]);
  return names;
}

}  // namespace fastllm::testing
