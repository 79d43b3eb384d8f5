// Spans of time, by thread, for a look at where a step's time goes (docs/users/training.md). Off,
// a span is one branch on a flag; on, it is two readings of the clock and an entry under a lock.
//
//   profile::Span span("forward", layer.name, micro_batch);   // until the end of the block
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fastllm::profile {

struct Event {
  const char* category = "";  // "forward", "wait", ...: a literal
  std::string name;
  int64_t number = -1, micro_batch = -1;  // of what is named; -1: none
  int64_t begin_ns = 0, duration_ns = 0;  // begin: since start()
  int thread = 0;                         // 0: the one that called start(); others as they come
};

// Whether spans are kept. Changed by start() and stop() alone.
extern std::atomic<bool> recording;

// All on one thread. Events that end after stop() are dropped.
void start();
// What ended since start() or the last take(); recording goes on, with the same clock and the same
// numbers of threads. By thread, then begin, longer ones first: a span before those inside.
std::vector<Event> take();
std::vector<Event> stop();  // as take(), and no more

class Span {
 public:
  Span(const char* category, std::string_view name, int64_t number = -1, int64_t micro_batch = -1) {
    if (recording.load(std::memory_order_relaxed)) [[unlikely]]
      begin(category, name, number, micro_batch);
  }
  ~Span() {
    if (begin_ns_ >= 0) [[unlikely]]
      end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void begin(const char* category, std::string_view name, int64_t number, int64_t micro_batch);
  void end() noexcept;

  int64_t begin_ns_ = -1;  // of the clock
  const char* category_ = nullptr;
  std::string_view name_;  // must live as long as the span
  int64_t number_ = -1, micro_batch_ = -1;
};

// The trace format that Chrome's about:tracing, Perfetto and others read: complete events in
// microseconds, one process a rank.
std::string chrome_trace(const std::vector<Event>& events, int rank);
// What each kind of span took, itself and with all inside it, most first. width: of a line.
std::string averages_table(const std::vector<Event>& events, int width);
// One line an event, in order of their beginning.
std::string event_table(const std::vector<Event>& events, int width);

}  // namespace fastllm::profile
