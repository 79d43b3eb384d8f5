// fastllm-host --nproc N ...: N processes of the rest of the command line.
#include <filesystem>
#include <string>
#include <vector>

#include "apps/host/commands/commands.hpp"
#include "core/distributed/environment.hpp"
#include "core/distributed/launcher.hpp"

namespace fastllm::host {

int run_ranks(const Options& options, int argc, char** argv) {
  const auto outer = distributed::LaunchEnvironment::from_process();
  if (outer.world_size.value_or(1) > 1) {
    throw UsageError{"expected either --nproc or a launcher, found both (" + outer.world_size_name +
                     " is " + std::to_string(*outer.world_size) +
                     "); leave --nproc out, or unset it"};
  }
  distributed::LaunchOptions launch;
  launch.ranks = options.processes;
  launch.command = {std::filesystem::read_symlink("/proc/self/exe")};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--nproc") {
      ++i;  // its value
    } else if (!word.starts_with("--nproc=")) {
      launch.command.push_back(word);
    }
  }
  launch.orderly_codes = {kInterrupted, kDiverged};
  launch.interrupted_code = kInterrupted;
  return distributed::launch_ranks(launch);
}

}  // namespace fastllm::host
