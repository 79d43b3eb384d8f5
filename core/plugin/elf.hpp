// Reads one section of an ELF file without running or mapping it. The file is hostile until
// checked: every offset and length is compared with the file's size before it is used.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace fastllm::plugin {

// Bytes of the section; nullopt: the library has none of that name. Throws Error(kInvalid) with a
// sentence about anything that is no shared library for this machine ("..., found one built for
// aarch64").
std::optional<std::string> read_elf_section(const std::filesystem::path& path,
                                            std::string_view name);

}  // namespace fastllm::plugin
