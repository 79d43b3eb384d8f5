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
  // How long the others have to end by themselves, before SIGTERM; then until SIGKILL. Those that were
  // stopped (SIGSTOP) take no other signal: SIGKILL, and at once when no others are left.
  std::chrono::milliseconds after_failure{5000};  // of one: it has told them, or they find out
  std::chrono::milliseconds after_end{60000};  // of one that came to its end, or to an orderly one
  std::chrono::milliseconds grace{4000};
  std::vector<int> orderly_codes;  // that are no failure though not 0
  int interrupted_code =
      1;  // of a rank that a signal ended which was passed on, too early to heed it
};

// Returns when all have ended: the exit code of the first that failed (128 and the number of the signal
// that ended it), else an orderly one, else 0. Their lines appear here, each with its rank in front unless it
// names it; Error when they cannot be written. SIGINT, SIGTERM and SIGHUP are passed on.
int launch_ranks(const LaunchOptions& options);

}  // namespace fastllm::distributed
