// Keys: "hello/R" what rank R says, "hello/R/count" how many processes say that they are R,
// "hello/verdict" what comes of it: a letter (below) and a text.
#include "core/distributed/introduction.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>

#include "core/distributed/groups.hpp"
#include "core/distributed/rendezvous.hpp"

namespace fastllm::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr char kBegun = '+';    // then a name a line
constexpr char kWrong = '!';    // then the sentence of all
constexpr char kStopped = '~';  // the same; somebody was asked to stop
constexpr char kProblem =
    '?';  // then the number of a rank, a line end, its name, a line end, its problem

const std::string kVerdict = "hello/verdict", kCame = "hello/came", kHeard = "hello/heard";

std::string key_of(int rank) { return fmt::format("hello/{}", rank); }

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The first line, taken off the text.
std::string take_line(std::string& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string line = text.substr(0, end);
  text.erase(0, end + 1);
  return line;
}

// What a rank says of itself, as it stands in the store.
struct Said {
  std::string name, size, version, problem;
  static Said of(std::string text) {
    Said said;
    said.name = take_line(text);
    said.size = take_line(text);
    said.version = take_line(text);
    said.problem = text;
    return said;
  }
  std::string text() const { return fmt::format("{}\n{}\n{}\n{}", name, size, version, problem); }
};

class Introduction {
 public:
  Introduction(Store& store, const Hello& own, milliseconds timeout)
      : store_(store),
        own_(own),
        said_{fmt::format("{}, process {}", host_name(), ::getpid()), fmt::format("{}", own.size),
              own.version, own.problem},
        timeout_(timeout) {}

  std::vector<std::string> run() {
    refuse_begun_run();
    store_.add(kCame, 1);
    say();
    std::optional<std::string> verdict = await_verdict();
    if (!verdict && own_.rank == 0) {
      verdict = judge();
      store_.set(kVerdict, *verdict);
    }
    if (!verdict) {
      throw Error(Status::kUnavailable,
                  fmt::format("expected rank 0 to begin the run within {:g} s, found that it did "
                              "not; see what its log says",
                              seconds()));
    }
    return heed(*verdict);
  }

 private:
  double seconds() const { return double(timeout_.count()) / 1000; }

  // One that waits for its ranks has no verdict yet, or one that ends it.
  void refuse_begun_run() {
    const auto verdict = store_.get(kVerdict);
    if (!verdict || verdict->front() != kBegun) return;
    std::string names = verdict->substr(1);
    if (std::count(names.begin(), names.end(), '\n') != own_.size) heed(*verdict);
    throw Error(
        Status::kUnavailable,
        fmt::format("expected a run that waits for rank {}, found that the one at that port "
                    "began without it (its rank 0 is {}); set MASTER_PORT to another one for "
                    "every run, and start each rank once",
                    own_.rank, take_line(names)));
  }

  void say() {
    if (store_.add(key_of(own_.rank) + "/count", 1) == 1)
      return store_.set(key_of(own_.rank), said_.text());
    std::optional<std::string> other;
    for (int i = 0; i < 100 && !(other = store_.get(key_of(own_.rank))); ++i)
      std::this_thread::sleep_for(milliseconds(10));
    fail(kWrong,
         fmt::format("two processes say that they are rank {}: {} and {}; give every process of "
                     "the run another number, or start with a launcher that does",
                     own_.rank, other ? Said::of(*other).name : "another", said_.name));
  }

  // nullopt: none in time. Rank 0 gives none once all have come, or time is up.
  std::optional<std::string> await_verdict() {
    std::vector<std::string> keys;
    for (int rank = 0; rank < own_.size; ++rank) keys.push_back(key_of(rank));
    const auto deadline = Clock::now() + timeout_ + milliseconds(own_.rank == 0 ? 0 : 2000);
    for (milliseconds pause(1);; pause = std::min(pause * 2, milliseconds(50))) {
      if (auto verdict = store_.get(kVerdict)) return verdict;
      if (own_.rank == 0 && store_.has(keys)) return std::nullopt;
      if (Clock::now() >= deadline) return std::nullopt;
      heed_stop();
      std::this_thread::sleep_for(pause);
    }
  }

  void heed_stop() {
    try {
      heed_signal("the other ranks");
    } catch (const Error& e) {
      fail(kStopped,
           fmt::format("rank {} ({}) was asked to stop: {}", own_.rank, said_.name, e.what()));
    }
  }

  // Of rank 0, on what all say that came.
  std::string judge() {
    std::vector<std::optional<Said>> all;
    for (int rank = 0; rank < own_.size; ++rank) {
      const auto text = store_.get(key_of(rank));
      all.push_back(text ? std::optional(Said::of(*text)) : std::nullopt);
    }
    for (int rank = 0; rank < own_.size; ++rank) {
      const auto& said = all[size_t(rank)];
      if (said && !said->problem.empty())
        return fmt::format("{}{}\n{}\n{}", kProblem, rank, said->name, said->problem);
    }
    if (const std::string wrong = contradiction(all); !wrong.empty()) return kWrong + wrong;
    if (const std::string missing = missing_ranks(all); !missing.empty()) return kWrong + missing;
    std::string names(1, kBegun);
    for (const auto& said : all) names += said->name + "\n";
    return names;
  }

  // Of a rank with rank 0; empty: none.
  std::string contradiction(const std::vector<std::optional<Said>>& all) const {
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (!all[rank]) continue;
      if (all[rank]->size != said_.size) return other_size(all.size(), int(rank), *all[rank]);
      if (all[rank]->version != own_.version) {
        return fmt::format(
            "expected version {} on all ranks, as on rank 0, found {} on rank {} ({}); install one "
            "version everywhere",
            own_.version, all[rank]->version, rank, all[rank]->name);
      }
    }
    return "";
  }

  // expected: that of rank 0.
  static std::string other_size(size_t expected, int rank, const Said& said) {
    return fmt::format(
        "expected all ranks to be started for {} ranks, as rank 0 was, found rank {} ({}) started "
        "for {}; start all with the same WORLD_SIZE, and every run with a MASTER_PORT of its own",
        expected, rank, said.name, said.size);
  }

  // The sentence for those that did not come, and those that did; empty: all did.
  std::string missing_ranks(const std::vector<std::optional<Said>>& all) const {
    std::vector<int> missing;
    std::string came;
    int shown = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (!all[rank]) {
        missing.push_back(int(rank));
        continue;
      }
      constexpr int kMost = 8;
      if (++shown <= kMost)
        came += fmt::format("{}rank {} ({})", shown > 1 ? ", " : "", rank, all[rank]->name);
      if (shown == kMost + 1) came += " and others";
    }
    if (missing.empty()) return "";
    return fmt::format(
        "expected {} ranks within {:g} s, found that {} did not come; there are {}; see that all "
        "are started, or raise model.distributed.timeout",
        own_.size, seconds(), ranks_text(missing), came);
  }

  // Names of all; throws what else the verdict says.
  std::vector<std::string> heed(std::string verdict) {
    const char kind = verdict.front();
    verdict.erase(0, 1);
    if (kind == kWrong || kind == kStopped) end(kind, verdict);
    if (kind == kProblem) end_over_problem(verdict);
    std::vector<std::string> names;
    while (!verdict.empty()) names.push_back(take_line(verdict));
    if (int(names.size()) == own_.size) return names;
    // Rank 0 did not look for a rank of such a number.
    throw Error(Status::kInvalid, other_size(names.size(), own_.rank, said_));
  }

  [[noreturn]] void fail(char kind, const std::string& sentence) {
    store_.set(kVerdict, kind + sentence);
    end(kind, sentence);
  }

  [[noreturn]] void end(char kind, const std::string& sentence) {
    let_others_hear();
    throw Error(kind == kStopped ? Status::kCancelled : Status::kInvalid, sentence);
  }

  [[noreturn]] void end_over_problem(std::string text) {
    const std::string rank = take_line(text), name = take_line(text);
    let_others_hear();
    const bool own = rank == std::to_string(own_.rank);
    if (own || (!own_.problem.empty() && own_.problem != text))
      throw Error(Status::kInvalid, own_.problem);
    if (own_.problem == text) throw ToldByAnother(Status::kInvalid, text);
    throw Error(Status::kInvalid, fmt::format("rank {} ({}) failed: {}", rank, name, text));
  }

  // Rank 0 most often holds the store: it goes last.
  void let_others_hear() {
    store_.add(kHeard, 1);
    for (int i = 0; own_.rank == 0 && i < 200; ++i) {
      if (store_.add(kHeard, 0) >= store_.add(kCame, 0)) break;
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  Store& store_;
  const Hello& own_;
  const Said said_;
  const milliseconds timeout_;
};

}  // namespace

std::vector<std::string> introduce(Store& store, const Hello& own, milliseconds timeout) {
  return Introduction(store, own, timeout).run();
}

}  // namespace fastllm::distributed
