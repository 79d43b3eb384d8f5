// A folder that is filled beside its final place and appears there at once, or never.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fastllm::data {

class WorkFolder {
 public:
  // Refuses a target that exists and is not empty, unless `overwrite`; then too, unless all it
  // holds are names that `replaceable` accepts, so that a slip in a path cannot remove other files.
  WorkFolder(const std::filesystem::path& target, bool overwrite,
             bool (*replaceable)(const std::string& name));
  ~WorkFolder();  // without publish(): removes the work
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::filesystem::path& path() const { return work_; }
  // Folders that interrupted runs left beside the target.
  const std::vector<std::filesystem::path>& leftovers() const { return leftovers_; }
  // To the disk, then to the final name.
  void publish();

 private:
  std::filesystem::path target_, work_;
  std::vector<std::filesystem::path> leftovers_;
  bool overwrite_ = false, published_ = false;
};

}  // namespace fastllm::data
