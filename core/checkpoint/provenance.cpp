#include "core/checkpoint/provenance.hpp"

#include <fmt/format.h>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/log.hpp"

namespace fastllm::checkpoint {
namespace {

using config::Node;

std::string short_text(const Node& node) {
  if (node.is_scalar()) return node.scalar_text();
  std::string text = config::to_json(node);
  return text.size() > 80 ? text.substr(0, 77) + "..." : text;
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
  lines.push_back(fmt::format("{}: {} before, {} now", path,
                              before ? short_text(*before) : "absent",
                              now ? short_text(*now) : "absent"));
}

}  // namespace

Node Provenance::to_node() const {
  Node node = Node::map();
  node.set("host_version", Node::text(host_version));
  Node& plugins = node.set("plugins", Node::map());
  for (const Library& library : libraries) {
    Node entry = Node::map();
    entry.set("version", Node::text(library.version));
    entry.set("path", Node::text(library.path));
    entry.set("sha256", Node::text(library.sha256));
    plugins.set_child(library.id, std::move(entry));
  }
  node.set("libtorch", Node::text(libtorch));
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
    if (!std::filesystem::exists(path)) return {};
    return config::parse_yaml(read_file(path, uint64_t(64) << 20), path.string());
  } catch (const Error& e) {
    log::warning(fmt::format("Cannot read {}, so this run cannot say what changed: {}",
                             path.string(), e.what()));
    return {};
  }
}

}  // namespace fastllm::checkpoint
