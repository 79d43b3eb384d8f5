// Plugins that know nothing of each other share nothing, however carelessly they were built.
#include <gtest/gtest.h>

#include "core/plugin/registry.hpp"

namespace fastllm {
namespace {

TEST(Twins, EachServesItsOwnModel) {
  plugin::Registry registry(plugin::SearchOptions{{FASTLLM_TEST_PLUGINS}, false});
  for (const char* name : {"castor", "pollux"}) {
    auto& factory = *registry.load(name).models().at(0);
    EXPECT_EQ(factory.type(), name);
    config::Node nothing = config::Node::map();
    const auto model = factory.create(nothing);
    EXPECT_EQ(model->description().layers.at(0).name, std::string("layers.") + name);
  }
}

}  // namespace
}  // namespace fastllm
