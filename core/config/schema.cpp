// The tree of declared keys as it is filled, and lookups in it.
#include "core/config/schema.hpp"

#include <fmt/format.h>

#include <set>

#include "core/base/error.hpp"
#include "core/config/schema_impl.hpp"
#include "core/config/value.hpp"

namespace fastllm::config {
namespace {

[[noreturn]] void bad_declaration(const std::string& block, const std::string& path,
                                  const std::string& what) {
  throw Error(Status::kInternal, fmt::format("declaration of the configuration key {}: {}",
                                             block.empty() ? path : block + "." + path, what));
}

// The block at `path` below `block`, made where it is missing.
Block& make_block(Block& block, const std::vector<std::string>& steps, const std::string& path) {
  Block* current = &block;
  for (const std::string& step : steps) {
    Entry* found = nullptr;
    for (Entry& entry : current->entries)
      if (entry.key == step) found = &entry;
    if (found && !found->block) bad_declaration("", path, "expected a block above it, found a key");
    if (!found) {
      auto at = current->entries.end();
      if (current->type_last && !current->entries.empty()) --at;
      Entry entry;
      entry.key = step;
      entry.block = std::make_unique<Block>();
      found = &*current->entries.insert(at, std::move(entry));
    }
    current = found->block.get();
  }
  return *current;
}

// Where `block` of add() is: the root's, or that of a family's type ("dataset:slice").
Block& top_block(Schema::Impl& impl, const std::string& block, std::vector<std::string>& steps) {
  size_t colon = block.find(':');
  if (colon == std::string::npos) {
    steps = split_path(block);
    return impl.root;
  }
  auto family = impl.families.find(block.substr(0, colon));
  if (family == impl.families.end()) bad_declaration(block, "", "expected a declared family");
  auto found = family->second.blocks.find(block.substr(colon + 1));
  if (found == family->second.blocks.end()) bad_declaration(block, "", "expected a declared type");
  return found->second;
}

Entry& add_entry(Schema::Impl& impl, const std::string& block, const std::string& path) {
  std::vector<std::string> steps;
  Block& top = top_block(impl, block, steps);
  for (const std::string& step : split_path(path)) steps.push_back(step);
  if (steps.empty() || steps.back().empty()) bad_declaration(block, path, "expected a name");
  std::string key = steps.back();
  steps.pop_back();
  Block& holder = make_block(top, steps, path);
  if (holder.find(key)) bad_declaration(block, path, "expected once, found twice");
  auto at = holder.entries.end();
  if (holder.type_last && !holder.entries.empty()) --at;
  Entry entry;
  entry.key = key;
  return *holder.entries.insert(at, std::move(entry));
}

}  // namespace

const Entry* Block::find(const std::string& key) const {
  for (const Entry& entry : entries)
    if (entry.key == key) return &entry;
  return nullptr;
}

const Block* Block::named() const {
  const Entry* entry = find(kAnyName);
  return entry ? entry->block.get() : nullptr;
}

const Entry* Block::main_key(const Node& value) const {
  static const std::set<std::string> kMainKeys = {"type", "base", "interval", "path"};
  for (const Entry& entry : entries) {
    if (!entry.field || (!kMainKeys.contains(entry.key) && entry.field->choices.empty())) continue;
    Node converted = value;
    if (check_value(*entry.field, converted).empty()) return &entry;
  }
  return nullptr;
}

Schema::Schema() : impl_(std::make_unique<Impl>()) {}
Schema::~Schema() = default;
Schema::Schema(Schema&&) noexcept = default;
Schema& Schema::operator=(Schema&&) noexcept = default;

void Schema::add(const std::string& block, const Field& field) {
  // A declared default must be one: null is allowed as "computed later".
  Node fallback = parse_yaml(field.fallback, "default");
  if (!fallback.is_null()) {
    if (std::string problem = check_value(field, fallback); !problem.empty())
      bad_declaration(block, field.path, "its default: " + problem);
  }
  add_entry(*impl_, block, field.path).field = std::make_unique<Field>(field);
  std::vector<std::string> steps;
  Block& top = make_block(top_block(*impl_, block, steps), steps, block);
  for (const std::string& old : field.aliases) top.aliases.push_back({old, field.path});
}

void Schema::add(const std::string& block, const std::vector<Field>& fields) {
  for (const Field& field : fields) add(block, field);
}

void Schema::add(const std::string& block, const Nested& nested) {
  if (!impl_->families.count(nested.family))
    bad_declaration(block, nested.path, "expected a declared family");
  add_entry(*impl_, block, nested.path).nested = std::make_unique<Nested>(nested);
}

void Schema::add_family(const std::string& family, const std::string& help) {
  impl_->families[family].help = help;
}

void Schema::add_type(const std::string& family, const std::string& type, const std::string& help,
                      bool type_last) {
  Family& target = impl_->families[family];
  target.types.push_back(type);
  Block& block = target.blocks[type];
  block.help = help;
  Field key{.path = "type",
            .type = Type::kText,
            .fallback = type,
            .help = "Says which keys this block has.",
            .level = kCore};
  key.choices = {type};
  add(family + ":" + type, key);
  block.type_last = type_last;
}

void Schema::describe(const std::string& block, const std::string& help) {
  std::vector<std::string> steps;
  Block& top = top_block(*impl_, block, steps);
  make_block(top, steps, block).help = help;
}

void Schema::add_later_name(const std::string& path, const std::string& today) {
  impl_->later_names.push_back({path, today});
}

void Schema::add_later_type(const std::string& family, const std::string& type,
                            const std::string& today) {
  impl_->families.at(family).later_types[type] = today;
}

std::string check_name(const std::string& name) {
  const char* const kLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
  if (!name.empty() && name.find_first_not_of(kLetters) == std::string::npos) return "";
  return fmt::format("expected a name of letters, digits, _ and -, found \"{}\"", name);
}

const Entry* find_entry(const Block& root, const std::string& path) {
  const Block* block = &root;
  const Entry* entry = nullptr;
  for (const std::string& step : split_path(path)) {
    entry = block ? block->find(step) : nullptr;
    if (!entry) return nullptr;
    block = entry->block.get();
  }
  return entry;
}

namespace {

void collect_paths(const Block& block, const std::string& prefix, std::vector<std::string>& paths) {
  for (const Entry& entry : block.entries) {
    if (entry.key == kAnyName) continue;
    std::string path = join_path(prefix, entry.key);
    paths.push_back(path);
    if (entry.block) collect_paths(*entry.block, path, paths);
  }
}

}  // namespace

std::vector<std::string> declared_paths(const Block& root) {
  std::vector<std::string> paths;
  collect_paths(root, "", paths);
  return paths;
}

const Family& family_of(const Schema& schema, const Nested& nested) {
  return schema.impl().families.at(nested.family);
}

std::vector<std::string> types_of(const Schema& schema, const Nested& nested) {
  return nested.types.empty() ? family_of(schema, nested).types : nested.types;
}

}  // namespace fastllm::config
