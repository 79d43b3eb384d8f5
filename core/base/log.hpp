// The one log of the process: standard output, and the run's file once there is one.
// Line: "YYYY-MM-DD HH:MM:SS,mmm [Rank r] text" (docs/compatibility.md); rank only when there are several.
// Any thread. Takes finished text; callers format with fmt.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace fastllm::log {

enum class Level { kDebug = 0, kInfo = 1, kWarning = 2, kError = 3, kFatal = 4 };

struct Options {
  bool timestamps = true;
  int rank = 0, world_size = 1;  // to standard output, other ranks than 0 speak from warning up
  Level level = Level::kInfo;
};

void configure(const Options& options);
// Also writes to this file from now on (appends). Empty: stops writing to one.
void set_file(const std::filesystem::path& path);

void write(Level level, std::string_view text);
inline void debug(std::string_view text) { write(Level::kDebug, text); }
inline void info(std::string_view text) { write(Level::kInfo, text); }
inline void warning(std::string_view text) { write(Level::kWarning, text); }
inline void error(std::string_view text) { write(Level::kError, text); }
void flush();

// How a program ends badly: "error: text" on standard error, every line of it, and in the run's file with the time.
void plain_error(std::string_view text);

// A line on a terminal that is drawn over in place ("step 12/300 ...") and never reaches the file.
// Of rank 0 alone; does nothing when standard error is no terminal. Empty text clears it.
void progress(std::string_view text);

}  // namespace fastllm::log
