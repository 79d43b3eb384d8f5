#include "tests/parity/gpt_model.hpp"

#include "core/config/resolve.hpp"

namespace fastllm::testing {

Overrides with(Overrides base, const Overrides& more) {
  base.insert(base.end(), more.begin(), more.end());
  return base;
}

plugin::ModelFactory& gpt() {
  static plugin::Registry registry({.paths = {}, .allow_insecure = true});
  static plugin::ModelFactory& factory = *registry.load(FASTLLM_GPT_PLUGIN).models().front();
  return factory;
}

std::unique_ptr<model::Model> make_gpt(const Overrides& shape, const Overrides& overrides) {
  static const config::Schema schema = [] {
    config::Schema s;
    s.add("base_model", gpt().fields());
    return s;
  }();
  Overrides all = with(shape, overrides);
  for (std::string& text : all) text = "base_model." + text;
  config::Node user = config::Node::map();
  config::apply_overrides(user, all);
  config::Node root = config::resolve(schema, user).root;
  return gpt().create(*root.find("base_model"));
}

}  // namespace fastllm::testing
