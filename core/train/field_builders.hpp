// Short words for declaring keys: a type with its default, then what narrows it.
// Internal to the field lists of core/train.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/config/schema.hpp"

namespace fastllm::train {

using config::Field;

inline Field key(config::Type type, std::string path, std::string fallback, int level,
                 std::string help) {
  Field field;
  field.path = std::move(path);
  field.type = type;
  field.fallback = std::move(fallback);
  field.level = level;
  field.help = std::move(help);
  return field;
}
inline Field integer(std::string path, std::string fallback, int level, std::string help) {
  return key(config::Type::kInt, std::move(path), std::move(fallback), level, std::move(help));
}
inline Field real(std::string path, std::string fallback, int level, std::string help) {
  return key(config::Type::kReal, std::move(path), std::move(fallback), level, std::move(help));
}
inline Field boolean(std::string path, std::string fallback, int level, std::string help) {
  return key(config::Type::kBool, std::move(path), std::move(fallback), level, std::move(help));
}
inline Field text(std::string path, std::string fallback, int level, std::string help) {
  return key(config::Type::kText, std::move(path), std::move(fallback), level, std::move(help));
}
inline Field choice(std::string path, std::string fallback, int level,
                    std::vector<std::string> choices, std::string help) {
  Field field = text(std::move(path), std::move(fallback), level, std::move(help));
  field.choices = std::move(choices);
  return field;
}
inline Field dtype(std::string path, std::string fallback, int level, std::string help) {
  return key(config::Type::kDtype, std::move(path), std::move(fallback), level, std::move(help));
}

inline Field at_least(double minimum, Field field) {
  field.minimum = minimum;
  return field;
}
inline Field above(double minimum, Field field) {
  field.minimum = minimum;
  field.exclusive_minimum = true;
  return field;
}
inline Field between(double minimum, double maximum, Field field) {
  field.minimum = minimum;
  field.maximum = maximum;
  return field;
}
// null_means: what null says, in two or three words.
inline Field nullable(std::string null_means, Field field) {
  field.nullable = true;
  field.null_means = std::move(null_means);
  return field;
}
inline Field required(Field field) {
  field.fallback = "null";
  field.required = true;
  return field;
}
inline Field no_effect(Field field) {
  field.policy = config::Policy::kNoEffect;
  return field;
}
inline Field refused(std::string reason, Field field) {
  field.policy = config::Policy::kRefused;
  field.policy_reason = std::move(reason);
  return field;
}
inline Field formerly(std::vector<std::string> old_paths, Field field) {
  field.aliases = std::move(old_paths);
  return field;
}

}  // namespace fastllm::train
