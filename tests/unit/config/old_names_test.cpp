// Old names of keys: every one that is declared is taken, with a warning that names the new one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/config/resolve.hpp"
#include "core/config/schema_impl.hpp"
#include "tests/unit/config/gpt_schema.hpp"

namespace fastllm {
namespace {

using config::Node;

const config::Schema& schema() {
  static const config::Schema the_schema = test::gpt_schema();
  return the_schema;
}

struct OldName {
  std::string old_path, path;  // from the root
  const config::Field* field;
};

// Paths, unlike keys, hold dots that mean steps.
std::string below(const std::string& at, const std::string& path) {
  return at.empty() ? path : at + "." + path;
}

void collect(const config::Block& block, const std::string& at, std::vector<OldName>& names) {
  for (const config::Alias& alias : block.aliases) {
    const config::Entry* entry = config::find_entry(block, alias.path);
    ASSERT_TRUE(entry && entry->field) << alias.path;
    names.push_back({below(at, alias.old_path), below(at, alias.path), entry->field.get()});
  }
  for (const config::Entry& entry : block.entries)
    if (entry.block) collect(*entry.block, config::join_path(at, entry.key), names);
}

std::vector<OldName> old_names() {
  std::vector<OldName> names;
  collect(schema().impl().root, "", names);
  return names;
}

// Two values of that key, the first one not its default.
std::pair<std::string, std::string> two_values(const config::Field& field) {
  if (field.type == config::Type::kBool)
    return field.fallback == "true" ? std::pair{"false", "true"} : std::pair{"true", "false"};
  if (!field.choices.empty()) return {field.choices[1], field.choices[0]};
  return {"0.25", "0.5"};
}

config::Resolved resolved(const std::vector<std::string>& overrides) {
  Node user = Node::map();
  config::apply_overrides(user, overrides);
  return config::examine(schema(), user);
}

TEST(OldNames, AreAllTakenWithAWarning) {
  for (const OldName& name : old_names()) {
    SCOPED_TRACE(name.old_path);
    const auto [value, other] = two_values(*name.field);
    const auto by_old = resolved({name.old_path + "=" + value});
    const auto by_new = resolved({name.path + "=" + value});
    EXPECT_EQ(by_old.problems, "");
    EXPECT_EQ(by_new.problems, "");
    EXPECT_THAT(by_old.warnings, testing::Contains("command line: " + name.old_path +
                                                   ": old name; write " + name.path));
    ASSERT_TRUE(by_old.root.find(name.path));
    EXPECT_EQ(*by_old.root.find(name.path), *by_new.root.find(name.path));
    EXPECT_FALSE(*by_old.root.find(name.path) == *resolved({}).root.find(name.path));
    EXPECT_EQ(by_old.root, by_new.root);
  }
}

TEST(OldNames, BesideTheNewOneMustSayTheSame) {
  for (const OldName& name : old_names()) {
    SCOPED_TRACE(name.old_path);
    const auto [value, other] = two_values(*name.field);
    EXPECT_EQ(resolved({name.old_path + "=" + value, name.path + "=" + value}).problems, "");
    EXPECT_THAT(resolved({name.old_path + "=" + value, name.path + "=" + other}).problems,
                testing::StartsWith("command line: " + name.old_path + ": old name of " +
                                    name.path + ", which has another value"));
  }
}

// Those of the reference's keys, so that none is lost.
TEST(OldNames, AreThoseOfTheReference) {
  std::set<std::string> names;
  for (const OldName& name : old_names()) names.insert(name.old_path);
  const std::string model = "model.base_model.";
  EXPECT_EQ(names,
            (std::set<std::string>{
                "pretrained.load_optimizer", "pretrained.load_weights", model + "match_megatron",
                model + "transformer.layer_norm_eps", model + "transformer.layer_norm_impl",
                model + "transformer.layer_norm_init_range",
                model + "transformer.normalization_implementation",
                model + "transformer.normalization_type", model + "transformer.triton_rotary",
                model + "transformer.use_rotary_embeddings",
                model + "transformer.zero_centered_normalization"}));
}

}  // namespace
}  // namespace fastllm
