// Libraries of ours that only some runs need, opened at run time from beside the program, as plugins
// are: PREFIX/bin/program, PREFIX/lib/fastllm.
#pragma once

#include <string>

namespace fastllm::distributed {

struct LoadedLibrary {
  std::string file;  // "libfastllm_c10d.so"
  std::string
      symbol;  // a function of it: called with the version of this program, it gives a table
  std::string needed_by, remedy;  // for the error: "a run of several ranks", "start one rank"
};
// What its function gives; stays loaded. Throws Error with what to do when it cannot be had.
void* open_library(const LoadedLibrary& library);

}  // namespace fastllm::distributed
