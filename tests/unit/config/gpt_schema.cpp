// Keys and computed defaults of gpt from its own sources, without loading the plugin.
#include "tests/unit/config/gpt_schema.hpp"

#include <fastllm/plugin.hpp>

#include "core/plugin/config_services.hpp"
#include "core/plugin/context.hpp"
#include "core/plugin/host_services.hpp"
#include "core/plugin/sink.hpp"
#include "core/train/settings/core_fields.hpp"
#include "plugins/models/gpt/config.hpp"
#include "plugins/models/gpt/fields.hpp"

namespace fastllm::test {
namespace {

std::vector<config::Field> gpt_fields() {
  fastllm_sink sink(plugin::Describing::kFields);
  gpt::declare_fields(sdk::Sink(plugin::emit_table(), &sink));
  sink.check();
  return sink.fields;
}

}  // namespace

config::Schema gpt_schema() {
  sdk::host_pointer() = plugin::host_table();
  config::Schema schema = train::make_core_schema();
  train::add_model_fields(schema, gpt_fields());
  return schema;
}

std::string fill_gpt_defaults(config::Node& root) {
  plugin::ConfigTree tree(*root.find("model.base_model"));
  try {
    gpt::read_config(sdk::Config(tree.handle()));
  } catch (const sdk::Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace fastllm::test
