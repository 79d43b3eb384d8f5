#include "core/base/profile.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <numeric>
#include <tuple>
#include <utility>

namespace fastllm::profile {

std::atomic<bool> recording{false};

namespace {

struct State {
  std::mutex mutex;
  std::vector<Event> events;
  int64_t started_ns = 0;
  int threads = 0;  // that have recorded something since start()
  int64_t generation = 0;
};

State& state() {
  static State* s = new State;  // never destroyed: threads may end a span while statics go down
  return *s;
}

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Number of this thread in this recording. Needs the lock.
int thread_number(State& s) {
  thread_local int64_t generation = -1;
  thread_local int number = 0;
  if (generation != s.generation) {
    generation = s.generation;
    number = s.threads++;
  }
  return number;
}

// "forward block_0"
std::string label(const Event& e) { return fmt::format("{} {}", e.category, e.name); }

// JSON text; what is no printable ASCII is left out, names are identifiers.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (c >= 32 && c < 127) out += c;
  }
  return out + '"';
}

std::string cut(const std::string& text, size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 3) + "...";
}

// By event, what is not spent in spans inside it, which follow it.
std::vector<int64_t> own_times(const std::vector<Event>& events) {
  std::vector<int64_t> own(events.size());
  std::vector<size_t> open;
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& e = events[i];
    own[i] = e.duration_ns;
    while (!open.empty() &&
           (events[open.back()].thread != e.thread ||
            events[open.back()].begin_ns + events[open.back()].duration_ns <= e.begin_ns))
      open.pop_back();
    if (!open.empty()) own[open.back()] -= e.duration_ns;
    open.push_back(i);
  }
  return own;
}

constexpr double kMs = 1e-6;  // of a nanosecond

}  // namespace

void start() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  s.events.clear();
  s.started_ns = now_ns();
  s.threads = 0;
  ++s.generation;
  thread_number(s);  // 0
  recording.store(true);
}

std::vector<Event> stop() {
  recording.store(false);
  return take();
}

std::vector<Event> take() {
  State& s = state();
  std::lock_guard lock(s.mutex);
  std::vector<Event> events = std::exchange(s.events, {});
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return std::tuple(a.thread, a.begin_ns, -a.duration_ns) <
           std::tuple(b.thread, b.begin_ns, -b.duration_ns);
  });
  return events;
}

void Span::begin(const char* category, std::string_view name, int64_t number, int64_t micro_batch) {
  category_ = category;
  name_ = name;
  number_ = number;
  micro_batch_ = micro_batch;
  begin_ns_ = now_ns();
}

void Span::end() noexcept {
  const int64_t end_ns = now_ns();
  if (!recording.load(std::memory_order_relaxed)) return;
  try {
    State& s = state();
    std::lock_guard lock(s.mutex);
    if (begin_ns_ < s.started_ns) return;  // of an earlier recording
    s.events.push_back({category_, std::string(name_), number_, micro_batch_,
                        begin_ns_ - s.started_ns, end_ns - begin_ns_, thread_number(s)});
  } catch (const std::bad_alloc&) {
    // An event less.
  }
}

std::string chrome_trace(const std::vector<Event>& events, int rank) {
  int threads = 0;
  for (const Event& e : events) threads = std::max(threads, e.thread + 1);
  std::string text = "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n";
  for (int t = 0; t < threads; ++t) {
    text += fmt::format(
        "{{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": {}, \"tid\": {}, \"args\": "
        "{{\"name\": \"{}\"}}}},\n",
        rank, t, t == 0 ? "main" : fmt::format("worker {}", t));
  }
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& e = events[i];
    std::string arguments;
    if (e.number >= 0) arguments += fmt::format("\"number\": {}", e.number);
    if (e.micro_batch >= 0)
      arguments +=
          fmt::format("{}\"micro_batch\": {}", arguments.empty() ? "" : ", ", e.micro_batch);
    text += fmt::format(
        "{{\"ph\": \"X\", \"cat\": {}, \"name\": {}, \"pid\": {}, \"tid\": {}, \"ts\": {:.3f}, "
        "\"dur\": {:.3f}, \"args\": {{{}}}}}{}\n",
        quoted(e.category), quoted(e.name), rank, e.thread, double(e.begin_ns) / 1000,
        double(e.duration_ns) / 1000, arguments, i + 1 < events.size() ? "," : "");
  }
  // The list of metadata alone ends in a comma.
  if (events.empty()) return "{\"displayTimeUnit\": \"ms\", \"traceEvents\": []}\n";
  return text + "]}\n";
}

std::string averages_table(const std::vector<Event>& events, int width) {
  struct Row {
    std::string name;
    int64_t calls = 0, total = 0, own = 0;
  };
  std::map<std::string, Row> by_name;
  const std::vector<int64_t> own = own_times(events);
  int64_t all = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    Row& row = by_name[label(events[i])];
    row.name = label(events[i]);
    ++row.calls;
    row.total += events[i].duration_ns;
    row.own += own[i];
    if (events[i].thread == 0) all += own[i];
  }
  std::vector<Row> rows;
  for (auto& [name, row] : by_name) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.own > b.own; });
  constexpr int kNumbers = 50;  // width of the columns of numbers
  const size_t name_width = size_t(std::max(width - kNumbers, 10));
  std::string text = fmt::format("{:<{}}{:>8}{:>12}{:>9}{:>12}{:>9}\n", "span", name_width, "calls",
                                 "self ms", "self %", "total ms", "mean ms");
  for (const Row& row : rows) {
    text += fmt::format("{:<{}}{:>8}{:>12.3f}{:>9.2f}{:>12.3f}{:>9.3f}\n",
                        cut(row.name, name_width), name_width, row.calls, double(row.own) * kMs,
                        all > 0 ? 100.0 * double(row.own) / double(all) : 0.0,
                        double(row.total) * kMs, double(row.total) * kMs / double(row.calls));
  }
  return text;
}

std::string event_table(const std::vector<Event>& events, int width) {
  std::vector<size_t> order(events.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return events[a].begin_ns < events[b].begin_ns; });
  constexpr int kNumbers = 44;
  const size_t name_width = size_t(std::max(width - kNumbers, 10));
  std::string text = fmt::format("{:<{}}{:>8}{:>12}{:>14}{:>10}\n", "span", name_width, "thread",
                                 "micro-batch", "begin ms", "ms");
  for (size_t i : order) {
    const Event& e = events[i];
    text +=
        fmt::format("{:<{}}{:>8}{:>12}{:>14.3f}{:>10.3f}\n", cut(label(e), name_width), name_width,
                    e.thread, e.micro_batch >= 0 ? std::to_string(e.micro_batch) : "",
                    double(e.begin_ns) * kMs, double(e.duration_ns) * kMs);
  }
  return text;
}

}  // namespace fastllm::profile
