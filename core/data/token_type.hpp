// The integer types of token ids in memory-mapped files, and their codes there.
// Codes 6 and 7 are floating-point (and swapped between the tools that write them): never legal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace fastllm::data {

enum class TokenType : uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
};

struct TokenTypeInfo {
  TokenType type;
  const char* name;
  int bytes;
  int64_t lowest, highest;
};

constexpr std::array<TokenTypeInfo, 6> kTokenTypes{{
    {TokenType::kUint8, "uint8", 1, 0, UINT8_MAX},
    {TokenType::kInt8, "int8", 1, INT8_MIN, INT8_MAX},
    {TokenType::kInt16, "int16", 2, INT16_MIN, INT16_MAX},
    {TokenType::kInt32, "int32", 4, INT32_MIN, INT32_MAX},
    {TokenType::kInt64, "int64", 8, INT64_MIN, INT64_MAX},
    {TokenType::kUint16, "uint16", 2, 0, UINT16_MAX},
}};

std::optional<TokenTypeInfo> find_token_type(uint8_t code);
std::optional<TokenTypeInfo> find_token_type(std::string_view name);
TokenTypeInfo token_type_info(TokenType type);

// The type the preparation picks for a vocabulary (docs/compatibility.md).
TokenType token_type_for_vocabulary(int64_t vocab_size);

// Little-endian, unaligned bytes to int64 and back. from.size() == to.size() * bytes of the type,
// and the reverse.
void widen_tokens(TokenType type, std::span<const std::byte> from, std::span<int64_t> to);
void narrow_tokens(TokenType type, std::span<const int64_t> from, std::span<std::byte> to);
void narrow_tokens(TokenType type, std::span<const int32_t> from, std::span<std::byte> to);

}  // namespace fastllm::data
