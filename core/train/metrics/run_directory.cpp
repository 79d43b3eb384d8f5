#include "core/train/metrics/run_directory.hpp"

#include <fmt/format.h>

#include <iterator>
#include <system_error>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"

namespace fastllm::train {

namespace fs = std::filesystem;

RunDirectory::RunDirectory(const fs::path& experiment, int world_size)
    : experiment_(fs::absolute(experiment).lexically_normal()), world_size_(world_size) {
  fs::path runs = experiment_ / "runs";
  make_directories(runs);
  // The number of entries, as the reference counts; the next free one when a folder was deleted by
  // hand.
  number_ = int(std::distance(fs::directory_iterator(runs), fs::directory_iterator{}));
  std::error_code code;
  while (!fs::create_directory(runs / std::to_string(number_), code)) {
    if (code) {
      throw Error(Status::kUnavailable,
                  fmt::format("cannot make the run folder {}: {}",
                              (runs / std::to_string(number_)).string(), code.message()));
    }
    ++number_;
  }
  run_ = runs / std::to_string(number_);
  make_directories(run_ / "logs");
  metrics_.open(metrics_file(), std::ios::app);
  if (!metrics_)
    throw Error(Status::kUnavailable, fmt::format("cannot write {}", metrics_file().string()));
}

RunDirectory::RunDirectory(const fs::path& experiment, int world_size, int rank, int number)
    : experiment_(fs::absolute(experiment).lexically_normal()),
      run_(experiment_ / "runs" / std::to_string(number)),
      number_(number),
      rank_(rank),
      world_size_(world_size) {
  if (!fs::is_directory(run_ / "logs")) {
    throw Error(Status::kUnavailable,
                fmt::format("expected the run folder {} that rank 0 made, found none; choose a "
                            "run.experiment_dir that is the same folder for all ranks",
                            run_.string()));
  }
}

fs::path RunDirectory::log_file() const {
  size_t digits = world_size_ > 1 ? std::to_string(world_size_ - 1).size() : 0;
  return run_ / "logs" / fmt::format("logs_rank_{:0{}}.txt", rank_, digits);
}

fs::path RunDirectory::metrics_file() const { return run_ / "metrics.jsonl"; }

void RunDirectory::write_artifact(const std::string& name, std::string_view content) const {
  const fs::path folder = run_ / "artifacts" / std::to_string(rank_);
  make_directories(folder);
  log::info(fmt::format("Saving artifact to {}", (folder / name).string()));
  write_file_atomic(folder / name, content);
}

void RunDirectory::write_metrics(const config::Node& object) {
  metrics_ << config::to_json(object) << '\n' << std::flush;
  if (!metrics_) {
    throw Error(Status::kUnavailable,
                fmt::format("cannot write {}; is the disk full?", metrics_file().string()));
  }
}

}  // namespace fastllm::train
