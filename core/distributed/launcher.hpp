// Starts the ranks of one computer: copies of a program with the variables that torchrun would set.
// Knows nothing of what they compute; ends them all when one fails, and never leaves one behind.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace fastllm::distributed {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;  // the program's path, then its arguments
  // After one has failed: for the others to say the same and end, before SIGTERM; then until SIGKILL.
  // One that was stopped (SIGSTOP) takes no other signal, and gets SIGKILL at once.
  std::chrono::milliseconds settle{5000}, grace{4000};
  // Exit codes that are no failure though not 0: the others end by themselves, however long it takes.
  std::vector<int> orderly_codes;
};

// Returns when all have ended: 0, or the exit code of the first that ended with another one (128 and
// the number of the signal that ended it). Their lines appear here, each with its rank in front unless it
// names it. SIGINT, SIGTERM and SIGHUP are passed on.
int launch_ranks(const LaunchOptions& options);

}  // namespace fastllm::distributed
