// The data files that a run has open: one that several definitions name is opened, checked and hashed
// once, as long as anyone holds it and it stays as it was. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/base/file.hpp"
#include "core/data/formats/document_file.hpp"

namespace fastllm::data {

class OpenFiles {
 public:
  // As open_memmap.
  IndexedPointer open(const std::filesystem::path& path, const MemmapExpectations& expected = {});
  int64_t opened() const { return opened_; }  // files, or pairs, so far

 private:
  // Of what may be there: the path itself, its .idx, its .bin.
  using States = std::array<std::optional<FileState>, 3>;
  struct Known {
    States states;
    std::weak_ptr<const DocumentFile> file;
  };
  std::map<std::string, Known> known_;  // by path, as given: it stands in messages
  int64_t opened_ = 0;
};

}  // namespace fastllm::data
