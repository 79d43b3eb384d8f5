#include "core/data/sampling/fim.hpp"

#include <gmock/gmock.h>

#include <set>
#include <thread>

#include "core/data/sampling/random_dataset.hpp"
#include "core/data/tokenizers/byte_tokenizer.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Tokens = std::vector<int64_t>;

// The goldens' tokenizer: id i is the character 33 + i.
class ToyTokenizer final : public Tokenizer {
 public:
  explicit ToyTokenizer(const json& spec) : spec_(spec) {}
  std::string name() const override { return "toy"; }
  int64_t vocabulary() const override { return 96; }
  int64_t begin_id() const override { return spec_.at("bod"); }
  int64_t end_id() const override { return spec_.at("eod"); }
  std::optional<int64_t> pad_id() const override { return spec_.at("pad"); }
  std::optional<int64_t> token_id(std::string_view token) const override {
    if (token.starts_with("<fim_"))
      return spec_.at(std::string(token.substr(5, token.size() - 6))).get<int64_t>();
    return std::nullopt;
  }
  void encode_batch(std::span<const std::string_view> texts, TokenBatch& batch) const override {
    for (std::string_view text : texts) {
      for (char c : text) batch.tokens.push_back(c - 33);
      batch.sizes.push_back(int64_t(text.size()));
    }
  }
  std::string decode(std::span<const int64_t> ids) const override {
    std::string text;
    for (int64_t id : ids) text += char(33 + id);
    return text;
  }

 private:
  json spec_;
};

// Fixed samples, again and again.
class Fixed final : public SampledDataset {
 public:
  explicit Fixed(std::vector<Tokens> samples) : samples_(std::move(samples)) {}
  int64_t size() const override { return 1000; }
  void get(int64_t index, Sample& sample) const override {
    const Tokens& tokens = samples_[size_t(index) % samples_.size()];
    ASSERT_EQ(sample.tokens.size(), tokens.size());
    std::copy(tokens.begin(), tokens.end(), sample.tokens.begin());
    sample.loss_masking_spans = {{0, 1}};
    sample.document_lengths = {int64_t(tokens.size())};
  }
  std::string name() const override { return "fixed"; }
  std::vector<std::string> fingerprints() const override { return {"fixed: in memory"}; }
  bool has_spans() const override { return true; }

 private:
  std::vector<Tokens> samples_;
};

FimOptions options_from(const json& config) {
  FimOptions options;
  options.rate = config.value("rate", 0.0);
  options.fragment_rate = config.value("fragment_rate", 0.0);
  options.spm_rate = config.value("spm_rate", 0.5);
  options.truncate_or_pad = config.value("truncate_or_pad", false);
  if (config.contains("max_middle_len")) options.max_middle_len = config["max_middle_len"];
  if (config.contains("split_sample")) options.split_sample = config["split_sample"];
  if (config.contains("ignore_prefix")) options.ignore_prefix = config["ignore_prefix"];
  return options;
}

class FimGoldens : public ::testing::Test {
 protected:
  std::shared_ptr<const SampledDataset> make(const FimOptions& options, uint64_t seed) const {
    return make_fim(std::make_shared<Fixed>(inputs), toy, options, seed);
  }
  json goldens = fixture_json("sampling/expected.json").at("fim");
  std::shared_ptr<const Tokenizer> toy =
      std::make_shared<ToyTokenizer>(goldens.at("toy_tokenizer"));
  std::vector<Tokens> inputs = goldens.at("inputs").get<std::vector<Tokens>>();
};

TEST_F(FimGoldens, AreReproduced) {
  ASSERT_GE(goldens.at("results").size(), 6u);
  for (const json& golden : goldens.at("results")) {
    SCOPED_TRACE(golden.at("config").dump());
    auto dataset = make(options_from(golden.at("config")), golden.at("seed"));
    for (size_t i = 0; i < golden.at("samples").size(); ++i) {
      Tokens expected = golden.at("samples")[i];
      EXPECT_EQ(read_sample(*dataset, int64_t(i), int64_t(expected.size()) - 1), expected) << i;
    }
  }
}

TEST_F(FimGoldens, SomeSamplesAreTurnedAndOthersNot) {
  auto dataset = make({.rate = 0.5}, 5);
  int turned = 0;
  for (int64_t i = 0; i < 300; i += 3) turned += read_sample(*dataset, i, 11) != inputs[0];
  EXPECT_GT(turned, 30);
  EXPECT_LT(turned, 70);
  auto never = make({.rate = 0}, 5), always = make({.rate = 1}, 5);
  for (int64_t i = 0; i < 30; i += 3) {
    EXPECT_EQ(read_sample(*never, i, 11), inputs[0]);
    EXPECT_NE(read_sample(*always, i, 11), inputs[0]);
  }
}

TEST_F(FimGoldens, TextsWithThePrefixStay) {
  // Input 0 begins with the characters of 1, 2: "\"#".
  auto dataset = make({.rate = 1, .ignore_prefix = "\"#"}, 5);
  EXPECT_EQ(read_sample(*dataset, 0, 11), inputs[0]);
  EXPECT_NE(read_sample(*dataset, 2, 11), inputs[2]);
}

TEST_F(FimGoldens, DocumentsAreWhatLiesBetweenEnds) {
  // Input 1 is 1 2 3 EOS 4 5 6 7 EOS 8 9 10.
  auto never = make({.rate = 0}, 5), always = make({.rate = 1}, 5);
  Sample sample;
  read_sample(*never, 1, 11, &sample);
  EXPECT_THAT(sample.document_lengths, ElementsAre(4, 5, 3));
  EXPECT_TRUE(sample.loss_masking_spans.empty());
  EXPECT_FALSE(never->has_spans());
  // A turned text grows by three marks, BOS and EOS: the first takes 3 + 5 and its EOS.
  Tokens tokens = read_sample(*always, 1, 11, &sample);
  EXPECT_EQ(tokens[8], 91);
  EXPECT_THAT(sample.document_lengths, ElementsAre(9, 3));
  read_sample(*always, 0, 11, &sample);
  EXPECT_THAT(sample.document_lengths, ElementsAre(12));
}

TEST_F(FimGoldens, EmptyTextsLoseTheirEnd) {
  auto dataset = make_fim(std::make_shared<Fixed>(std::vector<Tokens>{{91, 91, 1, 2, 91}}), toy,
                          {.rate = 0}, 5);
  Sample sample;
  EXPECT_THAT(read_sample(*dataset, 0, 4, &sample), ElementsAre(1, 2, 91, 94, 94));
  EXPECT_THAT(sample.document_lengths, ElementsAre(3, 2));
}

TEST_F(FimGoldens, PaddingStaysAtTheEnd) {
  class Padded final : public SampledDataset {
   public:
    int64_t size() const override { return 1; }
    void get(int64_t, Sample& sample) const override {
      const Tokens tokens{1, 2, 91, 3, -100, -100};
      std::copy(tokens.begin(), tokens.end(), sample.tokens.begin());
      sample.document_lengths = {3, 1, 2};
      sample.padding = 2;
    }
    std::string name() const override { return "padded"; }
    std::vector<std::string> fingerprints() const override { return {}; }
  };
  auto dataset = make_fim(std::make_shared<Padded>(), toy, {.rate = 1}, 5);
  Sample sample;
  Tokens tokens = read_sample(*dataset, 0, 5, &sample);
  EXPECT_EQ(tokens[0], 92);  // turned
  EXPECT_EQ(Tokens(tokens.begin() + 4, tokens.end()), (Tokens{-100, -100}));
  EXPECT_THAT(sample.document_lengths, ElementsAre(4, 2));
  EXPECT_EQ(sample.padding, 2);
}

TEST(Fim, CutsTheByteTokenizerAtCharacters) {
  auto bytes = std::make_shared<ByteTokenizer>(
      std::vector<std::string>{"<fim_prefix>", "<fim_middle>", "<fim_pad>", "<fim_suffix>"});
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";  // 1 to 4 bytes each
  Tokens tokens = bytes->encode(text);
  Tokens padded = tokens;
  padded.resize(tokens.size() + 5, 256);  // room for the marks; BOS is dropped by decoding
  auto dataset = make_fim(std::make_shared<Fixed>(std::vector<Tokens>{padded}), bytes,
                          {.rate = 1, .spm_rate = 0}, 9);
  std::set<Tokens> seen;
  for (int64_t i = 0; i < 60; ++i) {
    Tokens turned = read_sample(*dataset, i, int64_t(padded.size()) - 1);
    seen.insert(turned);
    auto suffix = std::find(turned.begin(), turned.end(), 262);
    auto middle = std::find(turned.begin(), turned.end(), 260);
    ASSERT_EQ(turned[0], 259);
    ASSERT_EQ(turned[1], 256);
    ASSERT_LT(suffix, middle);
    ASSERT_EQ(*(middle - 1), 257);
    std::string parts[] = {bytes->decode(Tokens(turned.begin() + 1, suffix)),
                           bytes->decode(Tokens(middle + 1, turned.end())),
                           bytes->decode(Tokens(suffix + 1, middle))};
    EXPECT_EQ(parts[0] + parts[1] + parts[2], text);  // no character was torn: none is replaced
  }
  EXPECT_GT(seen.size(), 10u);
}

TEST(Fim, SaysWhichTokenIsMissing) {
  auto random = make_random("dummy", 4, 4, 100, 3);
  auto error = [&](const FimOptions& options, std::vector<std::string> added) {
    return message_of([&] { make_fim(random, std::make_shared<ByteTokenizer>(added), options, 1); },
                      Status::kInvalid);
  };
  EXPECT_THAT(error({}, {}), HasSubstr("expected prefix_token to be a token of the tokenizer "
                                       "bytes, found '<fim_prefix>'"));
  const std::vector<std::string> added{"<p>", "<m>", "<pad>", "<s>"};
  FimOptions options{.rate = 1};
  options.prefix_token = "<p>";
  EXPECT_THAT(error(options, added), HasSubstr("middle_token"));
  options.middle_token = "<m>";
  EXPECT_THAT(error(options, added), HasSubstr("pad_token"));
  options.pad_token = "<pad>";
  EXPECT_THAT(error(options, added), HasSubstr("suffix_token"));
  options.suffix_token = "<s>";
  EXPECT_EQ(error(options, added), "(no error)");
  options.suffix_token = "<m>";
  EXPECT_THAT(error(options, added),
              HasSubstr("expected middle_token and suffix_token to be different tokens of the "
                        "tokenizer bytes, found id 260 for both"));
  options.suffix_token = "<s>";
  options.split_sample = "ab";
  EXPECT_THAT(error(options, added), HasSubstr("'ab', which is 2 tokens"));
  options.split_sample = "\n";
  EXPECT_EQ(error(options, added), "(no error)");
  options.split_sample = "<s>";
  EXPECT_EQ(error(options, added), "(no error)");
  EXPECT_EQ(make_fim(random, std::make_shared<ByteTokenizer>(added), options, 1)->name(),
            "dummy_fim");
}

}  // namespace
}  // namespace fastllm::data
