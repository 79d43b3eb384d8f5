// Comparing architectures key by key; real numbers by value, whatever they are spelled like.
#include "core/checkpoint/model_identity.hpp"

#include <fmt/format.h>

namespace fastllm::checkpoint {

using config::Node;

std::vector<std::string> architecture_differences(const ModelIdentity& model,
                                                  const Node& checkpoint_base_model) {
  const Node theirs = model.resolve ? model.resolve(checkpoint_base_model) : checkpoint_base_model;
  auto text = [](const Node* node) {
    return !node ? "absent" : node->is_scalar() ? node->scalar_text() : config::to_json(*node);
  };
  std::vector<std::string> lines;
  for (const config::Field& field : model.fields) {
    if (!field.architecture || field.derived) continue;
    const Node* there = theirs.find(field.path);
    const Node* here = model.base_model.find(field.path);
    if (!there && !model.resolve) continue;
    const bool numbers = there && here && there->is_scalar() && here->is_scalar() &&
                         field.type == config::Type::kReal && !there->is_null() && !here->is_null();
    const bool equal = numbers ? there->as_real() == here->as_real()
                               : (there ? *there : Node()) == (here ? *here : Node());
    if (!equal)
      lines.push_back(fmt::format("{} is {} in the checkpoint and {} here", field.path, text(there),
                                  text(here)));
  }
  return lines;
}

}  // namespace fastllm::checkpoint
