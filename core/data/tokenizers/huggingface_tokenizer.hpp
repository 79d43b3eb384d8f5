// tokenizer.json through Hugging Face's own package, in Python processes: there is no C++ library
// for the file, and another implementation would differ in small ways.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/data/tokenizers/pretrained_tokenizer.hpp"
#include "core/data/tokenizers/tokenizer_worker.hpp"

namespace fastllm::data {

class HuggingFaceTokenizer final : public PretrainedTokenizer {
 public:
  // Starts the first process, the others when there is work for them. A call takes one that is free,
  // or waits for it.
  HuggingFaceTokenizer(const TokenizerFolder& folder, const WorkerCommand& command, int workers);

  std::optional<int64_t> token_id(std::string_view token) const override;
  void encode_batch(std::span<const std::string_view> texts, TokenBatch& batch) const override;
  std::string decode(std::span<const int64_t> ids) const override;
  bool is_remote() const override { return true; }

 private:
  using WorkerPointer = std::unique_ptr<TokenizerWorker>;
  WorkerPointer take() const;
  void put_back(WorkerPointer worker) const;  // null: it failed
  // Runs with a worker of its own; a worker that threw is not used again.
  void with_worker(const char* doing, const std::function<void(TokenizerWorker&)>& use) const;

  WorkerCommand command_;

  mutable std::mutex mutex_;  // guards what follows
  mutable std::condition_variable free_;
  mutable std::vector<WorkerPointer> idle_;
  mutable int may_start_ = 0;  // processes that are not running yet
};

// The Python to use: `python` when not empty, else FASTLLM_PYTHON, else the first that has the
// package: python3, then the one that scripts/setup.sh --tokenizers made.
std::shared_ptr<const Tokenizer> open_huggingface_tokenizer(const TokenizerFolder& folder,
                                                            const std::string& python, int workers);

}  // namespace fastllm::data
