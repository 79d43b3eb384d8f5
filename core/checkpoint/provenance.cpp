// provenance.yaml: written, read back with patience, and compared with the run that is starting.
#include "core/checkpoint/provenance.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"

namespace fastllm::checkpoint {
namespace {

using config::Node;

// A scalar is told whole, so that two that differ never look alike. Lists and blocks are told only
// where the other side has none, and there their beginning is enough.
std::string text_of(const Node* node) {
  if (!node) return "absent";
  if (node->is_scalar()) return node->scalar_text();
  std::string text = config::to_json(*node);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
}

void compare(const std::string& path, const Node* before, const Node* now,
             std::vector<std::string>& lines);

// Entry by entry, without what is equal at both ends: one entry more or less is one line.
void compare_lists(const std::string& path, const Node& before, const Node& now,
                   std::vector<std::string>& lines) {
  const size_t shorter = std::min(before.size(), now.size());
  size_t head = 0, tail = 0;
  while (head < shorter && before.at(head) == now.at(head)) ++head;
  while (tail < shorter - head &&
         before.at(before.size() - 1 - tail) == now.at(now.size() - 1 - tail))
    ++tail;
  for (size_t i = head; i < std::max(before.size(), now.size()) - tail; ++i) {
    compare(config::join_path(path, std::to_string(i)),
            i < before.size() - tail ? &before.at(i) : nullptr,
            i < now.size() - tail ? &now.at(i) : nullptr, lines);
  }
}

void compare(const std::string& path, const Node* before, const Node* now,
             std::vector<std::string>& lines) {
  if (before && now && *before == *now) return;
  if (before && now && before->kind() == Node::Kind::kMap && now->kind() == Node::Kind::kMap) {
    for (size_t i = 0; i < now->size(); ++i) {
      if (now->key(i) != "path" || path.find("plugins.") != 0) {
        compare(config::join_path(path, now->key(i)), before->child(now->key(i)), &now->at(i),
                lines);
      }
    }
    for (size_t i = 0; i < before->size(); ++i) {
      if (!now->child(before->key(i)))
        compare(config::join_path(path, before->key(i)), &before->at(i), nullptr, lines);
    }
    return;
  }
  if (before && now && before->kind() == Node::Kind::kList && now->kind() == Node::Kind::kList)
    return compare_lists(path, *before, *now, lines);
  std::string was = text_of(before), is = text_of(now);
  if (was == is && before && now) {  // 1 and "1": told apart by their quotes
    was = config::to_json(*before);
    is = config::to_json(*now);
  }
  lines.push_back(fmt::format("{}: {} before, {} now", path, was, is));
}

}  // namespace

Node Provenance::to_node() const {
  Node node = Node::map();
  node.set("host_version", Node::text(host_version));
  node.set("host_sha256", Node::text(host_sha256));
  Node& plugins = node.set("plugins", Node::map());
  for (const Library& library : libraries) {
    Node entry = Node::map();
    entry.set("version", Node::text(library.version));
    entry.set("path", Node::text(library.path));
    entry.set("sha256", Node::text(library.sha256));
    plugins.set_child(library.id, std::move(entry));
  }
  node.set("libtorch", Node::text(libtorch));
  node.set("threads", Node::integer(threads));
  node.set("data", data);
  node.set("seed", Node::integer(seed));
  node.set("config", config);
  return node;
}

std::vector<std::string> differences(const Node& before, const Node& now) {
  std::vector<std::string> lines;
  compare("", &before, &now, lines);
  return lines;
}

void write_provenance(const std::filesystem::path& directory, const Node& provenance) {
  write_file_atomic(directory / kProvenanceName, config::to_yaml(provenance));
}

Node read_provenance(const std::filesystem::path& directory) {
  const auto path = directory / kProvenanceName;
  try {
    if (!path_exists(path)) return {};
    return config::parse_yaml(read_file(path, uint64_t(64) << 20), path.string());
  } catch (const Error& e) {
    log::warning(fmt::format("Cannot read {}, so this run cannot say what changed: {}",
                             path.string(), e.what()));
    return {};
  }
}

}  // namespace fastllm::checkpoint
