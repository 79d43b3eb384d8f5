// The tree of declared keys behind Schema. Internal to core/config.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/config/schema.hpp"

namespace fastllm::config {

struct Block;

// One key of a block: exactly one of the three is there.
struct Entry {
  std::string key;
  std::unique_ptr<Field> field;
  std::unique_ptr<Block> block;
  std::unique_ptr<Nested> nested;
};

struct Alias {
  std::string old_path, path;  // below the block that holds the alias
};

struct Block {
  std::string help;
  std::vector<Entry> entries;  // in the order of dumps
  std::vector<Alias> aliases;
  bool type_last = false;  // of a family's type: the key `type` stays the last entry

  const Entry* find(const std::string& key) const;
  // What blocks of the user's own naming hold; null: there is no place for them.
  const Block* named() const;
  // The field that a value written for the whole block was surely meant for: one of the names that
  // stand for their block (type, base, interval, path), or one whose choices hold the value.
  const Entry* main_key(const Node& value) const;
};

struct Family {
  std::string help;
  std::vector<std::string> types;                  // in order of declaration
  std::map<std::string, Block> blocks;             // by type
  std::map<std::string, std::string> later_types;  // of a later release; what to write today
};

struct LaterName {
  std::string path, today;
};

struct Schema::Impl {
  Block root;
  std::map<std::string, Family> families;
  std::vector<LaterName> later_names;
};

constexpr const char* kAnyName = "*";

// "": a name for a block; else what is wrong with it.
std::string check_name(const std::string& name);

// Entry at a path of declared keys that are no family's; nullptr: not declared.
const Entry* find_entry(const Block& root, const std::string& path);
// Full paths of all blocks and keys below the root that are no family's, in order of declaration.
std::vector<std::string> declared_paths(const Block& root);
const Family& family_of(const Schema& schema, const Nested& nested);
// The types allowed at that place, in order of declaration.
std::vector<std::string> types_of(const Schema& schema, const Nested& nested);

}  // namespace fastllm::config
