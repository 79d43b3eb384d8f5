// Reading a configuration file and the "a.b.c=VALUE" arguments over it (docs/compatibility.md).
#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/config/builder.hpp"
#include "core/config/resolve.hpp"
#include "core/config/value.hpp"

namespace fastllm::config {
namespace {

const auto kCommandLine = std::make_shared<const std::string>("command line");

// The lines of an argument mean nothing to a reader.
void mark_as_command_line(Node& node) {
  node.mark = Mark{kCommandLine, 0};
  node.explicitly_set = true;
  for (size_t i = 0; i < node.size(); ++i) mark_as_command_line(node.at(i));
}

// Sets the value at its path, making blocks on the way. Returns what is wrong with the path.
std::string set_override(Node& root, const std::vector<std::string>& steps, Node value) {
  Node* node = &root;
  std::string walked;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (node->kind() != Node::Kind::kMap) {
      const char* hint = node->kind() == Node::Kind::kList ? "; give the whole list" : "";
      return fmt::format("{}: expected a block to put {} in, found {}{}", walked, steps[i],
                         found_text(*node), hint);
    }
    Node* next = node->child(steps[i]);
    if (!next) {
      Node block = Node::map();
      block.mark = Mark{kCommandLine, 0};
      block.explicitly_set = true;
      next = &node->set_child(steps[i], std::move(block));
    }
    node = next;
    walked = join_path(walked, steps[i]);
  }
  *node = std::move(value);
  return "";
}

}  // namespace

Node load_file(const std::string& path) {
  if (!path_exists(path)) {
    throw Error(Status::kNotFound,
                fmt::format("expected a configuration file at {}, found none; check the path, "
                            "relative ones begin at the working directory",
                            path));
  }
  Node root = parse_yaml(read_file(path, kMaximumTextBytes), path);
  if (root.is_null()) return Node::map();
  if (root.kind() != Node::Kind::kMap) {
    throw Error(Status::kInvalid, fmt::format("{}: expected a block of keys at the top, found {}",
                                              root.mark.text(), found_text(root)));
  }
  return root;
}

void apply_overrides(Node& user, const std::vector<std::string>& arguments) {
  std::string unreadable, details;
  // A path given twice: its last value, in the place of the first.
  std::vector<std::pair<std::string, Node>> values;
  for (const std::string& argument : arguments) {
    size_t equals = argument.find('=');
    std::string problem;
    if (equals == std::string::npos || equals == 0) {
      problem = "expected key.path=VALUE";
    } else {
      std::string path = argument.substr(0, equals);
      auto steps = split_path(path);
      if (std::find(steps.begin(), steps.end(), "") != steps.end()) {
        problem = "expected key.path=VALUE with a name on both sides of each dot";
      } else {
        try {
          Node value = parse_yaml(argument.substr(equals + 1), "VALUE");
          mark_as_command_line(value);
          auto same = std::find_if(values.begin(), values.end(),
                                   [&](const auto& entry) { return entry.first == path; });
          if (same == values.end())
            values.emplace_back(path, std::move(value));
          else
            same->second = std::move(value);
        } catch (const Error& error) {
          problem = error.what();
        }
      }
    }
    if (problem.empty()) continue;
    unreadable += " " + argument;
    details += fmt::format("\ncommand line: {}: {}", argument, problem);
  }
  if (!unreadable.empty())
    throw Error(Status::kInvalid, "Cannot parse arguments" + unreadable + details);
  std::string problems;
  for (auto& [path, value] : values) {
    std::string problem = set_override(user, split_path(path), std::move(value));
    if (!problem.empty()) problems += (problems.empty() ? "" : "\n") + ("command line: " + problem);
  }
  if (!problems.empty()) throw Error(Status::kInvalid, problems);
}

}  // namespace fastllm::config
