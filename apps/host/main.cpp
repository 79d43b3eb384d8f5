// fastllm-host: reads the command line, runs one subcommand, turns errors into one sentence and an exit code.
#include <fmt/format.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "apps/host/commands/commands.hpp"
#include "apps/host/options.hpp"
#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/base/version.hpp"
#include "core/distributed/introduction.hpp"

namespace fastllm::host {
namespace {

// The command line as a shell would take it again.
std::string quoted(int argc, char** argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) {
    std::string_view word = argv[i];
    const bool plain = !word.empty() && word.find_first_not_of(
                                            "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                            "0123456789@%+=:,./-_") == std::string_view::npos;
    if (i > 0) text += ' ';
    if (plain) {
      text += word;
      continue;
    }
    text += '\'';
    for (char c : word) text += c == '\'' ? std::string("'\"'\"'") : std::string(1, c);
    text += '\'';
  }
  return text;
}

int run(int argc, char** argv) {
  Options options = parse_options(argc, argv);
  if (options.version) {
    std::printf("fastllm-host %s\n", version_text());
    return kDone;
  }
  if (options.help) {
    std::fputs(help_text().c_str(), stdout);
    return kDone;
  }
  std::error_code missing;
  [[maybe_unused]] const auto folder = std::filesystem::current_path(missing);
  if (missing) {  // libraries below would end the process over it
    throw Error(Status::kNotFound,
                "expected a working directory that is there, found that it was removed; change to "
                "another one and start again");
  }
  if (options.processes > 1) return run_ranks(options, argc, argv);
  if (options.command == "plugins") return run_plugins(options);
  if (options.command == "schema") return run_schema(options);
  if (options.command == "prepare") return run_prepare(options);
  if (options.command == "plan") return run_plan(options, argc, argv);
  if (options.command == "compare") return run_compare(options);
  if (options.command == "evaluate") return run_evaluate(options, quoted(argc, argv));
  return run_train(options, quoted(argc, argv));
}

}  // namespace
}  // namespace fastllm::host

int main(int argc, char** argv) {
  using namespace fastllm;
  try {
    std::signal(SIGXFSZ,
                SIG_IGN);  // a limit of file sizes is a failed write like another: a sentence
    const int code = host::run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) {
      log::plain_error("cannot write to standard output: " + errno_text(errno) +
                       "; free space, or send it somewhere else");
      return host::kFailed;
    }
    return code;
  } catch (const host::UsageError& e) {
    log::plain_error(e.text);
    return host::kBadUsage;
  } catch (const host::ToldElsewhere& e) {
    return e.code;
  } catch (const distributed::ToldByAnother&) {
    return host::kFailed;
  } catch (const Error& e) {
    log::plain_error(e.what());
    return e.status() == Status::kCancelled ? host::kInterrupted : host::kFailed;
  } catch (const std::bad_alloc&) {
    log::plain_error(
        "out of memory: expected the run to fit this computer, found no memory left; use a smaller "
        "model or batch");
  } catch (const std::filesystem::filesystem_error& e) {
    log::plain_error(
        fmt::format("cannot work on {}: {}; check that it is there and its permissions",
                    e.path1().string(), e.code().message()));
  } catch (const std::exception& e) {
    log::plain_error(
        fmt::format("this is a fault of fastllm-host: {}; please report it", e.what()));
  }
  return host::kFailed;
}
