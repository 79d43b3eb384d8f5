// Each sample has a generator of its own, seeded by its number: nothing is stored.
#include "core/data/sampling/random_dataset.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/base/error.hpp"
#include "core/data/sampling/random.hpp"

namespace fastllm::data {
namespace {

class Random final : public SampledDataset {
 public:
  Random(std::string name, int64_t num_samples, int64_t sample_tokens, int64_t vocab_size,
         uint64_t seed)
      : name_(std::move(name)),
        size_(num_samples),
        sample_tokens_(sample_tokens),
        vocab_size_(vocab_size),
        seed_(seed) {
    if (vocab_size_ < 1 || vocab_size_ > int64_t(1) << 32) {
      throw Error(Status::kInvalid,
                  fmt::format("expected a vocabulary of 1 to 2^32 ids for the random dataset {}, "
                              "found {}",
                              name_, vocab_size_));
    }
  }

  int64_t size() const override { return size_; }
  void get(int64_t index, Sample& sample) const override {
    FASTLLM_ASSERT(index >= 0 && index < size_ && int64_t(sample.tokens.size()) == sample_tokens_);
    // The reference's generator refuses seeds from 2^32 on; here they wrap around.
    std::mt19937 generator = make_generator(seed_ + 48576439 + 74593 * uint64_t(index));
    for (int64_t& token : sample.tokens)
      token = numpy_bounded(generator, uint32_t(vocab_size_ - 1));
    sample.loss_masking_spans.clear();
    sample.document_lengths.assign(1, sample_tokens_);
  }
  std::string name() const override { return name_; }
  std::vector<std::string> fingerprints() const override {
    return {fmt::format("{}: random ids below {}, seed {}", name_, vocab_size_, seed_)};
  }

 private:
  std::string name_;
  int64_t size_, sample_tokens_, vocab_size_;
  uint64_t seed_;
};

}  // namespace

std::shared_ptr<const SampledDataset> make_random(std::string name, int64_t num_samples,
                                                  int64_t sequence_length, int64_t vocab_size,
                                                  uint64_t seed, int64_t predicted_tokens) {
  return std::make_shared<Random>(std::move(name), num_samples, sequence_length + predicted_tokens,
                                  vocab_size, seed);
}

}  // namespace fastllm::data
