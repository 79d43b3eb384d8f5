// The manifest's lines: known keys, one meaning each; unknown keys are skipped for the sake of
// later ones.
#include "core/plugin/manifest.hpp"

#include <fastllm/checkpoint_format.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/error.hpp"
#include "core/plugin/elf.hpp"

namespace fastllm::plugin {
namespace {

constexpr std::array<std::pair<const char*, uint32_t>, 8> kCaps = {{
    {"load", FASTLLM_CAN_LOAD},
    {"save", FASTLLM_CAN_SAVE},
    {"optimizer", FASTLLM_CAN_OPTIMIZER},
    {"slice", FASTLLM_CAN_SLICE},
    {"parallel", FASTLLM_CAN_PARALLEL},
    {"shards", FASTLLM_CAN_SHARDS},
    {"external", FASTLLM_EXTERNAL},
    {"own_commit", FASTLLM_OWN_COMMIT},
}};

[[noreturn]] void refuse(std::string text) { throw Error(Status::kInvalid, std::move(text)); }

void set_once(std::string& member, std::string_view key, std::string_view value) {
  if (!member.empty()) refuse(fmt::format("expected one manifest line {}=, found two", key));
  member = value;
}

void add_line(Manifest& manifest, std::string_view line) {
  size_t equals = line.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == line.size()) {
    refuse(fmt::format("expected manifest lines key=value, found \"{}\"", line));
  }
  std::string_view key = line.substr(0, equals), value = line.substr(equals + 1);
  if (std::any_of(line.begin(), line.end(), [](char c) { return c < ' ' || c > '~'; })) {
    refuse(
        fmt::format("expected printable ASCII in the manifest, found another byte in the line {}=",
                    key.substr(0, 32)));
  }
  if (key == "abi") return set_once(manifest.abi, key, value);
  if (key == "id") return set_once(manifest.id, key, value);
  if (key == "version") return set_once(manifest.version, key, value);
  if (key == "license") return set_once(manifest.license, key, value);
  if (key == "model") return void(manifest.models.emplace_back(value));
  if (key == "format") return void(manifest.formats.emplace_back(value));
  if (key == "converter") return void(manifest.converters.emplace_back(value));
  if (key == "needs") return void(manifest.needs.emplace_back(value));
  if (key == "caps") return void(manifest.caps.emplace_back(value));
  // Later manifests may say more: unknown keys are skipped, as unknown low flag bits are.
}

}  // namespace

bool is_identifier(std::string_view text) {
  return !text.empty() && text.size() <= 512 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-' || c == '/';
  });
}

Manifest parse_manifest(std::string_view text) {
  Manifest manifest;
  while (!text.empty()) {
    size_t end = text.find_first_of(std::string_view("\n\0", 2));
    std::string_view line = text.substr(0, end);
    if (!line.empty()) add_line(manifest, line);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  if (manifest.abi.empty()) refuse("expected a manifest line abi=0, found none");
  std::string_view major = std::string_view(manifest.abi).substr(0, manifest.abi.find('.'));
  if (major != std::to_string(FASTLLM_MAJOR)) {
    refuse(
        fmt::format("expected a plugin for version {} of the contract, found one for version {}; "
                    "build it against this host's SDK",
                    FASTLLM_MAJOR, manifest.abi));
  }
  if (!is_identifier(manifest.id)) {
    refuse(fmt::format("expected a manifest line id= of letters, digits and _ . - /, found \"{}\"",
                       manifest.id));
  }
  if (manifest.version.empty()) refuse("expected a manifest line version=, found none");
  for (const auto* types : {&manifest.models, &manifest.formats}) {
    for (const auto& type : *types) {
      if (!is_identifier(type)) {
        refuse(fmt::format(
            "expected one type of letters, digits and _ . - / in a manifest line, found \"{}\"",
            type));
      }
      if (std::count(types->begin(), types->end(), type) != 1) {
        refuse(fmt::format("expected each type once in the manifest, found \"{}\" twice", type));
      }
    }
  }
  for (const auto& format : manifest.formats) manifest_caps(manifest, format);
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& path) {
  auto section = read_elf_section(path, ".fastllm");
  if (!section) {
    refuse(
        "expected a manifest (ELF section .fastllm), found none; this is no fastllm plugin, or "
        "FASTLLM_MANIFEST is missing");
  }
  return parse_manifest(*section);
}

// A line is "TYPE:word,word" or, for a plugin with one format, "word,word".
uint32_t manifest_caps(const Manifest& manifest, const std::string& format) {
  uint32_t caps = 0;
  for (std::string_view line : manifest.caps) {
    size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      if (line.substr(0, colon) != format) continue;
      line.remove_prefix(colon + 1);
    } else if (manifest.formats.size() != 1) {
      refuse(fmt::format("expected caps=FORMAT:... since there are {} formats, found caps={}",
                         manifest.formats.size(), line));
    }
    while (!line.empty()) {
      size_t comma = line.find(',');
      std::string_view word = line.substr(0, comma);
      line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
      auto known = std::find_if(kCaps.begin(), kCaps.end(),
                                [&](const auto& cap) { return word == cap.first; });
      if (known == kCaps.end()) {
        refuse(
            fmt::format("expected caps= of load, save, optimizer, slice, parallel, shards, "
                        "external, own_commit, found \"{}\"",
                        word));
      }
      caps |= known->second;
    }
  }
  return caps;
}

std::string caps_text(uint32_t caps) {
  std::string text;
  for (const auto& [word, bit] : kCaps) {
    if (caps & bit) text += (text.empty() ? "" : ", ") + std::string(word);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace fastllm::plugin
