// A pool of worker processes, and the search for a Python that has the package.
#include "core/data/tokenizers/huggingface_tokenizer.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <limits>
#include <utility>

#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;

// As scripts/environment.sh finds it.
std::optional<fs::path> cache_folder() {
  auto variable = [](const char* name) -> std::optional<fs::path> {
    const char* value = std::getenv(name);
    if (!value || !*value) return std::nullopt;
    return fs::path(value);
  };
  if (auto folder = variable("FASTLLM_CACHE")) return folder;
  if (auto folder = variable("XDG_CACHE_HOME")) return *folder / "fastllm";
  if (auto folder = variable("HOME")) return *folder / ".cache" / "fastllm";
  return std::nullopt;
}

bool lacks_package(const WorkerRefusal& refusal) {
  return refusal.sentence.starts_with("no package: ");
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const TokenizerFolder& folder,
                                           const WorkerCommand& command, int workers)
    : PretrainedTokenizer(folder), command_(command), may_start_(workers - 1) {
  FASTLLM_ASSERT(workers >= 1);
  idle_.push_back(std::make_unique<TokenizerWorker>(command_));
  set_vocabulary(idle_.front()->vocabulary(), folder);
}

HuggingFaceTokenizer::WorkerPointer HuggingFaceTokenizer::take() const {
  std::unique_lock lock(mutex_);
  free_.wait(lock, [&] { return !idle_.empty() || may_start_ > 0; });
  if (!idle_.empty()) {
    WorkerPointer worker = std::move(idle_.back());
    idle_.pop_back();
    return worker;
  }
  --may_start_;
  return nullptr;  // the caller starts one: it takes a while, so not under the lock
}

void HuggingFaceTokenizer::put_back(WorkerPointer worker) const {
  {
    std::lock_guard lock(mutex_);
    if (worker) {
      idle_.push_back(std::move(worker));
    } else {
      ++may_start_;
    }
  }
  free_.notify_one();
}

void HuggingFaceTokenizer::with_worker(const char* doing,
                                       const std::function<void(TokenizerWorker&)>& use) const {
  WorkerPointer worker = take();
  try {
    if (!worker) worker = std::make_unique<TokenizerWorker>(command_);
    if (worker->vocabulary() != vocabulary()) {
      throw Error(Status::kUnavailable,
                  fmt::format("expected the vocabulary of {} to stay at {} tokens, found {}: the "
                              "file changed meanwhile",
                              name(), vocabulary(), worker->vocabulary()));
    }
    use(*worker);
  } catch (const WorkerRefusal& refusal) {
    put_back(nullptr);
    throw Error(Status::kUnavailable,
                fmt::format("the tokenizer {} failed {}: {}", name(), doing, refusal.sentence));
  } catch (...) {
    put_back(nullptr);
    throw;
  }
  put_back(std::move(worker));
}

std::optional<int64_t> HuggingFaceTokenizer::token_id(std::string_view token) const {
  int64_t id = -1;
  with_worker("looking up a token", [&](TokenizerWorker& worker) { id = worker.token_id(token); });
  return id < 0 ? std::nullopt : std::optional(id);
}

void HuggingFaceTokenizer::encode_batch(std::span<const std::string_view> texts,
                                        TokenBatch& batch) const {
  int64_t bytes = 0;
  for (std::string_view text : texts) {
    check_utf8(text);
    bytes += int64_t(text.size());
  }
  if (bytes > command_.most_bytes) {
    if (texts.size() == 1) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a text of at most {} bytes for {}, found {}; split it",
                              command_.most_bytes, name(), bytes));
    }
    encode_batch(texts.first(texts.size() / 2), batch);
    encode_batch(texts.subspan(texts.size() / 2), batch);
    return;
  }
  with_worker("encoding", [&](TokenizerWorker& worker) { worker.encode_batch(texts, batch); });
}

std::string HuggingFaceTokenizer::decode(std::span<const int64_t> ids) const {
  check_ids(ids);
  std::vector<int32_t> narrow(ids.begin(), ids.end());
  std::string text;
  with_worker("decoding", [&](TokenizerWorker& worker) { text = worker.decode(narrow); });
  return text;
}

std::shared_ptr<const Tokenizer> open_huggingface_tokenizer(const TokenizerFolder& folder,
                                                            const std::string& python,
                                                            int workers) {
  WorkerCommand command;
  command.script = installed_worker_script();
  command.folder = folder.folder;
  std::vector<std::string> candidates;
  const char* named = std::getenv("FASTLLM_PYTHON");
  if (!python.empty()) {
    candidates = {python};
  } else if (named && *named) {
    candidates = {named};
  } else {
    candidates = {"python3"};
    if (auto cache = cache_folder()) {
      fs::path program = *cache / "tokenizers" / "bin" / "python";
      std::error_code ignored;
      if (fs::exists(program, ignored)) candidates.push_back(program.string());
    }
  }
  std::string tried;
  for (const std::string& candidate : candidates) {
    command.python = candidate;
    try {
      return std::make_shared<HuggingFaceTokenizer>(folder, command, workers);
    } catch (const WorkerRefusal& refusal) {
      if (!lacks_package(refusal))
        throw Error(Status::kInvalid,
                    fmt::format("the tokenizer {}: {}", folder.file.string(), refusal.sentence));
      tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", candidate,
                           refusal.sentence.substr(refusal.sentence.find(": ") + 2));
    } catch (const Error& error) {
      // A Python that is not there is one more that lacks the package, unless it was asked for.
      if (error.status() != Status::kNotFound || &candidate == &candidates.back()) throw;
      tried += fmt::format("{}{} (not found)", tried.empty() ? "" : ", ", candidate);
    }
  }
  throw Error(Status::kNotFound,
              fmt::format("expected a Python with the package tokenizers to read {}, found none: "
                          "{}; run scripts/setup.sh --tokenizers, or install the package, or name "
                          "a Python that has it in FASTLLM_PYTHON",
                          folder.file.string(), tried));
}

}  // namespace fastllm::data
