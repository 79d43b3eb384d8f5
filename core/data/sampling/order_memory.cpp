// One index a document of every epoch, a sum of tokens for every 32nd, one index a sample.
#include "core/data/sampling/order_memory.hpp"

#include <fmt/format.h>

#include <limits>

#include "core/base/error.hpp"
#include "core/base/log.hpp"
#include "core/base/text.hpp"
#include "core/data/sampling/document_run.hpp"

namespace fastllm::data {
namespace {

constexpr uint64_t kLarge = uint64_t(256) << 20;
std::string size_text(uint64_t bytes) {
  constexpr auto kMost = uint64_t(std::numeric_limits<int64_t>::max());
  return bytes > kMost ? "more than 8 EiB" : mib_text(int64_t(bytes));
}

}  // namespace

uint64_t OrderMemory::bytes() const {
  uint64_t count = 0, bytes = 0;
  if (__builtin_mul_overflow(uint64_t(documents), uint64_t(epochs), &count))
    return std::numeric_limits<uint64_t>::max();
  const uint64_t sums = (count / DocumentRun::kStride + 1) * sizeof(int64_t);
  if (__builtin_mul_overflow(count, index_bytes(count), &bytes) ||
      __builtin_add_overflow(bytes, sums, &bytes) ||
      __builtin_mul_overflow(bytes, uint64_t(runs), &bytes) ||
      __builtin_add_overflow(bytes, uint64_t(samples) * sizeof(uint32_t), &bytes))
    return std::numeric_limits<uint64_t>::max();
  return bytes;
}

std::string OrderMemory::text() const {
  const std::string and_samples =
      samples > 0 ? fmt::format(" and of {} samples", with_commas(double(samples), 0)) : "";
  return fmt::format(
      "with shuffle {} the order of {} documents times {} epochs{} of dataset {} "
      "takes {}",
      shuffle, with_commas(double(documents), 0), with_commas(double(epochs) * double(runs), 0),
      and_samples, dataset, size_text(bytes()));
}

void OrderMemory::announce(uint64_t limit) const {
  if (bytes() > limit) {
    throw Error(Status::kOutOfMemory,
                fmt::format("expected an order of documents that fits the {} of memory here, found "
                            "that {}; {}",
                            size_text(limit), text(), kShorterOrder));
  }
  if (bytes() > kLarge) log::warning(fmt::format("{} of memory and some time to make", text()));
}

void OrderMemory::fail_for_memory() const {
  throw Error(
      Status::kOutOfMemory,
      fmt::format("out of memory: {}, and there was not so much left; {}", text(), kShorterOrder));
}

}  // namespace fastllm::data
