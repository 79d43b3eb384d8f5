// What is at a path decides; a path that fits neither way is told what would.
#include "core/data/formats/open_memmap.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/data/formats/dataset_file.hpp"
#include "core/data/formats/dataset_file_format.hpp"
#include "core/data/formats/memmap.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

fs::path with(const fs::path& path, std::string_view suffix) {
  fs::path longer = path;
  longer += suffix;
  return longer;
}

}  // namespace

std::shared_ptr<const DocumentFile> open_memmap(const fs::path& path,
                                                const MemmapExpectations& expected) {
  std::error_code ignored;  // what cannot be looked at is told by whoever opens it
  if (is_dataset_file(path)) return std::make_shared<DatasetFile>(path, expected);
  bool pair = fs::exists(with(path, ".idx"), ignored) || fs::exists(with(path, ".bin"), ignored);
  if (!pair && path.extension() == dataset_file::kSuffix) {
    if (!path_exists(path)) {
      throw Error(Status::kNotFound,
                  fmt::format("expected the dataset {}, found no such file; check the path, or "
                              "prepare it",
                              path.string()));
    }
    return std::make_shared<DatasetFile>(path, expected);  // says what is wrong with it
  }
  if (fs::path longer = with(path, dataset_file::kSuffix); !pair && is_dataset_file(longer)) {
    throw Error(Status::kNotFound,
                fmt::format("expected the pair {0}.idx and {0}.bin, found {1}; give that path, "
                            "with its suffix",
                            path.string(), longer.string()));
  }
  return std::make_shared<MemmapDataset>(path, expected);
}

}  // namespace fastllm::data
