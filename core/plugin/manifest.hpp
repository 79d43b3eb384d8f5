// What a library says of itself without being run: "key=value" lines of its ELF section ".fastllm".
// Read before dlopen, because a library's static constructors are code already.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fastllm::plugin {

struct Manifest {
  std::string abi, id, version, license;
  std::vector<std::string> models, formats, converters, needs, caps;
};

// "fastllm_plugin_v0" speaks of major 0; the only one this host has.
constexpr const char* kEntrySymbol = "fastllm_plugin_v0";

// Throws Error(kInvalid): no shared library for this machine, no manifest, a line that is none,
// another abi.
Manifest read_manifest(const std::filesystem::path& path);
Manifest parse_manifest(std::string_view text);

// The caps of a format as its manifest says them; throws on a word that does not exist.
uint32_t manifest_caps(const Manifest& manifest, const std::string& format);
std::string caps_text(uint32_t caps);  // "load, save, optimizer"

// Characters of identifiers: A-Z a-z 0-9 _ . - /
bool is_identifier(std::string_view text);

}  // namespace fastllm::plugin
