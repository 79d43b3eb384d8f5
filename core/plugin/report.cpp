// The text of `fastllm-host plugins`. Read by people: one block a library, then where was looked.
#include <fmt/format.h>

#include <algorithm>

#include "core/plugin/registry.hpp"

namespace fastllm::plugin {
namespace {

std::string contents(const Manifest& manifest) {
  std::vector<std::string> parts;
  for (const auto& type : manifest.models) parts.push_back("model " + type);
  for (const auto& type : manifest.formats) {
    parts.push_back(
        fmt::format("checkpoint format {} ({})", type, caps_text(manifest_caps(manifest, type))));
  }
  for (const auto& pair : manifest.converters) parts.push_back("converter " + pair);
  if (!manifest.needs.empty())
    parts.push_back(fmt::format("needs {}", fmt::join(manifest.needs, ", ")));
  return parts.empty() ? "nothing" : fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace

std::string plugins_report(const Registry& registry) {
  std::string text;
  auto candidates = registry.list();
  for (const auto& candidate : candidates) {
    bool usable = candidate.refused.empty() && !candidate.shadowed;
    text += fmt::format("{}{}{}\n  {} ({})\n", candidate.name,
                        candidate.manifest.version.empty() ? "" : " " + candidate.manifest.version,
                        usable               ? ""
                        : candidate.shadowed ? "  [shadowed]"
                                             : "  [refused]",
                        candidate.path.string(), candidate.origin);
    if (candidate.shadowed)
      text += fmt::format("  not used: {} comes first\n", candidate.shadowed_by);
    if (!candidate.refused.empty()) {
      text += fmt::format("  refused: {}\n", candidate.refused);
    } else {
      text += fmt::format("  {}\n", contents(candidate.manifest));
    }
    // The same model in two plugins of different names: the first one is taken when nothing is
    // named.
    for (const auto& other : candidates) {
      if (&other == &candidate) break;
      if (!usable || other.shadowed || !other.refused.empty()) continue;
      for (const auto& type : candidate.manifest.models) {
        if (std::count(other.manifest.models.begin(), other.manifest.models.end(), type)) {
          text += fmt::format("  model {} is also offered by {}, which comes first\n", type,
                              other.name);
        }
      }
    }
  }
  if (candidates.empty()) text += "no plugins found\n";
  text += "searched, in this order:\n";
  for (const auto& place : registry.places()) {
    text += fmt::format("  {} ({}){}\n", place.directory.string(), place.origin,
                        place.problem.empty() ? "" : ": " + place.problem);
  }
  return text;
}

}  // namespace fastllm::plugin
