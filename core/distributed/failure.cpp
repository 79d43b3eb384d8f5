// Two threads: one speaks with the store, which may not answer; one only looks at the clock.
// Keys: "failure" the sentence that all end with, "life/R" signs of life of rank R, "knows/R" it has
// read the sentence.
#include "core/distributed/failure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/log.hpp"

namespace fastllm::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

const std::string kFailure = "failure", kClaim = "failure/claim";
const std::string kStopMark =
    "stop\n";                      // in front of the sentence of a rank that was asked to stop
const std::string kDone = "done";  // as a sign of life: none will follow

bool is_stop(const std::string& reason) { return reason.starts_with(kStopMark); }

PeerFailure failure_of(const std::string& reason) {
  if (!is_stop(reason)) return PeerFailure(reason);
  return PeerFailure(reason.substr(kStopMark.size()), Status::kCancelled);
}

double seconds(milliseconds time) { return double(time.count()) / 1000; }

std::string life_key(int rank) { return fmt::format("life/{}", rank); }
std::string knows_key(int rank) { return fmt::format("knows/{}", rank); }

}  // namespace

struct FailureWatch::State {
  std::shared_ptr<Store> store;
  int rank = 0, size = 1;
  std::vector<std::string> names;
  WatchOptions options;

  std::timed_mutex store_mutex;  // around each use of the store, which may not return

  std::mutex mutex;  // around all below
  std::condition_variable changed;
  bool stop = false, own_failure = false, suspects = false, done = false;
  std::optional<std::string> reason;     // as it stands in the store
  std::map<std::string, int64_t> calls;  // by group: the number of the latest collective
  std::vector<int> lost;                 // ranks whose connection has ended
  std::string activity = "starting";
  Clock::time_point answered = Clock::now();  // by the store
  std::optional<Clock::time_point> learnt;    // the reason
  std::thread talker, clock;
  bool talker_ended = false;

  // Only of the talker.
  struct Sign {
    std::string text;
    Clock::time_point since;
  };
  std::map<int, Sign> signs;
  int64_t beats = 0;

  bool stopped() {
    const std::lock_guard lock(mutex);
    return stop;
  }

  void learn(const std::string& sentence) {
    const std::lock_guard lock(mutex);
    if (reason || done) return;
    reason = sentence;
    learnt = Clock::now();
    changed.notify_all();
  }

  // The first to speak is heard.
  void publish(const std::string& sentence) {
    const std::unique_lock lock(store_mutex, options.grace);
    if (lock && store->add(kClaim, 1) == 1) store->set(kFailure, sentence);
  }

  std::string life() {
    const std::lock_guard lock(mutex);
    std::string text = fmt::format("{}\n{}", ++beats, activity);
    for (const auto& [group, number] : calls) text += fmt::format("\n{} {}", group, number);
    return text;
  }

  std::string name_of(int who) const {
    return names[size_t(who)].empty() ? fmt::format("rank {}", who)
                                      : fmt::format("rank {} ({})", who, names[size_t(who)]);
  }

  void look_at(int who, milliseconds limit) {
    std::optional<std::string> text;
    {
      const std::lock_guard lock(store_mutex);
      text = store->get(life_key(who));
    }
    const auto now = Clock::now();
    auto [sign, first] = signs.try_emplace(who, Sign{text.value_or(""), now});
    if (first || (text && *text != sign->second.text)) {
      sign->second = {text.value_or(""), now};
      return;
    }
    if (sign->second.text == kDone || now - sign->second.since < limit) return;
    publish(
        fmt::format("{} failed: it has ended or stands still, for it has shown no sign of "
                    "life for {:g} s",
                    name_of(who), seconds(limit)));
  }

  // One round with the store.
  void talk() {
    std::optional<std::string> sentence;
    const std::string own_life = life();
    {
      const std::lock_guard lock(store_mutex);
      if (stopped()) return;  // the last sign was given
      store->set(life_key(rank), own_life);
      sentence = store->get(kFailure);
      if (sentence) store->set(knows_key(rank), "1");
    }
    if (sentence) return learn(*sentence);
    hear_lost();
    bool suspicious;
    {
      const std::lock_guard lock(mutex);
      answered = Clock::now();
      suspicious = suspects;
    }
    if (suspicious) {
      for (int who = 0; who < size; ++who) {
        if (who != rank) look_at(who, options.suspicion);
      }
    } else {
      look_at((rank + 1) % size, options.silence);
    }
  }

  // Whether that rank said that it is done; it may have just now.
  bool says_done(int who) {
    const auto end = Clock::now() + options.beat;
    for (;;) {
      {
        const std::lock_guard lock(store_mutex);
        if (store->get(life_key(who)).value_or("") == kDone) return true;
      }
      if (Clock::now() >= end || stopped()) return false;
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  // Those whose connection has ended; one that failed has said so before.
  void hear_lost() {
    std::vector<int> ranks;
    {
      const std::lock_guard lock(mutex);
      ranks.swap(lost);
    }
    for (int who : ranks) {
      if (says_done(who)) continue;
      publish(fmt::format("{} failed: it ended without a word, as a process does that is killed",
                          name_of(who)));
      std::optional<std::string> sentence;
      {
        const std::lock_guard lock(store_mutex);
        sentence = store->get(kFailure);
      }
      if (sentence) return learn(*sentence);
    }
  }

  std::string store_lost() const {
    return options.store_of_launcher
               ? "the launcher failed: it ended without a word, and with it the store of the run"
               : fmt::format("{} failed: it ended without a word, and with it the store of the run",
                             name_of(0));
  }

  void run_talker() {
    while (!stopped()) {
      try {
        talk();
        const std::lock_guard lock(mutex);
        answered = Clock::now();
      } catch (const std::exception&) {
        learn(store_lost());
      }
      std::unique_lock lock(mutex);
      if (reason) break;
      changed.wait_for(lock, options.beat, [&] { return stop || reason || !lost.empty(); });
    }
    const std::lock_guard lock(mutex);
    talker_ended = true;
    changed.notify_all();
  }

  void run_clock() {
    for (;;) {
      std::string sentence;
      {
        std::unique_lock lock(mutex);
        changed.wait_for(lock, options.beat / 2, [&] { return stop; });
        if (stop || own_failure) return;
        const auto now = Clock::now();
        if (!reason && now - answered > options.silence) {
          reason = fmt::format(
              "{} failed: it stands still, for the store of the run, which it "
              "holds, has not answered for {:g} s",
              options.store_of_launcher ? "the launcher" : name_of(0), seconds(options.silence));
          learnt = now;
          changed.notify_all();
        }
        if (!learnt || now - *learnt < options.grace) continue;
        sentence = *reason;
      }
      const PeerFailure failure = failure_of(sentence);
      if (options.end_process) {
        options.end_process(failure.what());
      } else {
        log::plain_error(failure.what());
        log::flush();
        std::_Exit(is_stop(sentence) ? options.interrupted_code : 1);
      }
      return;
    }
  }

  std::optional<std::string> await_reason(milliseconds most) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, most, [&] { return reason.has_value(); });
    return reason;
  }
};

WatchOptions WatchOptions::within(milliseconds silence) {
  WatchOptions options;
  options.silence = silence;
  options.suspicion = silence * 3 / 8;
  options.beat = std::clamp(silence / 16, milliseconds(20), options.beat);
  return options;
}

FailureWatch::FailureWatch(std::shared_ptr<Store> store, int rank, std::vector<std::string> names,
                           WatchOptions options)
    : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.store = std::move(store);
  s.rank = rank;
  s.size = int(names.size());
  s.names = std::move(names);
  s.options = std::move(options);
  // Threads share the state: one that hangs in the store is left behind.
  s.talker = std::thread([state = state_] { state->run_talker(); });
  s.clock = std::thread([state = state_] { state->run_clock(); });
}

FailureWatch::~FailureWatch() {
  State& s = *state_;
  finish();
  bool ended;
  {
    std::unique_lock lock(s.mutex);
    s.stop = true;
    s.changed.notify_all();
    ended = s.changed.wait_for(lock, milliseconds(1000), [&] { return s.talker_ended; });
  }
  s.clock.join();
  if (ended) {
    s.talker.join();
  } else {
    s.talker.detach();
  }
}

void FailureWatch::begin(const Group& group, Operation operation, int64_t number) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.activity =
        fmt::format("{} number {} over group {}", operation_name(operation), number, group.key());
    if (operation != Operation::kSend && operation != Operation::kReceive)
      s.calls[group.key()] = number;
  }
  check();
}

void FailureWatch::check() const {
  const std::lock_guard lock(state_->mutex);
  if (state_->reason) throw failure_of(*state_->reason);
}

void FailureWatch::lost(int rank) {
  const std::lock_guard lock(state_->mutex);
  state_->lost.push_back(rank);
  state_->changed.notify_all();
}

void FailureWatch::fail(const std::string& sentence, Status status) noexcept {
  State& s = *state_;
  bool consequence;
  {
    const std::lock_guard lock(s.mutex);
    consequence = s.reason.has_value();
    s.own_failure = true;
  }
  try {
    const std::string mark = status == Status::kCancelled ? kStopMark : "";
    if (!consequence)
      s.publish(fmt::format("{}rank {} {}: {}", mark, s.rank,
                            mark.empty() ? "failed" : "was asked to stop", sentence));
    // Others may end as they like; the process that holds the store lets them read it first, which
    // they do at every beat, but for the one that is gone.
    if (consequence && (s.rank != 0 || s.options.store_of_launcher)) return;
    const milliseconds most = consequence ? 3 * s.options.beat : s.options.grace;
    std::vector<std::string> keys;
    for (int who = 0; who < s.size; ++who) keys.push_back(knows_key(who));
    for (const auto end = Clock::now() + most; Clock::now() < end;) {
      {
        const std::unique_lock lock(s.store_mutex, s.options.grace);
        if (!lock || s.store->has(keys)) return;
      }
      std::this_thread::sleep_for(milliseconds(20));
    }
  } catch (const std::exception&) {  // the store is gone: so are the others
  }
}

void FailureWatch::explain(const Group& group, Operation operation, int64_t number,
                           const std::string& reason) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    s.suspects = true;
    s.changed.notify_all();
  }
  if (auto known = s.await_reason(s.options.suspicion + 3 * s.options.beat))
    throw failure_of(*known);
  // All are alive. Who has not begun this call?
  std::vector<int> late;
  std::string doing;
  const bool collective = operation != Operation::kSend && operation != Operation::kReceive;
  for (int who : group.members) {
    if (who == s.rank || !collective) continue;
    std::optional<std::string> life;
    try {
      const std::lock_guard lock(s.store_mutex);
      life = s.store->get(life_key(who));
    } catch (const std::exception&) {
    }
    if (!life) continue;
    const std::string mark = fmt::format("\n{} ", group.key());
    const size_t at = life->find(mark);
    const int64_t reached =
        at == std::string::npos ? 0 : std::atoll(life->c_str() + at + mark.size());
    if (reached >= number) continue;
    late.push_back(who);
    const size_t begin = std::min(life->find('\n'), life->size() - 1) + 1;
    doing = life->substr(begin, life->find('\n', begin) - begin);
  }
  if (late.empty()) return;
  const std::string sentence = fmt::format(
      "{} failed: it did not come to {} number {} over group {} while rank {} waited ({}); the "
      "last "
      "it began was {}",
      ranks_text(late), operation_name(operation), number, group.key(), s.rank, reason, doing);
  s.publish(sentence);
  throw failure_of(s.await_reason(4 * s.options.beat).value_or(sentence));
}

void FailureWatch::await(milliseconds most) const {
  if (const auto reason = state_->await_reason(most)) throw failure_of(*reason);
}

void FailureWatch::finish() noexcept {
  State& s = *state_;
  {
    const std::lock_guard lock(s.mutex);
    if (s.done || s.reason || s.own_failure) return;
    s.done = s.stop = true;
    s.changed.notify_all();
  }
  try {
    const std::unique_lock lock(s.store_mutex, milliseconds(1000));
    if (lock) s.store->set(life_key(s.rank), kDone);
  } catch (const std::exception&) {  // rank 0 is done, too
  }
}

}  // namespace fastllm::distributed
