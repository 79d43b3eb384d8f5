#include "core/base/log.hpp"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::log {
namespace {

struct State {
  std::mutex mutex;
  Options options;
  std::filesystem::path file;
  std::shared_ptr<spdlog::logger> logger;
  bool progress_shown = false;
};

State& state() {
  static State* s = new State;  // never destroyed: threads may log while statics go down
  return *s;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kFatal:
      return spdlog::level::critical;
  }
  return spdlog::level::info;
}

std::string pattern(const Options& options) {
  std::string text;
  if (options.timestamps) text += "%Y-%m-%d %H:%M:%S,%e ";
  if (options.world_size > 1) text += "[Rank " + std::to_string(options.rank) + "] ";
  return text + "%v";
}

// Needs the lock.
void rebuild(State& s) {
  auto output = std::make_shared<spdlog::sinks::stdout_sink_mt>();
  // One rank tells what all do; the others' standard output is most often the same.
  if (s.options.rank != 0) output->set_level(to_spdlog(Level::kWarning));
  std::vector<spdlog::sink_ptr> sinks{output};
  if (!s.file.empty()) {
    sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(s.file.string(), false));
  }
  s.logger = std::make_shared<spdlog::logger>("fastllm", sinks.begin(), sinks.end());
  s.logger->set_pattern(pattern(s.options));
  s.logger->set_level(to_spdlog(s.options.level));
  s.logger->flush_on(spdlog::level::info);
}

// Needs the lock.
void clear_progress(State& s) {
  if (!s.progress_shown) return;
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, "\r\x1b[K", 4);
  s.progress_shown = false;
}

}  // namespace

void configure(const Options& options) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  s.options = options;
  rebuild(s);
}

void set_file(const std::filesystem::path& path) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  s.file = path;
  try {
    rebuild(s);
  } catch (const spdlog::spdlog_ex&) {
    s.file.clear();
    throw Error(Status::kUnavailable, "cannot write the log file " + path.string() + ": " +
                                          errno_text(errno) +
                                          "; choose another run.experiment_dir");
  }
}

void write(Level level, std::string_view text) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  if (!s.logger) rebuild(s);
  clear_progress(s);
  s.logger->log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

void flush() {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  if (s.logger) s.logger->flush();
}

void plain_error(std::string_view text) {
  auto& s = state();
  std::lock_guard lock(s.mutex);
  clear_progress(s);
  if (s.logger) s.logger->flush();
  std::fprintf(stderr, "error: %.*s\n", int(text.size()), text.data());
  if (s.file.empty()) return;
  auto file = std::make_shared<spdlog::sinks::basic_file_sink_mt>(s.file.string(), false);
  spdlog::logger logger("fastllm", file);
  logger.set_pattern(pattern(s.options));
  logger.error(spdlog::string_view_t(text.data(), text.size()));
}

void progress(std::string_view text) {
  static const bool terminal = isatty(STDERR_FILENO) != 0;
  if (!terminal) return;
  auto& s = state();
  std::lock_guard lock(s.mutex);
  if (s.options.rank != 0) return;  // they would draw over each other
  if (text.empty()) return clear_progress(s);
  winsize size{};
  size_t width =
      ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  std::string line = "\r";
  line += text.substr(0, width);
  line += "\x1b[K";
  [[maybe_unused]] auto written = ::write(STDERR_FILENO, line.data(), line.size());
  s.progress_shown = true;
}

}  // namespace fastllm::log
