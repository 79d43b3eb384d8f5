// Preloaded into a program (LD_PRELOAD), sends it a signal at the moment when it opens a certain file:
// a process is killed or stopped at a known place without a word in the program about it.
//   FAULT_FILE    what the file's path holds; FAULT_SIGNAL  number of the signal
//   FAULT_RANK    of which rank (RANK, as the launcher sets it)
//   FAULT_WRITING 1: only at opening to write, 0: only to read
// Once in a process.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/types.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic_flag g_sent = ATOMIC_FLAG_INIT;

bool is(const char* name, const char* other) {
  const char* const value = std::getenv(name);
  return value && other && std::strcmp(value, other) == 0;
}

void look_at(const char* path, int flags) {
  const char* const file = std::getenv("FAULT_FILE");
  if (!file || !std::strstr(path, file) || !is("FAULT_RANK", std::getenv("RANK"))) return;
  const bool writing = (flags & O_ACCMODE) != O_RDONLY;
  if (is("FAULT_WRITING", writing ? "0" : "1")) return;
  if (!g_sent.test_and_set()) ::raise(std::atoi(std::getenv("FAULT_SIGNAL")));
}

using Open = int(const char*, int, mode_t);

int open_as(const char* name, const char* path, int flags, mode_t mode) {
  look_at(path, flags);
  return reinterpret_cast<Open*>(::dlsym(RTLD_NEXT, name))(path, flags, mode);
}

mode_t mode_of(int flags, va_list arguments) {
  const bool makes = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return makes ? mode_t(va_arg(arguments, int)) : 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_as("open", path, flags, mode);
}

extern "C" __attribute__((visibility("default"))) int open64(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_of(flags, arguments);
  va_end(arguments);
  return open_as("open64", path, flags, mode);
}
