// From what the user wrote to the resolved configuration, and from there to dumps, help and the
// JSON Schema.
// A problem never stops the search for more: all are reported in one Error(kInvalid), one a line,
// each "file:line: full.key.path: what was expected, what was found; what to write".
#pragma once

#include <string>
#include <vector>

#include "core/config/node.hpp"
#include "core/config/schema.hpp"

namespace fastllm::config {

// Reads a YAML file. Not there, no mapping at the root: Error.
Node load_file(const std::string& path);

// Applies "a.b.c=VALUE" arguments (VALUE is YAML; empty is null), left to right, E1's rules
// (docs/compatibility.md).
// Arguments without "=" or with bad YAML are collected into one error.
void apply_overrides(Node& user, const std::vector<std::string>& arguments);

struct Resolved {
  Node root;  // every declared key, in order of declaration, defaults filled in
  std::vector<std::string> warnings;  // old names accepted, values without effect here
  std::string problems;               // one a line, in the order of the file; "": none
};

// Checks and fills. Cross-field rules belong to who owns the fields (core/train/settings, a
// plugin's create()).
Resolved resolve(const Schema& schema, const Node& user);
// The same without throwing: what is wrong has its default in `root`, so that the rest can be shown
// beside the problems.
Resolved examine(const Schema& schema, const Node& user);
// A block of a family on its own, as a file may hold one ("dataset"). path: where it stands, for
// messages; "": the root.
Node resolve_typed(const Schema& schema, const std::string& family, const Node& user,
                   const std::string& path = {});

// What a dump of that verbosity holds (docs/compatibility.md). verbosity < 0: everything.
Node dump(const Schema& schema, const Node& resolved, int verbosity);
// The form that is logged: an empty line, the title in dashes, the YAML, "--- end ---".
std::string printed(const Node& dumped, const std::string& title);

// JSON Schema (draft 2020-12) that an editor's YAML plugin can use.
std::string json_schema(const Schema& schema, const std::string& title);
// The reference page: one table a block.
std::string markdown_reference(const Schema& schema);

// "file:line: path" of a value, for messages made after resolving; path alone when it came from a
// default.
std::string where(const Node& root, const std::string& path);

}  // namespace fastllm::config
