// Sequential output with errors that name the path and the reason.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace fastllm {

int create_output(const std::filesystem::path& path);  // returns the descriptor
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);
// The next write goes to `offset`.
void seek_output(int fd, size_t offset, const std::filesystem::path& path);
// Syncs and closes; fd becomes -1, also when it throws.
void close_output(int& fd, const std::filesystem::path& path);
// Renames; an existing target is replaced.
void rename_output(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fastllm
