#include "core/distributed/coordinator.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "core/base/file.hpp"
#include "core/base/text.hpp"
#include "core/distributed/communicator.hpp"
#include "core/distributed/groups.hpp"

namespace fastllm::distributed {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr const char* kGood = "good";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Of a long line the part around `column`.
std::string excerpt(const std::string& line, size_t column = 0) {
  constexpr size_t kMost = 200, kBefore = 80;
  const size_t begin = line.size() <= kMost || column <= kBefore ? 0 : column - kBefore;
  const std::string part = line.substr(std::min(begin, line.size()), kMost);
  return fmt::format("{}\"{}\"{}", begin > 0 ? "..." : "", part,
                     begin + part.size() < line.size() ? "..." : "");
}

size_t first_different_column(const std::vector<std::string>& lines) {
  for (size_t column = 0;; ++column) {
    for (const std::string& line : lines) {
      if (column >= line.size() || line[column] != lines.front()[column]) return column;
    }
  }
}

// "rank 0 has A, ranks 1-3 have B", rank 0's value first.
std::string by_value(const std::vector<std::string>& values, const char* verb_one,
                     const char* verb_many) {
  std::map<std::string, std::vector<int>> ranks;
  std::vector<std::string> order;
  for (size_t rank = 0; rank < values.size(); ++rank) {
    auto& who = ranks[values[rank]];
    if (who.empty()) order.push_back(values[rank]);
    who.push_back(int(rank));
  }
  std::string text;
  for (const std::string& value : order) {
    const auto& who = ranks[value];
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", ranks_text(who),
                        who.size() == 1 ? verb_one : verb_many, value);
  }
  return text;
}

}  // namespace

std::string difference(const std::string& what, const std::vector<std::string>& texts) {
  if (std::all_of(texts.begin(), texts.end(), [&](const auto& t) { return t == texts.front(); }))
    return "";
  std::vector<std::vector<std::string>> all;
  size_t longest = 0;
  for (const std::string& text : texts) {
    all.push_back(lines_of(text));
    longest = std::max(longest, all.back().size());
  }
  for (size_t i = 0; i < longest; ++i) {
    std::vector<std::string> present;
    for (const auto& lines : all) {
      if (i < lines.size()) present.push_back(lines[i]);
    }
    const bool same = std::all_of(present.begin(), present.end(),
                                  [&](const auto& line) { return line == present.front(); });
    if (same && present.size() == all.size()) continue;
    const size_t column = same ? 0 : first_different_column(present);
    std::vector<std::string> values;
    for (const auto& lines : all)
      values.push_back(i < lines.size() ? excerpt(lines[i], column) : "no such line");
    return fmt::format(
        "expected the same {} on all ranks, found a difference in line {}: {}; start every rank "
        "with the same command, files and program",
        what, i + 1, by_value(values, "has", "have"));
  }
  return "";
}

Coordinator::Coordinator(Store& store, int rank, int size, std::function<void()> check)
    : store_(store), rank_(rank), size_(size), check_(std::move(check)) {}

void Coordinator::wait_for(const std::vector<std::string>& keys, const std::vector<int>& ranks,
                           const std::string& what, milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  for (milliseconds pause(1);; pause = std::min(pause * 2, milliseconds(50))) {
    if (store_.has(keys)) return;
    if (check_) check_();
    if (Clock::now() >= deadline) break;
    std::this_thread::sleep_for(pause);
  }
  std::vector<int> missing;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!store_.has(std::span(&keys[i], 1))) missing.push_back(ranks[i]);
  }
  throw CommunicationError(
      fmt::format("expected all ranks at {} within {:g} s, found that {} did not come; see what "
                  "the log says of "
                  "it, or raise the timeout",
                  what, double(timeout.count()) / 1000, ranks_text(missing)));
}

std::vector<std::string> Coordinator::gather(const std::string& key, const std::string& value,
                                             const std::string& what, milliseconds timeout) {
  store_.set(fmt::format("{}/{}", key, rank_), value);
  if (rank_ != 0) return {};
  std::vector<std::string> keys, values;
  std::vector<int> ranks;
  for (int rank = 0; rank < size_; ++rank) {
    keys.push_back(fmt::format("{}/{}", key, rank));
    ranks.push_back(rank);
  }
  wait_for(keys, ranks, what, timeout);
  for (const std::string& k : keys) values.push_back(store_.get(k).value_or(""));
  remove_read(keys);
  return values;
}

void Coordinator::remove_read(const std::vector<std::string>& values) {
  for (const std::string& key : values) store_.remove(key);
  for (const std::string& key : verdicts_) store_.remove(key);
  verdicts_.clear();
}

std::string Coordinator::verdict(const std::string& key, const std::function<std::string()>& judge,
                                 const std::string& what, milliseconds timeout) {
  const std::string own = key + "/verdict";
  if (rank_ != 0) {
    // Rank 0 may itself wait the whole time for another.
    wait_for({own}, {0}, what, timeout + milliseconds(2000));
    return store_.get(own).value_or("");
  }
  std::string text;
  try {
    text = judge();
  } catch (const Error& e) {
    store_.set(own, e.what());
    throw;
  }
  store_.set(own, text);
  verdicts_.push_back(own);
  return text;
}

void Coordinator::meet(const std::string& place, milliseconds timeout) {
  if (size_ == 1) return;
  const std::string key = fmt::format("round/{}", rounds_++);
  if (rank_ != 0) gather(key, place, place, timeout);
  const std::string text = verdict(
      key,
      [&]() -> std::string {
        std::vector<std::string> places = gather(key, place, place, timeout);
        if (std::all_of(places.begin(), places.end(), [&](const auto& p) { return p == place; }))
          return kGood;
        for (std::string& p : places) p = excerpt(p);
        return fmt::format(
            "expected all ranks at the same place, found that {}; this is a fault of the program, "
            "please report it",
            by_value(places, "is at", "are at"));
      },
      place, timeout);
  if (text != kGood) throw Error(Status::kInternal, text);
}

void Coordinator::agree(const std::string& what, const std::string& text, milliseconds timeout) {
  if (size_ == 1) return;
  const std::string key = fmt::format("round/{}", rounds_++);
  const std::string hash = sha256_hex(text), place = "the comparison of " + what;
  if (rank_ != 0) gather(key, hash, place, timeout);
  std::string answer = verdict(
      key,
      [&]() -> std::string {
        const auto hashes = gather(key, hash, place, timeout);
        const bool same =
            std::all_of(hashes.begin(), hashes.end(), [&](const auto& h) { return h == hash; });
        return same ? kGood : "texts";
      },
      place, timeout);
  if (answer == kGood) return;
  if (answer == "texts") {  // only now, since they are long
    const std::string again = key + "/texts";
    if (rank_ != 0) gather(again, text, place, timeout);
    answer = verdict(
        again, [&] { return difference(what, gather(again, text, place, timeout)); }, place,
        timeout);
  }
  throw Error(Status::kInvalid, answer);
}

}  // namespace fastllm::distributed
