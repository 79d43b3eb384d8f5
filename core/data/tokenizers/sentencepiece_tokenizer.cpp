// The only file that sees the library.
#include "core/data/tokenizers/sentencepiece_tokenizer.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <limits>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/base/utf8.hpp"

namespace fastllm::data {
namespace {

constexpr uint64_t kLargestModel = uint64_t(256) << 20;

std::optional<int64_t> id_or_none(int id) {
  return id >= 0 ? std::optional<int64_t>(id) : std::nullopt;
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const TokenizerFolder& folder)
    : PretrainedTokenizer(folder),
      processor_(std::make_unique<sentencepiece::SentencePieceProcessor>()) {
  std::string model = read_file(folder.file, kLargestModel);
  // The library takes an empty file for a model without pieces.
  auto status = processor_->LoadFromSerializedProto(model);
  if (!status.ok() || processor_->GetPieceSize() < 1) {
    throw Error(Status::kInvalid,
                fmt::format("expected a SentencePiece model in {}, found {} bytes of other content "
                            "({}); get the file again",
                            name(), model.size(), status.ok() ? "no pieces" : status.message()));
  }
  set_vocabulary(processor_->GetPieceSize(), folder,
                 {.begin = id_or_none(processor_->bos_id()),
                  .end = id_or_none(processor_->eos_id()),
                  .pad = id_or_none(processor_->pad_id())});
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

std::optional<int64_t> SentencePieceTokenizer::token_id(std::string_view token) const {
  // What is no piece gets the id of the unknown one.
  int id = processor_->PieceToId(token);
  if (id < 0 || id >= vocabulary() || processor_->IdToPiece(id) != token) return std::nullopt;
  return id;
}

void SentencePieceTokenizer::encode_batch(std::span<const std::string_view> texts,
                                          TokenBatch& batch) const {
  std::vector<int> ids;
  for (std::string_view text : texts) {
    check_utf8(text);
    ids.clear();
    if (auto status = processor_->Encode(text, &ids); !status.ok()) {
      throw Error(Status::kInvalid,
                  fmt::format("the tokenizer {} cannot encode a text of {} bytes: {}", name(),
                              text.size(), status.message()));
    }
    batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.end());
    batch.sizes.push_back(int64_t(ids.size()));
  }
}

std::string SentencePieceTokenizer::decode(std::span<const int64_t> ids) const {
  check_ids(ids);
  std::string text;
  if (auto status = processor_->Decode(std::vector<int>(ids.begin(), ids.end()), &text);
      !status.ok()) {
    throw Error(Status::kInvalid, fmt::format("the tokenizer {} cannot decode {} ids: {}", name(),
                                              ids.size(), status.message()));
  }
  return repair_utf8(text);
}

}  // namespace fastllm::data
