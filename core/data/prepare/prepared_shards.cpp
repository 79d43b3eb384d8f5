// One large file of tokens is cut from its end: each shard is copied out, then the file shortened.
#include "core/data/prepare/prepared_shards.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/output_file.hpp"
#include "core/data/formats/dataset_file_format.hpp"
#include "core/data/formats/dataset_file_writer.hpp"
#include "core/data/formats/memmap_writer.hpp"

namespace fastllm::data {

namespace fs = std::filesystem;

PreparedShards::PreparedShards(fs::path folder, std::string collecting_name, TokenType type,
                               bool one_file)
    : folder_(std::move(folder)),
      collecting_(folder_ / collecting_name),
      head_(one_file ? dataset_file_head() : "") {
  index_.type = type;
  fd_ = create_output(collecting_);
  write_all(fd_, std::as_bytes(std::span(head_)), collecting_);
}

PreparedShards::~PreparedShards() {
  if (fd_ >= 0) ::close(fd_);
}

void PreparedShards::append_tokens(std::span<const std::byte> tokens) {
  write_all(fd_, tokens, collecting_);
}

void PreparedShards::begin_document(int64_t tokens, const std::vector<Span>& spans) {
  index_.sizes.push_back(int32_t(tokens));
  index_.span_counts.push_back(int32_t(spans.size()));
  index_.spans.insert(index_.spans.end(), spans.begin(), spans.end());
  tokens_ += tokens;
}

void PreparedShards::continue_document(int64_t tokens) {
  FASTLLM_ASSERT(!index_.sizes.empty() &&
                 tokens <= std::numeric_limits<int32_t>::max() - index_.sizes.back());
  index_.sizes.back() += int32_t(tokens);
  tokens_ += tokens;
}

std::vector<ShardSizes> PreparedShards::write(int64_t tokens_per_shard, int64_t first_number,
                                              const std::function<void()>& pause) {
  auto documents = num_documents();
  int64_t itemsize = token_type_info(index_.type).bytes;
  int64_t count = std::clamp<int64_t>((tokens_ + tokens_per_shard - 1) / tokens_per_shard, 1,
                                      std::max<int64_t>(documents, 1));
  // From the back, so that what was copied can be cut off; what is left in the end is the first
  // shard.
  std::vector<ShardSizes> shards(static_cast<size_t>(count));
  int64_t last = documents;                                  // documents not yet in a shard
  int64_t end = int64_t(head_.size()) + tokens_ * itemsize;  // and their bytes
  for (int64_t number = count - 1; number >= 0; --number) {
    int64_t share = documents / count + (number < documents % count ? 1 : 0);
    int64_t first = last - share, begin = end;
    for (int64_t document = first; document < last; ++document)
      begin -= index_.sizes[size_t(document)] * itemsize;
    std::string name = fmt::format("shard_0_{}", first_number + number);
    if (!head_.empty()) name += dataset_file::kSuffix;
    fs::path path = folder_ / (head_.empty() ? name + ".bin" : name);
    if (head_.empty()) {
      write_file_atomic(folder_ / (name + ".idx"),
                        encode_memmap_index(index_, size_t(first), size_t(last)));
    }
    const Shard shard{path, size_t(first), size_t(last), begin, end};
    if (number > 0) {
      move_tail(shard, pause);
    } else {
      finish_tokens(fd_, collecting_, shard);
      close_output(fd_, collecting_);
      rename_output(collecting_, path);
    }
    shards[size_t(number)] = {name, std::span(index_.sizes).subspan(size_t(first), size_t(share))};
    last = first;
    end = begin;
  }
  return shards;
}

// What stands after the tokens, where `fd` has all of them; nothing in a .bin file.
void PreparedShards::finish_tokens(int fd, const fs::path& path, const Shard& shard) const {
  if (head_.empty()) return;
  seek_output(fd, head_.size() + size_t(shard.end - shard.begin), path);
  auto counts = std::span(index_.span_counts).subspan(shard.first, shard.last - shard.first);
  bool spans = std::any_of(counts.begin(), counts.end(), [](int32_t count) { return count > 0; });
  finish_dataset_file(fd, path, index_, shard.first, shard.last, spans);
}

void PreparedShards::move_tail(const Shard& shard, const std::function<void()>& pause) {
  const fs::path& path = shard.path;
  int target = create_output(path);
  try {
    write_all(target, std::as_bytes(std::span(head_)), path);
    std::vector<std::byte> buffer(size_t(8) << 20);
    for (int64_t at = shard.begin; at < shard.end;) {
      pause();
      ssize_t count =
          ::pread(fd_, buffer.data(), std::min(buffer.size(), size_t(shard.end - at)), at);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        throw Error(Status::kUnavailable,
                    fmt::format("cannot read {}: {}", collecting_.string(),
                                count < 0 ? errno_text(errno) : "it became shorter"));
      }
      write_all(target, std::span(buffer).first(size_t(count)), path);
      at += count;
    }
    finish_tokens(target, path, shard);
    close_output(target, path);
  } catch (...) {
    if (target >= 0) ::close(target);
    throw;
  }
  if (::ftruncate(fd_, shard.begin) != 0) fail_errno("shorten", collecting_, errno);
}

}  // namespace fastllm::data
