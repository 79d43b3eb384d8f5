// The files that are mapped now, for whoever must explain a SIGBUS: a file that shrinks while it is
// mapped leaves addresses with nothing behind them.
#pragma once

#include <cstddef>
#include <string>

namespace fastllm {

// At most so many are kept; further ones are mapped all the same and have no name in an explanation.
inline constexpr int kMostMappedFiles = 4096;

// Returns a number for forget_mapping, or -1. Any thread.
int remember_mapping(const void* data, size_t size, const std::string& path);
void forget_mapping(int number);
// The file whose mapping the address lies in; null: none. Safe in a signal handler.
const char* mapped_file_at(const void* address) noexcept;

}  // namespace fastllm
