#include "core/distributed/loaded_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "core/base/error.hpp"
#include "core/base/version.hpp"

namespace fastllm::distributed {

void* open_library(const LoadedLibrary& wanted) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path path =
      program.parent_path().parent_path() / "lib/fastllm" / wanted.file;
  auto fail = [&](const std::string& why) {
    throw Error(Status::kUnavailable,
                fmt::format("{} needs {}, which cannot be used: {}; {}", wanted.needed_by,
                            path.string(), why, wanted.remedy));
  };
  // Never closed: LibTorch and CUDA cannot be unloaded.
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) fail(::dlerror());
  void* const entry = ::dlsym(library, wanted.symbol.c_str());
  if (!entry) fail("it has no function " + wanted.symbol);
  void* const table = reinterpret_cast<void* (*)(const char*)>(entry)(version_text());
  if (!table) fail(fmt::format("it is of another version than this program ({})", version_text()));
  return table;
}

}  // namespace fastllm::distributed
