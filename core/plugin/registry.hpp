// Shared libraries found at run time: by name in the search path, or by path. Manifests are read
// before anything is loaded. How they are judged: docs/adr/0008.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/checkpoint/format.hpp"
#include "core/config/node.hpp"
#include "core/config/schema.hpp"
#include "core/model/model.hpp"
#include "core/plugin/discovery.hpp"
#include "core/plugin/manifest.hpp"

namespace fastllm::plugin {

// For provenance, kept with every run and checkpoint.
struct LibraryInfo {
  std::string id, version, path, sha256;
  std::vector<std::string> needs = {};  // lines of its manifest, such as "torch==2.11.0+cu130"
};

class ModelFactory {
 public:
  virtual ~ModelFactory() = default;
  virtual const std::string& type() const = 0;                   // "gpt"
  virtual const std::vector<config::Field>& fields() const = 0;  // below model.base_model
  // Resolved node of model.base_model; the plugin may fill computed defaults (null ones) in it.
  // A configuration it refuses: Error(kInvalid), lines "path: sentence", paths below base_model.
  virtual std::unique_ptr<model::Model> create(config::Node& base_model) = 0;
};

class Plugin {
 public:
  virtual ~Plugin() = default;
  virtual const LibraryInfo& info() const = 0;
  virtual const std::vector<std::unique_ptr<ModelFactory>>& models() const = 0;
  virtual const std::vector<std::unique_ptr<checkpoint::Format>>& formats() const = 0;
};

// One thread. Models, formats and factories it gave out must not be used after it is gone.
class Registry {
 public:
  explicit Registry(const SearchOptions& options);
  ~Registry();
  // Everything found, in search order, shadowed and refused ones too. Loads nothing.
  std::vector<Candidate> list() const;
  // Where plugins are looked for, in order, with what is wrong with a place.
  std::vector<SearchPlace> places() const;
  // Name or path (contains a slash). Loaded once; never unloaded. Error lists every path tried and
  // the reason per candidate.
  Plugin& load(const std::string& name_or_path);
  // The first found that offers it by its manifest; loaded plugins come before others.
  ModelFactory& model(const std::string& type);
  checkpoint::Format& format(const std::string& type);
  std::vector<LibraryInfo> loaded() const;
  // Calls every plugin's shutdown; before main returns.
  void shutdown() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Text of `fastllm-host plugins`: what is found, from where, what is shadowed or refused and why.
std::string plugins_report(const Registry& registry);

}  // namespace fastllm::plugin
