// What a training command line stands for, made step by step: plugin, declared keys, resolved configuration, model, settings.
// Each step collects all it finds wrong before it throws.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/host/options.hpp"
#include "core/checkpoint/loader.hpp"
#include "core/config/node.hpp"
#include "core/config/resolve.hpp"
#include "core/config/schema.hpp"
#include "core/model/model.hpp"
#include "core/plugin/registry.hpp"
#include "core/train/settings/settings.hpp"

namespace fastllm::host {

class Job {
 public:
  // Finds and loads the model plugin, declares all keys.
  explicit Job(const Options& options);
  ~Job();
  Job(const Job&) = delete;

  // Reads the file and the overrides, fills defaults, lets the plugin fill its own, checks everything.
  // After an Error, configuration() holds what could be made out so far.
  void resolve();
  // The same for a plan: a world that a launcher might say, made of the file as far as it has been
  // read, and without refusing what this version does not run.
  void resolve(const std::function<train::Environment(const config::Node&)>& world);

  plugin::Registry& registry() { return registry_; }
  const std::string& model_type() const;
  const config::Schema& schema() const { return schema_; }
  config::Node& configuration() { return resolved_.root; }
  const std::vector<std::string>& warnings() const { return resolved_.warnings; }
  model::Model& model() { return *model_; }
  const train::Settings& settings() const { return settings_; }
  // What a checkpoint is compared with: type, architecture fields, and how the plugin completes a base_model.
  checkpoint::ModelIdentity identity();
  // The model that a checkpoint's metadata (model, config.base_model) stands for.
  model::Description describe(const config::Node& metadata);

 private:
  void examine();
  void make(const train::Environment& environment, bool runs);
  // A base_model with the defaults filled in, and the model it makes.
  std::unique_ptr<model::Model> complete(const config::Node& base_model, config::Node& completed);

  const Options& options_;
  plugin::Registry registry_;
  plugin::ModelFactory* factory_ = nullptr;
  config::Schema schema_;
  config::Resolved resolved_;
  std::unique_ptr<model::Model> model_;
  train::Settings settings_;
};

}  // namespace fastllm::host
