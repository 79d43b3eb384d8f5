// A small file is hashed whole. Of a large one, blocks at even distances: all of it would take as
// long to read as an epoch.
#include "core/data/fingerprint.hpp"

#include <fmt/format.h>

#include <string_view>

#include "core/base/file.hpp"

namespace fastllm::data {
namespace {

constexpr size_t kBlocks = 16, kBlockBytes = size_t(1) << 20;

std::string digest(std::span<const std::byte> bytes) {
  return sha256_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::string fingerprint_sampled(const std::string& name, std::span<const std::byte> bytes) {
  if (bytes.size() <= kBlocks * kBlockBytes)
    return fmt::format("{}: {} bytes, sha256 {}", name, bytes.size(), digest(bytes));
  std::string digests;
  size_t room = bytes.size() - kBlockBytes;  // where the last block starts
  for (size_t block = 0; block < kBlocks; ++block) {
    // room * block / 15 without overflow, for any file size
    size_t begin = room / (kBlocks - 1) * block + room % (kBlocks - 1) * block / (kBlocks - 1);
    digests += digest(bytes.subspan(begin, kBlockBytes));
  }
  return fmt::format("{}: {} bytes, sha256 of {} sampled blocks {}", name, bytes.size(), kBlocks,
                     sha256_hex(digests));
}

}  // namespace fastllm::data
