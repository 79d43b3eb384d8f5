// One class turns the tokens of a sample, another is the dataset around it.
#include "core/data/sampling/fim.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/utf8.hpp"
#include "core/data/sampling/random.hpp"

namespace fastllm::data {
namespace {

using Tokens = std::vector<int64_t>;

// NumPy's legacy RandomState: what it draws and how often decides over all that follows.
class Generator {
 public:
  explicit Generator(uint64_t seed) : generator_(make_generator(seed)) {}

  // randint(0, end)
  size_t below(size_t end) { return numpy_bounded(generator_, uint32_t(end - 1)); }

  // binomial(1, p): by inversion, mirrored above one half; one draw also for 0 and 1.
  bool flip(double p) { return p > 0.5 ? !inversion(1.0 - p) : inversion(p); }

 private:
  double uniform() {
    auto high = double(uint32_t(generator_()) >> 5), low = double(uint32_t(generator_()) >> 6);
    return (high * 67108864.0 + low) / 9007199254740992.0;
  }
  bool inversion(double p) {
    const double q = 1.0 - p, first = std::exp(std::log(q));
    const auto bound = int64_t(std::min(1.0, p + 10.0 * std::sqrt(p * q + 1)));
    int64_t x = 0;
    double px = first, u = uniform();
    while (u > px) {
      ++x;
      if (x > bound) {
        x = 0;
        px = first;
        u = uniform();
      } else {
        u -= px;
        px = double(1 - x + 1) * p * px / (double(x) * q);
      }
    }
    return x == 1;
  }

  std::mt19937 generator_;
};

// Where each character of a text begins, and where the text ends.
std::vector<size_t> character_offsets(const std::string& text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += utf8_step(text, at).bytes) offsets.push_back(at);
  offsets.push_back(text.size());
  return offsets;
}

struct Markers {
  int64_t end, prefix, middle, pad, suffix;
  std::optional<int64_t> split;
};

// Turns the tokens of one sample.
class Turner {
 public:
  Turner(const Tokenizer& tokenizer, const FimOptions& options, const Markers& markers,
         uint64_t seed)
      : tokenizer_(tokenizer), options_(options), markers_(markers), generator_(seed) {}

  // borders: of the documents in what is returned, that of the last left out.
  Tokens turn(std::span<const int64_t> tokens, std::vector<size_t>& borders) {
    Tokens out;
    std::span<const int64_t> rest = each_before(tokens, markers_.end, [&](auto piece) {
      append(out, permute(piece));
      out.push_back(markers_.end);
      borders.push_back(out.size());
    });
    append(out, permute(rest));
    return out;
  }

 private:
  using Piece = std::span<const int64_t>;

  static void append(Tokens& to, const Tokens& more) {
    to.insert(to.end(), more.begin(), more.end());
  }

  // visit(piece) for each piece before a `mark`; an empty one is left out, and its mark with it.
  // Returns what follows the last mark.
  template <class Visit>
  static Piece each_before(Piece tokens, int64_t mark, const Visit& visit) {
    size_t begin = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] != mark) continue;
      if (i > begin) visit(tokens.subspan(begin, i - begin));
      begin = i + 1;
    }
    return tokens.subspan(begin);
  }

  Tokens permute(Piece tokens) {
    const auto& split = markers_.split;
    if (!split || std::find(tokens.begin(), tokens.end(), *split) == tokens.end())
      return apply(tokens, options_.rate);
    if (!generator_.flip(options_.rate)) return Tokens(tokens.begin(), tokens.end());
    Tokens out;
    Piece rest = each_before(tokens, *split, [&](Piece fragment) {
      append(out, apply(fragment, options_.fragment_rate));
      out.push_back(*split);
    });
    append(out, apply(rest, options_.fragment_rate));
    return out;
  }

  Tokens apply(Piece tokens, double rate) {
    Tokens unchanged(tokens.begin(), tokens.end());
    if (!generator_.flip(rate)) return unchanged;
    const std::string text = tokenizer_.decode(tokens);
    if (options_.ignore_prefix && text.starts_with(*options_.ignore_prefix)) return unchanged;
    const std::vector<size_t> offsets = character_offsets(text);
    const auto [first, last] = draw_middle(offsets.size() - 1);
    auto part = [&](size_t begin, size_t end, const EncodeOptions& specials) {
      return tokenizer_.encode(
          std::string_view(text).substr(offsets[begin], offsets[end] - offsets[begin]), specials);
    };
    const Tokens prefix = part(0, first, {.begin = true}), middle = part(first, last, {});
    Tokens suffix = part(last, offsets.size() - 1, {.end = true});
    if (options_.truncate_or_pad) {
      const size_t length = prefix.size() + middle.size() + suffix.size() + 3;
      if (length > tokens.size()) {
        if (suffix.size() <= length - tokens.size()) return unchanged;
        suffix.resize(suffix.size() - (length - tokens.size()));
      } else {
        suffix.resize(suffix.size() + (tokens.size() - length), markers_.pad);
      }
    }
    Tokens out;
    out.reserve(prefix.size() + middle.size() + suffix.size() + 3);
    out.push_back(markers_.prefix);
    if (generator_.flip(options_.spm_rate)) {
      out.push_back(markers_.suffix);
      append(out, suffix);
      out.push_back(markers_.middle);
      append(out, prefix);
    } else {
      append(out, prefix);
      out.push_back(markers_.suffix);
      append(out, suffix);
      out.push_back(markers_.middle);
    }
    append(out, middle);
    return out;
  }

  // First character of the middle, and the one after it.
  std::pair<size_t, size_t> draw_middle(size_t characters) {
    if (!options_.max_middle_len) {
      size_t one = generator_.below(characters + 1), other = generator_.below(characters + 1);
      return std::minmax(one, other);
    }
    size_t length = generator_.below(std::min(size_t(*options_.max_middle_len), characters) + 1);
    size_t first = generator_.below(characters - length + 1);
    return {first, first + length};
  }

  const Tokenizer& tokenizer_;
  const FimOptions& options_;
  const Markers& markers_;
  Generator generator_;
};

class Fim final : public SampledDataset {
 public:
  Fim(std::shared_ptr<const SampledDataset> dataset, std::shared_ptr<const Tokenizer> tokenizer,
      const FimOptions& options, uint64_t seed)
      : dataset_(std::move(dataset)),
        tokenizer_(std::move(tokenizer)),
        options_(options),
        seed_(seed) {
    markers_.end = tokenizer_->end_id();
    markers_.prefix = marker("prefix_token", options_.prefix_token);
    markers_.middle = marker("middle_token", options_.middle_token);
    markers_.pad = marker("pad_token", options_.pad_token);
    markers_.suffix = marker("suffix_token", options_.suffix_token);
    check_distinct("prefix_token", markers_.prefix, "middle_token", markers_.middle);
    check_distinct("prefix_token", markers_.prefix, "suffix_token", markers_.suffix);
    check_distinct("middle_token", markers_.middle, "suffix_token", markers_.suffix);
    if (options_.split_sample) markers_.split = split_token(*options_.split_sample);
  }

  int64_t size() const override { return dataset_->size(); }
  std::string name() const override { return dataset_->name() + "_fim"; }
  std::vector<std::string> fingerprints() const override { return dataset_->fingerprints(); }

  void get(int64_t index, Sample& sample) const override {
    dataset_->get(index, sample);
    sample.loss_masking_spans.clear();
    sample.document_lengths.clear();
    std::vector<size_t> borders;
    Turner turner(*tokenizer_, options_, markers_, seed_ + uint64_t(index));
    const size_t length = sample.tokens.size() - size_t(sample.padding);
    Tokens turned = turner.turn(sample.tokens.first(length), borders);
    turned.resize(length, markers_.pad);
    std::copy(turned.begin(), turned.end(), sample.tokens.begin());
    size_t begin = 0;
    borders.push_back(turned.size());
    for (size_t border : borders) {
      border = std::min(border, turned.size());
      if (border > begin) sample.document_lengths.push_back(int64_t(border - begin));
      begin = border;
    }
    if (sample.padding > 0) sample.document_lengths.push_back(sample.padding);
  }

 private:
  int64_t marker(const char* key, const std::string& token) const {
    if (auto id = tokenizer_->token_id(token)) return *id;
    throw Error(Status::kInvalid,
                fmt::format("expected {} to be a token of the tokenizer {}, found '{}', which is "
                            "none; name one that is, or use a tokenizer made for filling in the "
                            "middle",
                            key, tokenizer_->name(), token));
  }
  // A model could not tell the parts apart.
  void check_distinct(const char* key, int64_t id, const char* other, int64_t other_id) const {
    if (id != other_id) return;
    throw Error(Status::kInvalid,
                fmt::format("expected {} and {} to be different tokens of the tokenizer {}, found "
                            "id {} for both; name another token for one of them",
                            key, other, tokenizer_->name(), id));
  }
  // A token by its name, or a text that is one token.
  int64_t split_token(const std::string& text) const {
    if (auto id = tokenizer_->token_id(text)) return *id;
    Tokens ids = tokenizer_->encode(text);
    if (ids.size() == 1) return ids[0];
    throw Error(Status::kInvalid, fmt::format("expected split_sample to be one token of the "
                                              "tokenizer {}, found '{}', which is {} tokens",
                                              tokenizer_->name(), text, ids.size()));
  }

  std::shared_ptr<const SampledDataset> dataset_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  FimOptions options_;
  uint64_t seed_;
  Markers markers_{};
};

}  // namespace

std::shared_ptr<const SampledDataset> make_fim(std::shared_ptr<const SampledDataset> dataset,
                                               std::shared_ptr<const Tokenizer> tokenizer,
                                               const FimOptions& options, uint64_t seed) {
  return std::make_shared<Fim>(std::move(dataset), std::move(tokenizer), options, seed);
}

}  // namespace fastllm::data
