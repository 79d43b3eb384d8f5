#include "core/data/fingerprint.hpp"

#include <gmock/gmock.h>

#include <string>

#include "core/base/file.hpp"

namespace fastllm::data {
namespace {

constexpr size_t kMiB = size_t(1) << 20;

std::string sampled(const std::string& bytes) {
  return fingerprint_sampled("x.bin", std::as_bytes(std::span(bytes)));
}

TEST(Fingerprint, HashesSmallFilesWhole) {
  EXPECT_EQ(sampled("abc"), "x.bin: 3 bytes, sha256 " + sha256_hex("abc"));
  EXPECT_EQ(sampled(""), "x.bin: 0 bytes, sha256 " + sha256_hex(""));
}

TEST(Fingerprint, SamplesLargeFilesAtBothEndsAndBetween) {
  std::string bytes(40 * kMiB + 5, 'a');
  std::string before = sampled(bytes);
  EXPECT_THAT(before, ::testing::HasSubstr("x.bin: 41943045 bytes, sha256 of 16 sampled blocks "));
  for (size_t at : {size_t(0), kMiB - 1, bytes.size() - 1, bytes.size() - kMiB}) {
    std::string changed = bytes;
    changed[at] = 'b';
    EXPECT_NE(sampled(changed), before) << at;
  }
  EXPECT_NE(sampled(bytes + "a"), before);
  // The second block begins at (size - 1 MiB) / 15.
  std::string changed = bytes;
  changed[(bytes.size() - kMiB) / 15] = 'b';
  EXPECT_NE(sampled(changed), before);
  // Between the first two blocks nothing is read: the price of a fixed cost.
  changed = bytes;
  changed[kMiB] = 'b';
  EXPECT_EQ(sampled(changed), before);
}

}  // namespace
}  // namespace fastllm::data
