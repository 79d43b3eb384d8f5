#include "core/data/formats/open_files.hpp"

#include "core/base/error.hpp"
#include "core/data/formats/open_memmap.hpp"

namespace fastllm::data {
namespace {

std::optional<FileState> state_if_there(std::filesystem::path path, const char* suffix) {
  try {
    return state_of(path += suffix);
  } catch (const Error&) {
    return std::nullopt;  // told by whoever opens it
  }
}

}  // namespace

IndexedPointer OpenFiles::open(const std::filesystem::path& path,
                               const MemmapExpectations& expected) {
  // Looked at before opening: what changes in between is another state the next time.
  const States states{state_if_there(path, ""), state_if_there(path, ".idx"),
                      state_if_there(path, ".bin")};
  Known& known = known_[path.string()];
  if (auto file = known.file.lock(); file && known.states == states) {
    file->expect(expected);
    return file;
  }
  auto file = open_memmap(path, expected);
  ++opened_;
  known = {states, file};
  return file;
}

}  // namespace fastllm::data
