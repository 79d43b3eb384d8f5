// One save from first byte to name: write aside, list, read back, mark, sync, rename.
#include "core/checkpoint/saver.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/checkpoint/finder.hpp"
#include "core/checkpoint/manifest.hpp"
#include "core/checkpoint/placement.hpp"
#include "core/checkpoint/tensor_view.hpp"
#include "core/distributed/communicator.hpp"
#include "core/distributed/failure.hpp"
#include "core/shard/elements.hpp"

namespace fastllm::checkpoint {
namespace {

namespace fs = std::filesystem;
using config::Node;

constexpr int64_t kOverheadBytes = 64 << 10;  // headers, metadata, manifest, folders

std::string bytes_text(int64_t bytes) { return with_commas(double(bytes), 0) + " bytes"; }

// nullopt: the system does not say.
std::optional<int64_t> free_bytes(const fs::path& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) return std::nullopt;
  return int64_t(info.f_bavail) * int64_t(info.f_frsize);
}

// Where an unfinished save may lie: {experiment}/.saving, or a hidden folder in `base` where that is
// a file system of its own.
fs::path aside_within(const fs::path& base) { return base / ".saving"; }

bool on_one_filesystem(const fs::path& a, const fs::path& b) {
  struct stat a_info {
  }, b_info{};
  return ::stat(a.c_str(), &a_info) == 0 && ::stat(b.c_str(), &b_info) == 0 &&
         a_info.st_dev == b_info.st_dev;
}

// Removes the folder when it goes, or what the finished save replaced in its place.
class UnfinishedDirectory {
 public:
  explicit UnfinishedDirectory(fs::path path) : path_(std::move(path)) { make_directories(path_); }
  ~UnfinishedDirectory() {
    std::error_code ignored;
    if (!in_use_) fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  // Other ranks work in it. Were it to go under them, they would tell of files that are missing,
  // and not of what went wrong here; the next remove_leftovers() takes it.
  void in_use_by_others(bool in_use) { in_use_ = in_use; }

 private:
  fs::path path_;
  bool in_use_ = false;
};

// One run of a parameter by name, in the type of files: as it lies in memory, or widened a piece at
// a time.
void write_run(Writer& writer, const FlatState& state, const model::Parameter& parameter,
               const Run& run) {
  const DLDataType type = state.type_at(run.flat), file_type = state.file_type();
  if (same_dtype(type, file_type)) {
    const bool whole = run.count() == parameter.elements();
    TensorView view(state.at(run.flat), type, whole ? parameter.shape : run.shape);
    const fastllm_box box = run.box();
    return writer.write(state.name, parameter.name, whole ? nullptr : &box, view.get());
  }
  constexpr int64_t kChunk = 1 << 20;  // elements
  const int64_t length = run.shape.back(), rows = run.count() / length;
  std::vector<float> wide(size_t(std::min(length, kChunk)));
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t at = 0; at < length; at += kChunk) {
      const int64_t count = std::min(kChunk, length - at);
      shard::copy(wide.data(), kFloat32, state.at(run.flat + row * length + at), type, count);
      const int64_t shape[] = {count}, strides[] = {1};
      const fastllm_box box{1, run.offset + row * (rows > 1 ? run.strides[0] : 0) + at, shape,
                            strides};
      TensorView view(wide.data(), kFloat32, {count});
      writer.write(state.name, parameter.name, &box, view.get());
    }
  }
}

// A shard at a time, or box by box where the format knows parameters only or the state is in parts.
void write_states(const SaveRequest& request, Writer& writer) {
  const FlatStates& states = request.states;
  const bool shards = request.format.caps() & FASTLLM_CAN_SHARDS;
  const auto whole = [&](const FlatState& state) { return shards && state.flat; };
  // State of frozen parameters is not there. A copy of a tied stage is its owner's to write, unless
  // the file is this rank's shard.
  const auto each_run = [&](const FlatState& state, auto&& body) {
    for_each_piece(states, [&](const shard::Placed& placed, int group, int piece,
                               const model::Parameter& parameter) {
      const auto runs =
          runs_of(*states.layout, states.rank, state.name, placed.stage, group, piece);
      if ((shards || !placed.copy) && !runs.empty()) body(parameter, runs);
    });
  };
  for (const FlatState& state : states.states) {
    if (whole(state)) {
      writer.declare(
          state.name,
          {.name = "", .flags = 0, .dtype = state.flat->dtype, .shape = {state.flat->shape[0]}});
      continue;
    }
    each_run(state, [&](const model::Parameter& parameter, const std::vector<Run>&) {
      writer.declare(state.name, {.name = parameter.name,
                                  .flags = 0,
                                  .dtype = state.file_type(),
                                  .shape = parameter.shape});
    });
  }
  for (const FlatState& state : states.states) {
    if (whole(state)) {
      writer.write_shard(state.name, state.flat);
      continue;
    }
    each_run(state, [&](const model::Parameter& parameter, const std::vector<Run>& runs) {
      for (const Run& run : runs) write_run(writer, state, parameter, run);
    });
  }
}

// Reads the two ends of some runs back by name and compares the bits: a wrong layout, a faulty disk
// or memory shows here and not as a strange loss after a resume.
void read_back_samples(const SaveRequest& request, const fs::path& directory) {
  constexpr int64_t kSampleElements = 64;
  constexpr size_t kRunsPerState = 8;
  if (!(request.format.caps() & FASTLLM_CAN_LOAD) || !(request.format.caps() & FASTLLM_CAN_SLICE))
    return;
  const FlatStates& states = request.states;
  const std::unique_ptr<Reader> reader = request.format.open(directory);
  for (const FlatState& state : states.states) {
    std::vector<std::pair<const model::Parameter*, Run>> runs;
    for_each_piece(states, [&](const shard::Placed& placed, int group, int piece,
                               const model::Parameter& parameter) {
      for (Run& run : runs_of(*states.layout, states.rank, state.name, placed.stage, group, piece))
        runs.emplace_back(&parameter, std::move(run));
    });
    const size_t step = std::max<size_t>(1, runs.size() / kRunsPerState);
    for (size_t r = 0; r < runs.size(); r += step) {
      const auto& [parameter, run] = runs[r];
      const int64_t length = run.shape.back(), count = std::min(length, kSampleElements);
      const int64_t last_row = run.shape.size() > 1 ? (run.shape[0] - 1) * run.strides[0] : 0;
      const std::pair<int64_t, int64_t> samples[] = {
          {run.offset, run.flat},
          {run.offset + last_row + length - count, run.flat + run.count() - count}};
      for (const auto& [global, position] : samples) {
        const DLDataType type = state.type_at(position);
        std::vector<char> found(size_t(count * state.file_bytes()));
        TensorView view(found.data(), state.file_type(), {count});
        const int64_t shape[] = {count}, strides[] = {1};
        const fastllm_box box{1, global, shape, strides};
        reader->read(state.name, parameter->name, &box, view.get());
        std::vector<float> wide;
        if (!same_dtype(type, state.file_type())) {
          wide.resize(size_t(count));
          shard::copy(wide.data(), kFloat32, state.at(position), type, count);
        }
        const void* const held =
            wide.empty() ? static_cast<void*>(state.at(position)) : wide.data();
        if (std::memcmp(found.data(), held, found.size()) == 0) continue;
        throw Error(Status::kDataLoss,
                    fmt::format("expected {} of {} to read back as it is in memory from {}, found "
                                "other bytes from element {} "
                                "on; the disk, the memory or the format is faulty",
                                state.name, parameter->name, directory.string(), global));
      }
    }
  }
}

// Gives the finished folder its name. What bears it already gives way in one step where the file
// system can do that.
void publish(const fs::path& finished, const fs::path& target) {
  if (fs::symlink_status(target).type() != fs::file_type::not_found) {
    const std::string lacks =
        fs::is_directory(target) ? what_it_lacks(target) : "everything: it is no folder";
    log::warning(lacks.empty() ? fmt::format("Replacing the complete save {}", target.string())
                               : fmt::format("Replacing the incomplete {}: it lacks {}",
                                             target.string(), lacks));
    if (::renameat2(AT_FDCWD, finished.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
      if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP)
        throw fs::filesystem_error("cannot exchange", finished, target,
                                   std::error_code(errno, std::generic_category()));
      fs::path old = finished;
      old += ".replaced";
      fs::rename(target, old);
      std::error_code ignored;
      try {
        fs::rename(finished, target);
      } catch (...) {
        fs::rename(old, target, ignored);
        throw;
      }
      fs::remove_all(old, ignored);
    }
  } else {
    fs::rename(finished, target);
  }
  sync_path(target.parent_path());
}

}  // namespace

int64_t bytes_to_save(const FlatStates& states) {
  int64_t bytes = kOverheadBytes;
  for (const FlatState& state : states.states)
    for (int rank = 0; rank < states.layout->world().size(); ++rank)
      bytes += states.layout->state_elements(rank, state.name) * state.file_bytes();
  return bytes;
}

void remove_leftovers(const fs::path& aside) {
  std::error_code code;
  if (fs::is_symlink(fs::symlink_status(aside, code))) {
    throw Error(Status::kInvalid,
                fmt::format("expected {} to be a folder of this experiment alone, found a link to "
                            "somewhere else; remove the link",
                            aside.string()));
  }
  for (fs::directory_iterator entries(aside, code), end; !code && entries != end;
       entries.increment(code)) {
    log::warning(
        fmt::format("Removing {}, left by a save that did not finish", entries->path().string()));
    std::error_code failed;
    fs::remove_all(entries->path(), failed);
    if (failed)
      log::warning(
          fmt::format("Could not remove {}: {}", entries->path().string(), failed.message()));
  }
}

namespace {

// One save by one rank, in steps between which all ranks meet.
class Saving {
 public:
  // what: for those who wait for a rank.
  Saving(const SaveRequest& request, const std::string& what)
      : request_(request), what_(what), target_(request.base / std::to_string(request.iteration)) {}

  fs::path run() {
    require_parallel();
    first_does("the unfinished folder", [&] { open(); });
    if (directory_.empty()) find_folder();
    write();
    if (request_.read_back) read_back_samples(request_, directory_);
    meet("what was written");
    first_does("the finished checkpoint", [&] { publish_all(); });
    return target_;
  }

 private:
  void meet(const char* place) const {
    if (request_.meet) request_.meet(fmt::format("{}: {}", what_, place));
  }

  bool first() const { return request_.states.rank == 0; }

  // Rank 0 does it, the others wait.
  template <class Body>
  void first_does(const char* place, Body&& body) {
    if (first()) body();
    meet(place);
  }

  bool several() const { return request_.states.layout->world().size() > 1; }

  void require_parallel() const {
    if (!several() || (request_.format.caps() & FASTLLM_CAN_PARALLEL)) return;
    throw Error(Status::kInvalid,
                fmt::format("expected a checkpoint format that several ranks can write at once, "
                            "found {}, which cannot; use distributed, or one rank",
                            request_.format.type()));
  }

  std::string name() const {
    return fmt::format("{}-{}", request_.base.filename().string(), request_.iteration);
  }

  void open() {
    const int64_t needed = bytes_to_save(request_.states);
    make_directories(request_.base);
    make_directories(request_.aside);
    const bool within = !on_one_filesystem(request_.base, request_.aside);
    const fs::path aside = within ? aside_within(request_.base) : request_.aside;
    remove_leftovers(aside);
    if (const auto free = free_bytes(request_.base); free && *free < needed) {
      throw Error(Status::kUnavailable, fmt::format("expected room for {}, found {} free; free "
                                                    "some, or choose another run.experiment_dir",
                                                    bytes_text(needed), bytes_text(*free)));
    }
    unfinished_.emplace(aside / name());
    unfinished_->in_use_by_others(several());
    directory_ = unfinished_->path();
  }

  // Rank 0 chose the place, by what the file systems look like from there.
  void find_folder() {
    const fs::path places[] = {request_.aside, aside_within(request_.base)};
    for (const fs::path& place : places) {
      directory_ = place / name();
      if (fs::is_directory(directory_)) return;
    }
    throw Error(Status::kUnavailable,
                fmt::format("expected the folder {} that rank 0 made in {} or {}, found it in "
                            "neither; choose a run.experiment_dir that is the same folder for all "
                            "ranks",
                            name(), places[0].string(), places[1].string()));
  }

  void write() {
    Node metadata = request_.metadata;
    metadata.set_child("format", Node::text(request_.format.type()));
    Node& shards = metadata.set_child("shards", Node::list());
    for (const FlatState& state : request_.states.states) shards.append(Node::text(state.name));
    const std::unique_ptr<Writer> writer =
        request_.format.create(directory_, metadata, request_.states.rank);
    write_states(request_, *writer);
    if (!first()) writer->finish(true);
    meet("the files of all ranks but the first");
    first_does("the files of all ranks", [&] { writer->finish(true); });
  }

  void publish_all() {
    unfinished_->in_use_by_others(false);
    for (const auto& [name, content] : request_.extra_files)
      write_file_atomic(directory_ / name, content);
    write_file_atomic(directory_ / kManifestName, manifest_text(make_manifest(directory_)));
    write_file_atomic(directory_ / kOkName, "");
    sync_path(directory_);
    publish(directory_, target_);
  }

  const SaveRequest& request_;
  const std::string& what_;
  const fs::path target_;
  std::optional<UnfinishedDirectory> unfinished_;  // of rank 0
  fs::path directory_;
};

// What to do about a file that could not be written, by what the system says; empty: nothing known.
std::string advice(const SaveRequest& request, const Error& e) {
  if (e.status() != Status::kUnavailable) return "";
  const std::string_view text = e.what();
  const auto says = [&](int code) { return text.find(errno_text(code)) != text.npos; };
  std::string todo;
  if (says(ENOSPC) || says(EDQUOT)) {  // another program took the room meanwhile
    todo = bytes_text(bytes_to_save(request.states)) + " are needed in all";
    const auto free = free_bytes(request.base);
    if (free) todo += fmt::format(", {} are free now", bytes_text(*free));
    if (free && request.states.layout->world().size() == 1)
      todo += " that the unfinished save is removed";
    todo += "; free some";
  } else if (says(EFBIG)) {
    todo = "raise the limit on the size of files (ulimit -f)";
  } else if (says(EROFS)) {
    todo = "mount its file system for writing again";
  } else if (says(EACCES) || says(EPERM)) {
    todo = "give this user the permission to write there";
  } else if (says(EIO) || says(ESTALE)) {
    todo = "see to the disk, or the network to it";
  } else {
    return "";
  }
  const bool several = request.states.layout->world().size() > 1;
  return fmt::format("; {}, or choose another run.experiment_dir{}", todo,
                     several ? "; the next start removes what is left of this save" : "");
}

}  // namespace

fs::path save(const SaveRequest& request) {
  const std::string what =
      fmt::format("saving iteration {} in {}", request.iteration, request.base.string());
  try {
    return Saving(request, what).run();
  } catch (const distributed::PeerFailure&) {
    throw;  // not ours
  } catch (const distributed::CommunicationError&) {
    throw;
  } catch (const Error& e) {
    throw Error(e.status(), what + ": " + e.what() + advice(request, e));
  } catch (const fs::filesystem_error& e) {
    throw Error(Status::kUnavailable, fmt::format("{}: cannot work on {}: {}", what,
                                                  e.path1().string(), e.code().message()));
  }
}

}  // namespace fastllm::checkpoint
