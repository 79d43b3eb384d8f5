// Names and types to plugins, with errors that say every place searched and every reason. What
// cannot share a process is refused before it is loaded.
#include "core/plugin/registry.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/plugin/library.hpp"

namespace fastllm::plugin {
namespace {

namespace fs = std::filesystem;

// "torch==2.11.0+cu130" -> "2.11.0+cu130"; "": no such line.
std::string exact_need(const Manifest& manifest, std::string_view what) {
  std::string prefix = fmt::format("{}==", what);
  for (const auto& need : manifest.needs) {
    if (need.starts_with(prefix)) return need.substr(prefix.size());
  }
  return "";
}

}  // namespace

struct Registry::Impl {
  SearchOptions options;
  std::vector<SearchPlace> places;
  std::vector<Candidate> candidates;
  std::vector<std::unique_ptr<Library>> libraries;  // in order of loading
  bool shut_down = false;

  std::string places_text() const {
    std::string text;
    for (const auto& place : places) {
      text += fmt::format("\n  {} ({}){}", place.directory.string(), place.origin,
                          place.problem.empty() ? "" : ": " + place.problem);
    }
    return text;
  }

  Library* loaded_file(const Candidate& candidate) const {
    for (const auto& library : libraries) {
      if (library->candidate().inode == candidate.inode &&
          library->candidate().device == candidate.device)
        return library.get();
    }
    return nullptr;
  }

  // What cannot live beside the plugins that are loaded already.
  void check_company(const Candidate& candidate) const {
    for (const auto& library : libraries) {
      const Manifest& theirs = library->candidate().manifest;
      const Manifest& ours = candidate.manifest;
      auto refuse = [&](const std::string& text) {
        throw Error(Status::kInvalid,
                    fmt::format("cannot load plugin {} ({}) beside plugin {} ({}): {}", ours.id,
                                candidate.path.string(), theirs.id, library->info().path, text));
      };
      if (ours.id == theirs.id) refuse("both have the same id; name one of them");
      for (const auto& type : ours.models) {
        if (std::count(theirs.models.begin(), theirs.models.end(), type))
          refuse(fmt::format("both offer the model {}; name one of them", type));
      }
      for (const auto& type : ours.formats) {
        if (std::count(theirs.formats.begin(), theirs.formats.end(), type))
          refuse(fmt::format("both offer the checkpoint format {}; name one of them", type));
      }
      std::string our_torch = exact_need(ours, "torch"), their_torch = exact_need(theirs, "torch");
      if (!our_torch.empty() && !their_torch.empty() && our_torch != their_torch) {
        refuse(
            fmt::format("one process holds one LibTorch, the first needs {}, the second {}; build "
                        "both against the same",
                        our_torch, their_torch));
      }
    }
  }

  Plugin& load(const Candidate& candidate) {
    if (shut_down) throw Error(Status::kInternal, "plugins were shut down already");
    if (Library* library = loaded_file(candidate)) return *library;
    check_company(candidate);
    return *libraries.emplace_back(std::make_unique<Library>(candidate));
  }

  [[noreturn]] void refuse(const Candidate& candidate) const {
    std::string text = fmt::format("cannot load plugin {}: {} ({}): {}", candidate.name,
                                   candidate.path.string(), candidate.origin, candidate.refused);
    for (const auto& other : candidates) {
      if (!other.shadowed || other.name != candidate.name) continue;
      text += fmt::format(
          "\n  {} ({}) has the same name and comes later{}; to take it, put its folder first with "
          "--plugin-path",
          other.path.string(), other.origin,
          other.refused.empty() ? "" : ", but cannot be loaded either: " + other.refused);
    }
    throw Error(Status::kInvalid, text);
  }

  Plugin& load_name(const std::string& name) {
    if (name.empty() || !is_identifier(name)) {
      throw Error(Status::kInvalid, fmt::format("expected a plugin's name (letters, digits and _ . "
                                                "-) or the path of its file, found \"{}\"",
                                                name));
    }
    for (const auto& candidate : candidates) {
      if (candidate.name != name) continue;
      // The first file of the name is the one that is meant; another one is never taken silently in
      // its place.
      if (!candidate.refused.empty()) refuse(candidate);
      return load(candidate);
    }
    std::string names;
    for (const auto& candidate : candidates) {
      if (!candidate.shadowed) names += (names.empty() ? "" : ", ") + candidate.name;
    }
    throw Error(
        Status::kNotFound,
        fmt::format("expected libfastllm_{}.so in one of the folders below, found {}; build it, or "
                    "give its folder with --plugin-path{}",
                    name, names.empty() ? "no plugin at all" : "only " + names, places_text()));
  }

  Plugin& load_path(const std::string& given) {
    std::error_code code;
    fs::path path = fs::absolute(given, code).lexically_normal();
    Candidate candidate = examine(path, path.parent_path(), "given path", options.allow_insecure);
    if (!candidate.refused.empty()) {
      throw Error(Status::kInvalid,
                  fmt::format("cannot load plugin {}: {}", path.string(), candidate.refused));
    }
    return load(candidate);
  }

  // offers: the manifest's list of that kind; pick: the object in a loaded plugin, or null.
  template <class T, class Pick>
  T& find(const char* kind, const std::string& type, std::vector<std::string> Manifest::*offers,
          Pick&& pick) {
    for (const auto& library : libraries) {
      if (T* object = pick(*library)) return *object;
    }
    auto offered = [&](const Candidate& candidate) {
      const auto& list = candidate.manifest.*offers;
      return std::find(list.begin(), list.end(), type) != list.end();
    };
    std::string known;
    for (const auto& candidate : candidates) {
      if (candidate.shadowed || !candidate.refused.empty()) continue;
      if (offered(candidate)) {
        if (T* object = pick(load(candidate))) return *object;
      }
      for (const auto& other : candidate.manifest.*offers)
        known += (known.empty() ? "" : ", ") + other;
    }
    std::string refused;
    for (const auto& candidate : candidates) {
      if (!candidate.shadowed && !candidate.refused.empty())
        refused += fmt::format("\n  {}: {}", candidate.path.string(), candidate.refused);
    }
    throw Error(Status::kNotFound,
                fmt::format("expected a plugin that offers the {} {}, found {}; looked in{}{}{}",
                            kind, type, known.empty() ? "none that offers any" : "only " + known,
                            places_text(), refused.empty() ? "" : "\nand refused", refused));
  }
};

Registry::Registry(const SearchOptions& options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->places = search_places(options);
  impl_->candidates = discover(impl_->places, options.allow_insecure);
}

Registry::~Registry() { shutdown(); }

std::vector<Candidate> Registry::list() const { return impl_->candidates; }
std::vector<SearchPlace> Registry::places() const { return impl_->places; }

Plugin& Registry::load(const std::string& name_or_path) {
  return name_or_path.find('/') == std::string::npos ? impl_->load_name(name_or_path)
                                                     : impl_->load_path(name_or_path);
}

ModelFactory& Registry::model(const std::string& type) {
  return impl_->find<ModelFactory>("model", type, &Manifest::models,
                                   [&](Plugin& plugin) -> ModelFactory* {
                                     for (const auto& factory : plugin.models()) {
                                       if (factory->type() == type) return factory.get();
                                     }
                                     return nullptr;
                                   });
}

checkpoint::Format& Registry::format(const std::string& type) {
  return impl_->find<checkpoint::Format>(
      "checkpoint format", type, &Manifest::formats, [&](Plugin& plugin) -> checkpoint::Format* {
        for (const auto& format : plugin.formats()) {
          if (format->type() == type ||
              std::count(format->aliases().begin(), format->aliases().end(), type))
            return format.get();
        }
        return nullptr;
      });
}

std::vector<LibraryInfo> Registry::loaded() const {
  std::vector<LibraryInfo> infos;
  for (const auto& library : impl_->libraries) infos.push_back(library->info());
  return infos;
}

void Registry::shutdown() noexcept {
  impl_->shut_down = true;
  for (auto library = impl_->libraries.rbegin(); library != impl_->libraries.rend(); ++library)
    (*library)->shutdown();
}

}  // namespace fastllm::plugin
