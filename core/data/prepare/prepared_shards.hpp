// Collects the tokens of one dataset in a single file, then cuts it into shards of about as many
// documents each. On the disk it never takes more than the dataset and one shard. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/data/formats/document_index.hpp"
#include "core/data/prepare/splits.hpp"

namespace fastllm::data {

class PreparedShards {
 public:
  // one_file: shards are *.fast_llm_dataset files; else pairs.
  PreparedShards(std::filesystem::path folder, std::string collecting_name, TokenType type,
                 bool one_file);
  ~PreparedShards();
  PreparedShards(const PreparedShards&) = delete;
  PreparedShards& operator=(const PreparedShards&) = delete;

  // Tokens in the type of the dataset; appended to what the latest documents need.
  void append_tokens(std::span<const std::byte> tokens);
  void begin_document(int64_t tokens, const std::vector<Span>& spans);
  void continue_document(int64_t tokens);

  int64_t num_documents() const { return int64_t(index_.sizes.size()); }
  int64_t num_tokens() const { return tokens_; }

  // Writes shard_0_{first_number}, ... and returns them. `pause` is called between blocks of
  // copying; it may throw.
  std::vector<ShardSizes> write(int64_t tokens_per_shard, int64_t first_number,
                                const std::function<void()>& pause);

 private:
  struct Shard {
    std::filesystem::path path;  // of the file with the tokens
    size_t first, last;          // documents [first, last)
    int64_t begin, end;          // bytes in the collecting file
  };
  void move_tail(const Shard& shard, const std::function<void()>& pause);
  void finish_tokens(int fd, const std::filesystem::path& path, const Shard& shard) const;

  std::filesystem::path folder_, collecting_;
  std::string head_;  // what stands before the tokens of a file
  int fd_ = -1;
  DocumentIndex index_;
  int64_t tokens_ = 0;
};

}  // namespace fastllm::data
