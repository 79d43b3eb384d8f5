// A folder that is filled beside its final place and appears there at once, or never.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fastllm::data {

// Whether a folder is such work, of a run that is alive or was killed.
bool is_work_folder(const std::filesystem::path& path);

class WorkFolder {
 public:
  // Removes what runs that were killed left aside (nothing else of a similar name), and refuses while one is running for this target.
  // Refuses a target that exists and is not empty, unless `overwrite`; then too, unless all it
  // holds are names that `replaceable` accepts, so that a slip in a path cannot remove other files.
  WorkFolder(const std::filesystem::path& target, bool overwrite,
             bool (*replaceable)(const std::string& name));
  ~WorkFolder();  // without publish(): removes the work
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::filesystem::path& path() const { return work_; }
  // What killed runs left beside the target, and what became of it; a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  // To the disk, then to the final name.
  void publish();

 private:
  void make();
  bool mark() const;
  void clear_leftovers(const std::string& prefix);

  std::filesystem::path target_, work_;
  int lock_ = -1;  // on the folder aside: held, the run that made it is alive
  std::vector<std::string> notes_;
  bool overwrite_ = false, published_ = false;
};

}  // namespace fastllm::data
