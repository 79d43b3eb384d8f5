#include "core/distributed/backend.hpp"

#include "core/distributed/loaded_library.hpp"

namespace fastllm::distributed {

Backend& load_backend() {
  static Backend& backend = *static_cast<Backend*>(open_library(
      {.file = "libfastllm_c10d.so",
       .symbol = FASTLLM_BACKEND_SYMBOL,
       .needed_by = "a run of several ranks",
       .remedy = "build or install it with the program (it needs LibTorch), or start one rank"}));
  return backend;
}

}  // namespace fastllm::distributed
