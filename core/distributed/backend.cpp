#include "core/distributed/backend.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "core/base/error.hpp"
#include "core/base/version.hpp"

namespace fastllm::distributed {
namespace {

// Beside the program, as plugins are: PREFIX/bin/program, PREFIX/lib/fastllm.
std::filesystem::path library_path() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path() / "lib/fastllm/libfastllm_c10d.so";
}

Backend& open_library() {
  const std::filesystem::path path = library_path();
  auto fail = [&](const std::string& why) {
    throw Error(Status::kUnavailable,
                fmt::format("a run of several ranks needs {}, which cannot be used: {}; build or "
                            "install it with the program (it needs LibTorch), or start one rank",
                            path.string(), why));
  };
  // Never closed: LibTorch cannot be unloaded.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) fail(::dlerror());
  void* const entry = ::dlsym(library, FASTLLM_BACKEND_SYMBOL);
  if (!entry) fail("it has no function " FASTLLM_BACKEND_SYMBOL);
  Backend* const backend = reinterpret_cast<BackendEntry*>(entry)(version_text());
  if (!backend)
    fail(fmt::format("it is of another version than this program ({})", version_text()));
  return *backend;
}

}  // namespace

Backend& load_backend() {
  static Backend& backend = open_library();
  return backend;
}

}  // namespace fastllm::distributed
