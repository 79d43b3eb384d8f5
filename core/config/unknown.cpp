// Looks for a later name, for the same key elsewhere, and for a near name.
#include "core/config/unknown.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/config/suggest.hpp"

namespace fastllm::config {

UnknownKeys::UnknownKeys(const Schema& schema)
    : schema_(schema.impl()), paths_(declared_paths(schema_.root)) {}

bool UnknownKeys::applies(const LaterName& name) const {
  if (name.today.empty()) return true;
  const Block* block = &schema_.root;
  for (const std::string& step : split_path(name.today.substr(0, name.today.find_first_of(" ,")))) {
    const Entry* entry = block ? block->find(step) : nullptr;
    if (!entry) return false;
    if (entry->nested) return true;  // below are free names and types
    block = entry->block.get();
  }
  return true;
}

const LaterName* UnknownKeys::later_name(const std::string& path) const {
  for (const LaterName& name : schema_.later_names)
    if (name.path == path && applies(name)) return &name;
  return nullptr;
}

bool UnknownKeys::begins_later_name(const std::string& path) const {
  for (const LaterName& name : schema_.later_names)
    if (name.path.rfind(path + ".", 0) == 0 && applies(name)) return true;
  return false;
}

std::string later_text(const std::string& today) {
  return "name of a later release; " +
         (today.empty() ? "nothing like it today" : "today: " + today);
}

std::vector<UnknownKey> UnknownKeys::explain(const std::string& block,
                                             const std::vector<std::string>& siblings,
                                             const std::string& key, const Node& value) const {
  std::string path = join_path(block, key);
  const LaterName* name = later_name(path);
  const bool inside =
      value.kind() == Node::Kind::kMap && value.size() > 0 && begins_later_name(path);
  std::vector<UnknownKey> result;
  size_t explained = 0;
  for (size_t i = 0; inside && i < value.size(); ++i) {
    const std::string below = join_path(path, value.key(i));
    if (name && !is_later_name(below) && !begins_later_name(below)) continue;
    for (UnknownKey& unknown : explain(path, {}, value.key(i), value.at(i)))
      result.push_back(std::move(unknown));
    ++explained;
  }
  if (name && (explained == 0 || explained < value.size()))
    result.insert(result.begin(), {path, later_text(name->today), value.mark});
  if (!result.empty()) return result;
  if (std::string meant = nearest(key, siblings); !meant.empty())
    return {
        {path, fmt::format("unknown key; did you mean {}?", join_path(block, meant)), value.mark}};
  return {{path, elsewhere(block, key, value), value.mark}};
}

std::string UnknownKeys::elsewhere(const std::string& block, const std::string& key,
                                   const Node& value) const {
  constexpr size_t kMostShown = 3;
  std::vector<std::string> found;
  for (const std::string& path : paths_) {
    std::vector<std::string> steps = split_path(path);
    if (steps.back() != key) continue;
    // One level deeper: block, one step, key.
    bool below = block.empty() || path.rfind(block + ".", 0) == 0;
    if (below && steps.size() == split_path(block).size() + 2)
      return fmt::format("unknown key here; belongs one level deeper: {}", path);
    const Entry* entry = find_entry(schema_.root, path);
    const Entry* main =
        entry && entry->block && value.is_scalar() ? entry->block->main_key(value) : nullptr;
    found.push_back(main ? join_path(path, main->key) : path);
  }
  if (found.empty()) return "unknown key";
  if (found.size() > kMostShown) found.resize(kMostShown);
  return fmt::format("unknown here; exists as {}", fmt::join(found, ", "));
}

}  // namespace fastllm::config
