// metadata.yaml in and out. The parser is the host's; the text is made here, since its bytes are
// part of the format.
#include "metadata.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string_view>

#include "file.hpp"
#include "text.hpp"

namespace fastllm::distributed {
namespace {

constexpr uint64_t kMetadataLimit = uint64_t(16) << 20;  // bytes
constexpr int64_t kRankLimit = 1 << 20;

// The keys this format has; anything else the host carries along (options, attachments) stays out
// of the file.
constexpr const char* kKeys[] = {"config", "fast_llm_version", "format", "metadata", "model",
                                 "shards"};

void copy_node(sdk::Config node, const char* from, const char* to) {
  fastllm_config* child = nullptr;
  sdk::check(sdk::host().config_get(node.constant(), from, FASTLLM_NODE, &child));
  sdk::check(sdk::host().config_set(node.handle(), to, FASTLLM_NODE, &child, 1));
}

// Names of before the 0.1 release.
void rename_old_keys(sdk::Config node, const std::string& path) {
  if (node.size("config") < 0 && node.size("fast_llm_config") >= 0)
    copy_node(node, "fast_llm_config", "config");
  if (node.size("shards") < 0 && node.size("state_shard_names") >= 0)
    copy_node(node, "state_shard_names", "shards");
  if (node.size("fast_llm_version") < 0)
    node.set("fast_llm_version", node.optional<std::string>("checkpoint_version").value_or("0"));
  if (node.size("format") < 0)
    node.set("format", node.optional<std::string>("checkpoint_type").value_or("distributed"));
  if (node.size("model") < 0) node.set("model", "gpt");
  if (node.size("config") < 0) {
    sdk::fail(FASTLLM_UNSUPPORTED,
              cat("expected the model's configuration under `config` in ", path,
                  ", found none; the file is damaged or older than release 0.1"));
  }
}

// "0.2.0" -> 0, 2. A part that is missing counts as 0.
bool parse_version(const std::string& text, int& major, int& minor) {
  const char* end = text.data() + text.size();
  major = minor = 0;
  auto [after_major, code] = std::from_chars(text.data(), end, major);
  if (code != std::errc()) return false;
  if (after_major == end) return true;
  if (*after_major != '.') return false;
  auto [after_minor, minor_code] = std::from_chars(after_major + 1, end, minor);
  return minor_code == std::errc() && (after_minor == end || *after_minor == '.');
}

bool is_identifier(const std::string& text) {
  return !text.empty() && text.size() < 100 &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isalnum(c) || c == '_'; });
}

// ---------------------------------------------------------------- writing

std::string join(const std::string& path, const std::string& key) {
  std::string escaped;
  for (char c : key) escaped += c == '.' ? std::string("\\.") : std::string(1, c);
  return path.empty() ? escaped : path + "." + escaped;
}

enum class Kind { kScalar, kList, kMap };
Kind kind_of(sdk::Config node, const std::string& path) {
  const std::string text = node.text(path, /*json=*/true);
  return text.starts_with('{') ? Kind::kMap : text.starts_with('[') ? Kind::kList : Kind::kScalar;
}

std::string scalar(sdk::Config node, const std::string& path) {
  std::string text = node.size(path) < 0 ? "null" : node.text(path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

// A key as YAML; nearly always itself. Quoting is the host's: a mapping of that one key to null
// ends in ": null".
std::string quoted_key(const std::string& key) {
  const bool plain = !key.empty() && !std::isdigit(static_cast<unsigned char>(key[0])) &&
                     std::all_of(key.begin(), key.end(),
                                 [](unsigned char c) { return std::isalnum(c) || c == '_'; });
  if (plain && key != "null" && key != "true" && key != "false" && key != "yes" && key != "no" &&
      key != "on" && key != "off")
    return key;
  std::string quoted = "'";
  for (char c : key) quoted += c == '\'' ? std::string("''") : std::string(1, c);
  return quoted + "'";
}

// Block style at the given indent, nothing for an empty block. Lists sit at the indent of their
// key.
std::string block(sdk::Config node, const std::string& path, const std::string& indent);

std::string entry(sdk::Config node, const std::string& path, const std::string& indent,
                  const std::string& lead) {
  const Kind kind = kind_of(node, path);
  if (kind == Kind::kScalar) return indent + lead + " " + scalar(node, path) + "\n";
  std::string inner = block(node, path, kind == Kind::kMap ? indent + "  " : indent);
  if (inner.empty()) return "";
  return indent + lead + "\n" + inner;
}

std::string block(sdk::Config node, const std::string& path, const std::string& indent) {
  std::string text;
  const int64_t count = std::max<int64_t>(node.size(path), 0);
  if (kind_of(node, path) == Kind::kMap) {
    std::vector<std::string> keys;
    for (int64_t i = 0; i < count; ++i) keys.push_back(node.key(path, i));
    std::sort(keys.begin(), keys.end());
    for (const std::string& key : keys)
      text += entry(node, join(path, key), indent, quoted_key(key) + ":");
    return text;
  }
  for (int64_t i = 0; i < count; ++i) {
    const std::string item = join(path, std::to_string(i));
    if (kind_of(node, item) == Kind::kScalar) {
      text += indent + "- " + scalar(node, item) + "\n";
      continue;
    }
    // A block in a list starts on the dash's line, where its own indent would have been.
    std::string inner = block(node, item, indent + "  ");
    if (inner.empty())
      inner = indent + "  " + (kind_of(node, item) == Kind::kMap ? "{}" : "[]") + "\n";
    inner[indent.size()] = '-';
    text += inner;
  }
  return text;
}

}  // namespace

Header read_metadata(const std::string& path, sdk::Config metadata) {
  const std::string file = path + "/metadata.yaml";
  const std::string text = read_text(file, kMetadataLimit);
  metadata.parse("", text);
  if (kind_of(metadata, "") != Kind::kMap) {
    sdk::fail(FASTLLM_DATA_LOSS, cat("expected keys and values in ", file,
                                     ", found something else; the checkpoint is damaged"));
  }
  rename_old_keys(metadata, file);

  Header header;
  header.version = metadata.get<std::string>("fast_llm_version");
  int major = 0, minor = 0;
  if (!parse_version(header.version, major, minor) || major != 0 || minor > 4) {
    sdk::fail(FASTLLM_UNSUPPORTED, cat("expected fast_llm_version 0.0 to 0.4 in ", file, ", found ",
                                       header.version, "; written by a newer program?"));
  }
  header.later_names = minor >= 3;

  if (const auto format = metadata.get<std::string>("format"); format != "distributed") {
    sdk::fail(FASTLLM_INVALID, cat("expected format distributed in ", file, ", found ", format,
                                   "; set the format to that"));
  }
  header.shards = metadata.texts("shards");
  if (header.shards.empty() || header.shards[0] != "weights") {
    sdk::fail(FASTLLM_DATA_LOSS,
              cat("expected `shards` to be a list that begins with weights in ", file, ", found ",
                  header.shards.empty() ? "none" : header.shards[0]));
  }
  for (size_t i = 0; i < header.shards.size(); ++i) {
    if (!is_identifier(header.shards[i]) ||
        std::count(header.shards.begin(), header.shards.end(), header.shards[i]) > 1) {
      sdk::fail(FASTLLM_DATA_LOSS, cat("expected `shards` to name each state once in ", file,
                                       ", found '", header.shards[i], "'"));
    }
  }
  const int64_t ranks = metadata.optional<int64_t>("config.distributed.world_size").value_or(1);
  if (ranks < 1 || ranks > kRankLimit) {
    sdk::fail(FASTLLM_DATA_LOSS, cat("expected config.distributed.world_size from 1 to ",
                                     kRankLimit, " in ", file, ", found ", ranks));
  }
  header.ranks = int(ranks);
  return header;
}

std::string metadata_text(sdk::Config metadata) {
  std::string text;
  for (const char* key : kKeys) {
    if (!std::strcmp(key, "fast_llm_version")) {
      text += cat("fast_llm_version: ", kWrittenVersion, "\n");
    } else if (!std::strcmp(key, "format")) {
      text += "format: distributed\n";
    } else if (metadata.size(key) >= 0) {
      text += entry(metadata, key, "", cat(key, ":"));
    }
  }
  return text;
}

std::map<std::string, std::string> metadata_entries(sdk::Config metadata) {
  std::map<std::string, std::string> entries{{"fast_llm_version", kWrittenVersion},
                                             {"format", "distributed"}};
  for (const char* key : kKeys) {
    if (metadata.size(key) < 0 || entries.contains(key)) continue;
    if (kind_of(metadata, key) == Kind::kScalar) {
      entries[key] = metadata.get<std::string>(key);
    } else if (std::string inner = block(metadata, key, ""); !inner.empty()) {
      entries[key] = inner;
    }
  }
  return entries;
}

}  // namespace fastllm::distributed
