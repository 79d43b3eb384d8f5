#include "apps/host/job.hpp"

#include <fmt/format.h>

#include <sstream>

#include "core/base/error.hpp"
#include "core/plugin/stage_tables.hpp"
#include "core/train/settings/core_fields.hpp"

namespace fastllm::host {
namespace {

const char* const kModelBlock = "model.base_model";

// A plugin names keys below its own block; the user sees whole keys with file and line.
std::vector<std::string> with_places(const std::string& lines, const config::Node& root) {
  std::vector<std::string> result;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    size_t colon = line.find(": ");
    std::string path = colon == std::string::npos ? "" : line.substr(0, colon);
    std::string whole = std::string(kModelBlock) + "." + path;
    if (!path.empty() && root.has(whole)) line = config::where(root, whole) + line.substr(colon);
    result.push_back(std::move(line));
  }
  return result;
}

// The plugin's only model, or the one that the command line names.
plugin::ModelFactory& choose_model(const plugin::Plugin& plugin, const std::string& wanted) {
  const std::string name = fmt::format("{} ({})", plugin.info().id, plugin.info().path);
  if (plugin.models().empty()) {
    throw Error(Status::kInvalid, fmt::format("expected a plugin with a model, found {}, "
                                              "which has none; see fastllm-host plugins",
                                              name));
  }
  if (wanted.empty() && plugin.models().size() == 1) return *plugin.models().front();
  std::vector<std::string> types;
  for (const auto& factory : plugin.models()) {
    if (factory->type() == wanted) return *factory;
    types.push_back(factory->type());
  }
  throw UsageError{fmt::format("--model: expected a model of the plugin {}, found {}; write {}",
                               name, wanted.empty() ? "none" : wanted, fmt::join(types, " or "))};
}

}  // namespace

Job::Job(const Options& options)
    : options_(options),
      registry_({options.plugin_paths, options.allow_insecure_plugins}),
      schema_(train::make_core_schema()) {
  if (options.plugin.empty()) {
    std::string found;
    for (const auto& candidate : registry_.list()) {
      if (candidate.refused.empty() && !candidate.shadowed && !candidate.manifest.models.empty())
        found += " " + candidate.name;
    }
    throw UsageError{"expected --plugin NAME, the model to train, found none; there are:" +
                     (found.empty() ? std::string(" none (see fastllm-host plugins)") : found)};
  }
  plugin::offer_stage_tables();  // before any plugin asks for them
  plugin::Plugin& plugin = registry_.load(options.plugin);
  factory_ = &choose_model(plugin, options.model);
  train::add_model_fields(schema_, factory_->fields());
}

Job::~Job() {
  model_.reset();  // before the plugin's shutdown
  registry_.shutdown();
}

const std::string& Job::model_type() const { return factory_->type(); }

checkpoint::ModelIdentity Job::identity() {
  checkpoint::ModelIdentity identity;
  identity.type = factory_->type();
  identity.base_model = *resolved_.root.find(kModelBlock);
  identity.fields = factory_->fields();
  identity.resolve = [this](const config::Node& base_model) {
    config::Node completed;
    complete(base_model, completed);
    return completed;
  };
  return identity;
}

model::Description Job::describe(const config::Node& metadata) {
  const std::string type = metadata.get<std::string>("model");
  if (type != factory_->type()) {
    throw Error(Status::kInvalid,
                fmt::format("expected a checkpoint of model {}, found one of {}; use --plugin {}",
                            factory_->type(), type, type));
  }
  const config::Node* base_model = metadata.find("config.base_model");
  config::Node completed;
  return complete(base_model ? *base_model : config::Node::map(), completed)->description();
}

std::unique_ptr<model::Model> Job::complete(const config::Node& base_model,
                                            config::Node& completed) {
  config::Node user = config::Node::map();
  user.set(kModelBlock, base_model);
  completed = *config::resolve(schema_, user).root.find(kModelBlock);
  return factory_->create(completed);
}

void Job::resolve() {
  examine();
  make(train::Environment::from_process(), true);
}

void Job::resolve(const std::function<train::Environment(const config::Node&)>& world) {
  examine();
  make(world(resolved_.root), false);
}

void Job::examine() {
  config::Node user =
      options_.config_file.empty() ? config::Node::map() : config::load_file(options_.config_file);
  config::apply_overrides(user, options_.overrides);
  resolved_ = config::examine(schema_, user);
  // Rules between keys are checked only when each key is right: a default in place of a wrong value would break others.
  if (!resolved_.problems.empty()) throw Error(Status::kInvalid, resolved_.problems);
}

void Job::make(const train::Environment& environment, bool runs) {
  std::vector<std::string> problems;
  auto collect = [&](auto&& step) {
    try {
      step();
    } catch (const Error& e) {
      if (e.status() != Status::kInvalid) throw;
      for (auto& line : with_places(e.what(), resolved_.root)) problems.push_back(std::move(line));
    }
  };
  collect([&] { model_ = factory_->create(*resolved_.root.find(kModelBlock)); });
  collect([&] {
    if (runs) train::check_launch(resolved_.root, environment);
    settings_ = train::make_settings(resolved_.root, environment);
    if (runs) train::check_supported(settings_, resolved_.root);
  });
  if (!problems.empty())
    throw Error(Status::kInvalid, fmt::format("{}", fmt::join(problems, "\n")));
}

}  // namespace fastllm::host
