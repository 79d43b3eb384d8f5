#include "core/train/compare.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <tuple>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/checkpoint/provenance.hpp"
#include "core/train/metrics/metrics.hpp"

namespace fastllm::train {
namespace {

namespace fs = std::filesystem;
using config::Node;

constexpr uint64_t kMaximumYaml = uint64_t(64) << 20;

// ---------------------------------------------------------------- reading

[[noreturn]] void refuse(const std::string& text) { throw Error(Status::kInvalid, text); }

Node read_yaml(const fs::path& path) {
  if (!path_exists(path)) return {};
  return config::parse_yaml(read_file(path, kMaximumYaml), path.string());
}

void read_line(std::string_view text, const std::string& where, RecordedRun& run,
               std::set<std::pair<std::string, int64_t>>& seen) {
  const Node line = config::parse_json(text, where);
  const Node* phase = line.kind() == Node::Kind::kMap ? line.child("phase") : nullptr;
  const Node* iteration = phase ? line.child("iteration") : nullptr;
  if (!iteration || phase->kind() != Node::Kind::kText || iteration->kind() != Node::Kind::kInt) {
    refuse(
        fmt::format("{}: expected an object with a phase and an iteration, found something else; "
                    "is this the metrics file of a run?",
                    where));
  }
  const std::pair key(phase->as_text(), iteration->as_int());
  if (!seen.insert(key).second) {
    refuse(fmt::format("{}: expected each phase and iteration once in a run, found {} @ {} again",
                       where, key.first, key.second));
  }
  auto& losses = run.losses[key];
  losses.clear();
  for (size_t i = 0; i < line.size(); ++i) {
    const std::string& name = line.key(i);
    if (is_common_metric(name)) continue;
    const Node& value = line.at(i);
    if (!value.is_null() && value.kind() != Node::Kind::kFloat &&
        value.kind() != Node::Kind::kInt) {
      refuse(fmt::format("{}: expected a number or null for {}, found {}", where, name,
                         Node::kind_name(value.kind())));
    }
    losses[name] = value.is_null() ? Metrics::kMissing : value.as_real();
  }
}

void read_metrics(const fs::path& path, RecordedRun& run) {
  const std::string text = read_file(path);
  std::set<std::pair<std::string, int64_t>> seen;
  size_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) {  // killed, or the disk was full, while it was written
      run.notes.push_back(
          fmt::format("{}:{}: the last line was cut off and is left out", path.string(), number));
      break;
    }
    read_line(std::string_view(text).substr(begin, end - begin),
              fmt::format("{}:{}", path.string(), number), run, seen);
    begin = end + 1;
  }
}

// The numbered folders below runs/, ascending.
std::vector<fs::path> run_folders(const fs::path& runs) {
  std::vector<std::pair<int64_t, fs::path>> found;
  for (const auto& entry : list_folder(runs)) {
    const std::string name = entry.path().filename().string();
    int64_t number = 0;
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (code == std::errc() && end == name.data() + name.size())
      found.emplace_back(number, entry.path());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [number, path] : found) paths.push_back(std::move(path));
  return paths;
}

// ---------------------------------------------------------------- differences

std::string text_of(const Node& node) {
  return node.is_scalar() ? node.scalar_text() : config::to_json(node);
}

void flatten(const Node& node, const std::string& path, std::map<std::string, std::string>& out) {
  if (node.is_scalar() || node.size() == 0) {
    if (!path.empty()) out[path] = text_of(node);
    return;
  }
  for (size_t i = 0; i < node.size(); ++i) {
    const bool map = node.kind() == Node::Kind::kMap;
    flatten(node.at(i), config::join_path(path, map ? node.key(i) : std::to_string(i)), out);
  }
}

std::vector<KeyDifference> differences(const Node* a, const Node* b) {
  std::map<std::string, std::string> left, right;
  if (a) flatten(*a, "", left);
  if (b) flatten(*b, "", right);
  std::vector<KeyDifference> found;
  for (const auto& [key, value] : left) {
    const auto other = right.find(key);
    if (other == right.end())
      found.push_back({key, value, "absent"});
    else if (other->second != value)
      found.push_back({key, value, other->second});
  }
  for (const auto& [key, value] : right)
    if (!left.contains(key)) found.push_back({key, "absent", value});
  std::sort(found.begin(), found.end(), [](const auto& x, const auto& y) { return x.key < y.key; });
  return found;
}

// Programs and libraries: where a library lies does not count.
Node versions_of(const Node& provenance) {
  Node versions = Node::map();
  for (const char* key : {"host_version", "host_sha256", "plugins", "libtorch", "threads"})
    if (const Node* value = provenance.child(key)) versions.set_child(key, *value);
  if (Node* plugins = versions.child("plugins"); plugins && plugins->kind() == Node::Kind::kMap) {
    for (size_t i = 0; i < plugins->size(); ++i)
      if (plugins->at(i).kind() == Node::Kind::kMap) plugins->at(i).erase_child("path");
  }
  return versions;
}

LossDifference difference(const std::pair<std::string, int64_t>& key, const std::string& name,
                          double a, double b) {
  LossDifference d{key.first, name, key.second, a, b, 0};
  if (a == b || (std::isnan(a) && std::isnan(b))) return d;
  d.relative = std::abs(a - b) / std::max(std::abs(a), std::abs(b));
  if (!std::isfinite(d.relative)) d.relative = std::numeric_limits<double>::infinity();
  return d;
}

std::string line_name(const std::pair<std::string, int64_t>& key) {
  return fmt::format("{} @ {}", key.first, key.second);
}

std::string shown(const LossDifference& d) {
  return fmt::format("{} @ {}: {}: {} != {} (relative {:.3g})", d.phase, d.iteration, d.name, d.a,
                     d.b, d.relative);
}

std::string shown(const std::vector<std::string>& lines) {
  constexpr size_t kShown = 5;
  const std::vector<std::string> first(lines.begin(),
                                       lines.begin() + ptrdiff_t(std::min(kShown, lines.size())));
  return fmt::format("{}{}", fmt::join(first, ", "), lines.size() > kShown ? ", ..." : "");
}

}  // namespace

RecordedRun read_run(const fs::path& path) {
  RecordedRun run;
  run.path = path;
  std::vector<fs::path> folders;
  if (path_exists(path / "metrics.jsonl")) {
    folders = {path};
  } else if (path_exists(path / "runs")) {
    folders = run_folders(path / "runs");
  }
  for (const fs::path& folder : folders) {
    read_metrics(folder / "metrics.jsonl", run);
    run.config = read_yaml(folder / "config.yaml");
    run.provenance = read_yaml(folder / checkpoint::kProvenanceName);
  }
  if (folders.empty()) {
    refuse(
        fmt::format("expected the folder of a run (with metrics.jsonl) or of an experiment (with "
                    "runs/), found neither at {}",
                    path.string()));
  }
  return run;
}

Comparison compare_runs(const RecordedRun& a, const RecordedRun& b, double tolerance) {
  Comparison c;
  c.notes = a.notes;
  c.notes.insert(c.notes.end(), b.notes.begin(), b.notes.end());
  c.has_configuration = !a.config.is_null() && !b.config.is_null();
  c.has_provenance = !a.provenance.is_null() && !b.provenance.is_null();
  if (c.has_configuration) c.configuration = differences(&a.config, &b.config);
  if (c.has_provenance) {
    c.data = differences(a.provenance.child("data"), b.provenance.child("data"));
    const Node left = versions_of(a.provenance), right = versions_of(b.provenance);
    c.versions = differences(&left, &right);
  }
  for (const auto& [key, losses] : a.losses) {
    const auto other = b.losses.find(key);
    if (other == b.losses.end()) {
      c.only_a.push_back(line_name(key));
      continue;
    }
    for (const auto& [name, value] : losses) {
      const auto found = other->second.find(name);
      if (found == other->second.end()) {
        c.only_a.push_back(line_name(key) + ": " + name);
        continue;
      }
      ++c.compared;
      const LossDifference d = difference(key, name, value, found->second);
      if (d.relative > c.largest.relative) c.largest = d;
      if (d.relative > tolerance) c.beyond.push_back(d);
    }
    for (const auto& [name, value] : other->second)
      if (!losses.contains(name)) c.only_b.push_back(line_name(key) + ": " + name);
  }
  for (const auto& [key, losses] : b.losses)
    if (!a.losses.contains(key)) c.only_b.push_back(line_name(key));
  std::stable_sort(c.beyond.begin(), c.beyond.end(), [](const auto& x, const auto& y) {
    return std::tie(x.iteration, x.phase) < std::tie(y.iteration, y.phase);
  });
  if (c.compared == 0) {
    refuse(
        fmt::format("expected losses that both {} and {} logged at the same iterations, found "
                    "none; compare runs with the same training.logs.interval",
                    a.path.string(), b.path.string()));
  }
  return c;
}

std::string comparison_text(const Comparison& c, double tolerance) {
  std::string text;
  auto list = [&](const std::string& title, const std::vector<KeyDifference>& found, bool known) {
    text += title + (!known ? " not recorded by both\n" : found.empty() ? " the same\n" : "\n");
    for (const KeyDifference& d : found)
      text += fmt::format("  `{}`: `{}` != `{}`\n", d.key, d.a, d.b);
  };
  list("Config diff:", c.configuration, c.has_configuration);
  list("Data:", c.data, c.has_provenance);
  list("Versions:", c.versions, c.has_provenance);
  text += fmt::format("Losses: {} compared, {} differ by more than {:g} relative\n", c.compared,
                      c.beyond.size(), tolerance);
  if (!c.beyond.empty()) text += "  first:   " + shown(c.beyond.front()) + "\n";
  if (c.largest.relative > 0) text += "  largest: " + shown(c.largest) + "\n";
  const auto only = [&](const std::string& which, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    text += fmt::format("Note: {} only in the {} run ({}), which the verdict leaves out\n",
                        lines.size(), which, shown(lines));
  };
  only("first", c.only_a);
  only("second", c.only_b);
  for (const std::string& note : c.notes) text += "Note: " + note + "\n";
  return text;
}

Node comparison_node(const Comparison& c) {
  auto keys = [](const std::vector<KeyDifference>& found) {
    Node list = Node::list();
    for (const KeyDifference& d : found) {
      Node entry = Node::map();
      entry.set_child("key", Node::text(d.key));
      entry.set_child("a", Node::text(d.a));
      entry.set_child("b", Node::text(d.b));
      list.append(std::move(entry));
    }
    return list;
  };
  auto loss = [](const LossDifference& d) {
    Node entry = Node::map();
    entry.set_child("phase", Node::text(d.phase));
    entry.set_child("iteration", Node::integer(d.iteration));
    entry.set_child("name", Node::text(d.name));
    entry.set_child("a", Node::real(d.a));
    entry.set_child("b", Node::real(d.b));
    entry.set_child("relative", Node::real(d.relative));
    return entry;
  };
  auto names = [](const std::vector<std::string>& lines) {
    Node list = Node::list();
    for (const std::string& line : lines) list.append(Node::text(line));
    return list;
  };
  Node node = Node::map();
  node.set_child("losses_agree", Node::boolean(c.losses_agree()));
  node.set_child("compared", Node::integer(c.compared));
  node.set_child("beyond_tolerance", Node::integer(int64_t(c.beyond.size())));
  node.set_child("first", c.beyond.empty() ? Node() : loss(c.beyond.front()));
  node.set_child("largest", c.largest.relative > 0 ? loss(c.largest) : Node());
  node.set_child("notes", names(c.notes));
  node.set_child("only_a", names(c.only_a));
  node.set_child("only_b", names(c.only_b));
  node.set_child("configuration", c.has_configuration ? keys(c.configuration) : Node());
  node.set_child("data", c.has_provenance ? keys(c.data) : Node());
  node.set_child("versions", c.has_provenance ? keys(c.versions) : Node());
  return node;
}

}  // namespace fastllm::train
