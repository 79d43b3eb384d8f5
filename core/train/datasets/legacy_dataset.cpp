// Prefixes and weights from where the format says, then slices of them, mixed, turned and sampled.
#include "core/train/datasets/legacy_dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::train {
namespace {

namespace fs = std::filesystem;
using config::Node;

struct Part {
  double weight;
  std::string prefix;
};

Node block(std::initializer_list<std::pair<const char*, Node>> keys) {
  Node node = Node::map();
  for (const auto& [key, value] : keys) node.set_child(key, value);
  return node;
}

double weight_of(const std::string& text) {
  double weight = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), weight);
  if (code != std::errc() || end != text.data() + text.size() || !(weight >= 0) ||
      !std::isfinite(weight)) {
    throw LegacyError(
        "path", fmt::format("expected weight, prefix, weight, prefix, ..., found '{}' where a "
                            "weight belongs; write for example [\"0.7\", data/a, \"0.3\", data/b]",
                            text));
  }
  return weight;
}

std::vector<Part> listed_parts(const std::vector<std::string>& list) {
  if (list.size() == 1) return {{1, list[0]}};
  if (list.empty() || list.size() % 2 != 0) {
    throw LegacyError("path", fmt::format("expected one prefix, or weight, prefix, weight, prefix, "
                                          "..., found {} entries",
                                          list.size()));
  }
  std::vector<Part> parts;
  std::set<std::string> prefixes;
  for (size_t i = 0; i < list.size(); i += 2) {
    parts.push_back({weight_of(list[i]), list[i + 1]});
    if (!prefixes.insert(fs::path(list[i + 1]).lexically_normal().string()).second)
      throw LegacyError(
          "path",
          fmt::format("expected every prefix once, found {} twice; add its weights", list[i + 1]));
  }
  return parts;
}

// {"datasets": [{"prefix": ..., "weight": ...}, ...]}
std::vector<Part> parts_of_file(const fs::path& path) {
  constexpr uint64_t kMostBytes = uint64_t(1) << 26;
  Node content = config::parse_json(read_file(path, kMostBytes), path.string());
  const Node* list = content.kind() == Node::Kind::kMap ? content.child("datasets") : nullptr;
  if (!list || list->kind() != Node::Kind::kList || list->size() == 0)
    throw LegacyError("path", path.string() +
                                  ": expected a list `datasets` with a prefix and a "
                                  "weight each, found none");
  std::vector<Part> parts;
  for (size_t i = 0; i < list->size(); ++i) {
    const Node& entry = list->at(i);
    const bool map = entry.kind() == Node::Kind::kMap;
    const Node *prefix = map ? entry.child("prefix") : nullptr,
               *weight = map ? entry.child("weight") : nullptr;
    const bool number =
        weight && (weight->kind() == Node::Kind::kInt || weight->kind() == Node::Kind::kFloat);
    if (!prefix || prefix->kind() != Node::Kind::kText || !number || !(weight->as_real() >= 0)) {
      throw LegacyError(
          "path", fmt::format("{}: expected {{\"prefix\": TEXT, \"weight\": NUMBER from 0 up}} for "
                              "entry {} of datasets, found something else",
                              path.string(), i));
    }
    parts.push_back({weight->as_real(), prefix->as_text()});
  }
  return parts;
}

// Shares of the documents: where a part of the split begins and ends.
std::pair<double, double> split_bounds(const std::vector<double>& split, size_t part) {
  static const char* const kParts[] = {"training", "validation", "test"};
  double sum = 0;
  for (double share : split) sum += share;
  if (!(sum > 0) || !std::isfinite(sum))
    throw LegacyError("split", "expected finite shares, one of them above 0, found none");
  if (part >= split.size() || split[part] == 0) {
    throw LegacyError("split",
                      fmt::format("expected a share above 0 for {}, which takes samples, found {}; "
                                  "write for example [969, 30, 1]",
                                  kParts[part], part < split.size() ? "0" : "none"));
  }
  double begin = 0;
  for (size_t i = 0; i < part; ++i) begin += split[i] / sum;
  // Sums may end a rounding above 1.
  return {std::min(begin, 1.0), std::min(begin + split[part] / sum, 1.0)};
}

Node slice_of(const Part& part, double begin, double end) {
  return block(
      {{"type", Node::text("slice")},
       {"begin", Node::real(begin)},
       {"end", Node::real(end)},
       {"dataset", block({{"type", Node::text("memmap")}, {"path", Node::text(part.prefix)}})}});
}

Node mixed(const std::vector<Part>& parts, double begin, double end) {
  if (parts.size() == 1) return slice_of(parts[0], begin, end);
  Node datasets = Node::list(), weights = Node::list();
  for (const Part& part : parts) {
    datasets.append(slice_of(part, begin, end));
    weights.append(Node::real(part.weight));
  }
  return block({{"type", Node::text("blended")},
                {"legacy", Node::boolean(true)},
                {"datasets", std::move(datasets)},
                {"weights", std::move(weights)}});
}

}  // namespace

LegacyDataset translate_legacy(const Node& definition, size_t split_part, int64_t seed,
                               const fs::path& folder) {
  const std::string format = definition.get<std::string>("format");
  const std::vector<std::string> list = definition.get_list<std::string>("path");
  LegacyDataset legacy{{}, folder};
  Node dataset;
  if (format == "random") {
    if (!list.empty()) {
      throw LegacyError("path", fmt::format("expected nothing, since format is random, found {} "
                                            "entries; leave it out",
                                            list.size()));
    }
    dataset = block({{"type", Node::text("random")}});
  } else {
    std::vector<Part> parts;
    if (format == "file") {
      if (list.size() != 1) {
        throw LegacyError("path", fmt::format("expected one JSON file, since format is file, found "
                                              "{} entries",
                                              list.size()));
      }
      const fs::path file = folder / list[0];
      parts = parts_of_file(file);
      legacy.folder = file.parent_path();
    } else {
      parts = listed_parts(list);
    }
    auto [begin, end] = split_bounds(definition.get_list<double>("split"), split_part);
    dataset = mixed(parts, begin, end);
  }
  const Node& fim = *definition.child("fim");
  if (fim.get<double>("rate") > 0) {
    Node turned = fim;
    turned.set_child("type", Node::text("fim"));
    turned.set_child("dataset", std::move(dataset));
    dataset = std::move(turned);
  }
  legacy.definition = block(
      {{"type", Node::text("sampled")},
       {"dataset", std::move(dataset)},
       {"sampling", block({{"seed", Node::integer(seed)}, {"shuffle", Node::text("legacy")}})}});
  return legacy;
}

}  // namespace fastllm::train
