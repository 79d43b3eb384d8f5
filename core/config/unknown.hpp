// What to say of a key that nobody declared. Internal to core/config.
#pragma once

#include <string>
#include <vector>

#include "core/config/node.hpp"
#include "core/config/schema_impl.hpp"

namespace fastllm::config {

struct UnknownKey {
  std::string path, text;  // full path; "unknown key; did you mean ..."
  Mark mark;
};

// today: what to write instead, "": nothing. "name of a later release; today: ..."
std::string later_text(const std::string& today);

class UnknownKeys {
 public:
  explicit UnknownKeys(const Schema& schema);
  // block: full path of the block that holds the key; siblings: the keys known there. A block of a
  // later release's names gives one entry for each of them; a block that is such a name itself, one
  // for those inside that have none of their own.
  std::vector<UnknownKey> explain(const std::string& block,
                                  const std::vector<std::string>& siblings, const std::string& key,
                                  const Node& value) const;
  bool is_later_name(const std::string& path) const { return later_name(path) != nullptr; }

 private:
  const LaterName* later_name(const std::string& path) const;
  bool begins_later_name(const std::string& path) const;
  bool applies(const LaterName& name) const;
  std::string elsewhere(const std::string& block, const std::string& key, const Node& value) const;

  const Schema::Impl& schema_;
  std::vector<std::string> paths_;  // all that are declared
};

}  // namespace fastllm::config
