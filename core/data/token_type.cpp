// Lookups by code and name, and the copies between a type in a file and the 64 bits of a batch.
#include "core/data/token_type.hpp"

#include <bit>
#include <cstring>

#include "core/base/error.hpp"

namespace fastllm::data {
namespace {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and read as they are");

template <class T>
void widen(std::span<const std::byte> from, std::span<int64_t> to) {
  const std::byte* source = from.data();
  for (int64_t& token : to) {
    T value;
    std::memcpy(&value, source, sizeof(T));
    token = int64_t(value);
    source += sizeof(T);
  }
}

template <class T, class Id>
void narrow(std::span<const Id> from, std::span<std::byte> to) {
  std::byte* target = to.data();
  for (Id token : from) {
    T value = T(token);
    std::memcpy(target, &value, sizeof(T));
    target += sizeof(T);
  }
}

template <class Id>
void narrow_to(TokenType type, std::span<const Id> from, std::span<std::byte> to) {
  FASTLLM_ASSERT(to.size() == from.size() * size_t(token_type_info(type).bytes));
  switch (type) {
    case TokenType::kUint8:
      return narrow<uint8_t, Id>(from, to);
    case TokenType::kInt8:
      return narrow<int8_t, Id>(from, to);
    case TokenType::kInt16:
      return narrow<int16_t, Id>(from, to);
    case TokenType::kInt32:
      return narrow<int32_t, Id>(from, to);
    case TokenType::kInt64:
      return narrow<int64_t, Id>(from, to);
    case TokenType::kUint16:
      return narrow<uint16_t, Id>(from, to);
  }
}

}  // namespace

std::optional<TokenTypeInfo> find_token_type(uint8_t code) {
  for (const TokenTypeInfo& info : kTokenTypes) {
    if (uint8_t(info.type) == code) return info;
  }
  return std::nullopt;
}

std::optional<TokenTypeInfo> find_token_type(std::string_view name) {
  for (const TokenTypeInfo& info : kTokenTypes) {
    if (info.name == name) return info;
  }
  return std::nullopt;
}

TokenTypeInfo token_type_info(TokenType type) { return find_token_type(uint8_t(type)).value(); }

TokenType token_type_for_vocabulary(int64_t vocab_size) {
  if (vocab_size < int64_t(1) << 8) return TokenType::kUint8;
  if (vocab_size < int64_t(1) << 15) return TokenType::kInt16;
  if (vocab_size < int64_t(1) << 31) return TokenType::kInt32;
  return TokenType::kInt64;
}

void widen_tokens(TokenType type, std::span<const std::byte> from, std::span<int64_t> to) {
  FASTLLM_ASSERT(from.size() == to.size() * size_t(token_type_info(type).bytes));
  switch (type) {
    case TokenType::kUint8:
      return widen<uint8_t>(from, to);
    case TokenType::kInt8:
      return widen<int8_t>(from, to);
    case TokenType::kInt16:
      return widen<int16_t>(from, to);
    case TokenType::kInt32:
      return widen<int32_t>(from, to);
    case TokenType::kInt64:
      return widen<int64_t>(from, to);
    case TokenType::kUint16:
      return widen<uint16_t>(from, to);
  }
}

void narrow_tokens(TokenType type, std::span<const int64_t> from, std::span<std::byte> to) {
  narrow_to(type, from, to);
}

void narrow_tokens(TokenType type, std::span<const int32_t> from, std::span<std::byte> to) {
  narrow_to(type, from, to);
}

}  // namespace fastllm::data
