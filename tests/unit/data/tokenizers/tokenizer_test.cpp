#include "core/data/tokenizers/byte_tokenizer.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <random>

#include "core/base/utf8.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ByteTokenizer, EncodesTheExamples) {
  ByteTokenizer bytes;
  EncodeOptions both{true, true};
  EXPECT_THAT(bytes.encode("hi", both), ElementsAre(256, 104, 105, 257));
  EXPECT_THAT(bytes.encode("\xC3\xA9"), ElementsAre(195, 169));
  EXPECT_THAT(bytes.encode("", both), ElementsAre(256, 257));
  EXPECT_THAT(bytes.encode("x", {false, true}), ElementsAre(120, 257));
  EXPECT_EQ(bytes.vocabulary(), 259);
  EXPECT_EQ(bytes.begin_id(), 256);
  EXPECT_EQ(bytes.end_id(), 257);
  EXPECT_EQ(bytes.pad_id(), 258);
  EXPECT_EQ(bytes.name(), "bytes");
  TokenBatch batch;
  std::string_view texts[] = {"ab", "", "c"};
  bytes.encode_batch(texts, batch);
  bytes.encode_batch(std::span(texts).first(1), batch);
  EXPECT_THAT(batch.tokens, ElementsAre(97, 98, 99, 97, 98));
  EXPECT_THAT(batch.sizes, ElementsAre(2, 0, 1, 2));
}

TEST(ByteTokenizer, TakesAddedTokens) {
  ByteTokenizer bytes({"<pre>", "<mid>"});
  EXPECT_EQ(bytes.vocabulary(), 261);
  EXPECT_EQ(bytes.token_id("<pre>"), 259);
  EXPECT_EQ(bytes.token_id("<mid>"), 260);
  EXPECT_EQ(bytes.token_id("<suf>"), std::nullopt);
  EXPECT_EQ(bytes.token_id("a"), std::nullopt);
  EXPECT_EQ(bytes.decode(std::vector<int64_t>{259, 97, 260}), "a");
  EXPECT_THAT(bytes.encode("<pre>"), ElementsAre('<', 'p', 'r', 'e', '>'));
  EXPECT_THAT(message_of(
                  [] {
                    ByteTokenizer({"a", "a"});
                  },
                  Status::kInvalid),
              HasSubstr("found 'a' twice"));
  EXPECT_THAT(message_of([] { ByteTokenizer({""}); }, Status::kInvalid), HasSubstr("found ''"));
}

TEST(ByteTokenizer, DecodesDroppingSpecialsAndReplacingInvalidBytes) {
  auto decode = [](std::vector<int64_t> ids) { return ByteTokenizer().decode(ids); };
  EXPECT_EQ(decode({256, 104, 258, 105, 257}), "hi");
  EXPECT_EQ(decode({195, 169}), "\xC3\xA9");
  EXPECT_EQ(decode({195, 104}), "\xEF\xBF\xBDh");
  EXPECT_EQ(decode({}), "");
  EXPECT_THAT(message_of(
                  [&] {
                    decode({1, 259});
                  },
                  Status::kInvalid),
              AllOf(HasSubstr("found 259 at position 1"), HasSubstr("0 to 258")));
  EXPECT_THAT(message_of([&] { decode({-1}); }, Status::kInvalid), HasSubstr("found -1"));
}

TEST(ByteTokenizer, RefusesInvalidTextWithTheOffset) {
  EXPECT_THAT(message_of([] { ByteTokenizer().encode("abcdefghij\xFFk"); }, Status::kInvalid),
              HasSubstr("0xff at offset 10"));
}

TEST(SentencePiece, RefusesWhatIsNoModel) {
  TemporaryDirectory folder;
  fs::path path = folder.path() / "tokenizer.model";
  for (const char* content : {"", "no model",
                              "\x0A\x05\x0A\x03"
                              "abc"}) {
    write_file_atomic(path, content);
    for (const fs::path& named : {path, folder.path()}) {
      EXPECT_THAT(message_of(
                      [&] {
                        open_tokenizer({named.string(), {}, 1, ""});
                      },
                      Status::kInvalid),
                  AllOf(HasSubstr("expected a SentencePiece model in"), HasSubstr(path.string())))
          << content;
    }
  }
}

// Real tokenizers of each kind, made and judged by their own Python libraries.
class PretrainedTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* python = std::getenv("FASTLLM_JUDGES_PYTHON");
    if (!python) GTEST_SKIP() << "FASTLLM_JUDGES_PYTHON names no Python";
    python_ = python;
    std::string command = python_ + " " + FASTLLM_SOURCE_DIR +
                          "/tests/integration/tokenizer_judge.py " + folder_.path().string();
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  std::shared_ptr<const Tokenizer> open(const std::string& name) const {
    return open_tokenizer({(folder_.path() / name).string(), {}, 1, python_});
  }

  TemporaryDirectory folder_;
  std::string python_;
};

TEST_F(PretrainedTokenizer, DecodesAsItsLibraryDoes) {
  for (const char* name : {"bpe", "sentencepiece_bpe", "sentencepiece_unigram"}) {
    auto tokenizer = open(name);
    auto cases =
        nlohmann::json::parse(read_file(folder_.path() / (std::string(name) + ".decoded.json")));
    EXPECT_GT(cases.size(), 20u);
    for (const auto& entry : cases) {
      EXPECT_EQ(tokenizer->decode(entry[0].get<std::vector<int64_t>>()),
                entry[1].get<std::string>())
          << name << " " << entry[0];
    }
    std::vector<int64_t> outside = {tokenizer->vocabulary()};
    EXPECT_THAT(message_of([&] { tokenizer->decode(outside); }, Status::kInvalid),
                AllOf(HasSubstr("expected ids from 0 to"), HasSubstr(name)));
    EXPECT_THAT(message_of([&] { tokenizer->encode("a\xC0"); }, Status::kInvalid),
                HasSubstr("0xc0 at offset 1"));
  }
}

TEST_F(PretrainedTokenizer, KnowsItsSpecialTokens) {
  auto bpe = open("bpe");
  EXPECT_EQ(bpe->token_id("<pad>"), 2);
  EXPECT_EQ(bpe->pad_id(), std::nullopt);  // no file names it
  EXPECT_EQ(bpe->token_id("<none>"), std::nullopt);
  auto file = nlohmann::json::parse(read_file(folder_.path() / "bpe" / "tokenizer.json"));
  EXPECT_EQ(size_t(bpe->vocabulary()), file["model"]["vocab"].size());
  auto pieces = open("sentencepiece_bpe");
  EXPECT_EQ(pieces->token_id("<s>"), pieces->begin_id());
  EXPECT_EQ(pieces->token_id("<fim>"), pieces->end_id());
  EXPECT_EQ(pieces->token_id("<unk>"), 0);
  EXPECT_EQ(pieces->token_id("<none>"), std::nullopt);
  EXPECT_EQ(pieces->pad_id(), std::nullopt);
  EXPECT_THAT(message_of([&] { open("no_begin"); }, Status::kInvalid),
              AllOf(HasSubstr("expected a beginning-of-sequence token"), HasSubstr("no_begin")));
  for (const char* name : {"bpe", "sentencepiece_bpe"}) {
    const fs::path config = folder_.path() / name / "tokenizer_config.json";
    nlohmann::json named = nlohmann::json::object();
    if (fs::exists(config)) named = nlohmann::json::parse(read_file(config));
    named["pad_token"] = "<s>";
    write_file_atomic(config, named.dump());
    const auto tokenizer = open(name);
    EXPECT_EQ(tokenizer->pad_id(), tokenizer->token_id("<s>")) << name;
    EXPECT_NE(tokenizer->pad_id(), std::nullopt) << name;
  }
}

TEST(Utf8, KnowsWhatIsValid) {
  for (const char* text :
       {"", "plain ascii, more than eight", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
        "\xEE\x80\x80", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_EQ(find_invalid_utf8(text), std::string_view::npos) << text;
  }
  struct Bad {
    const char* text;
    size_t at;
    const char* repaired;  // as Python's errors="replace" gives
  };
  const char* r = "\xEF\xBF\xBD";
  auto times = [&](int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += r;
    return text;
  };
  std::string one = times(1), two = times(2), three = times(3), four = times(4), one_a = one + "a",
              a_one = "a" + one;
  const Bad bad[] = {
      {"\x80", 0, one.c_str()},               // a follower alone
      {"\xC0\xAF", 0, two.c_str()},           // overlong
      {"\xE0\x80\xAF", 0, three.c_str()},     // overlong
      {"\xF0\x80\x80\x80", 0, four.c_str()},  // overlong
      {"\xED\xA0\x80", 0, three.c_str()},     // a surrogate
      {"\xF4\x90\x80\x80", 0, four.c_str()},  // above U+10FFFF
      {"\xF5", 0, one.c_str()},               //
      {"a\xE2\x82", 1, a_one.c_str()},        // cut: one character for both bytes
      {"\xE2\x82"
       "a",
       0, one_a.c_str()},                //
      {"\xF0\x9F\x98", 0, one.c_str()},  //
  };
  for (const Bad& c : bad) {
    EXPECT_EQ(find_invalid_utf8(c.text), c.at) << c.text;
    EXPECT_EQ(repair_utf8(c.text), c.repaired) << c.text;
  }
}

TEST(Utf8, RepairsAsPythonDoes) {
  const char* python = std::getenv("FASTLLM_JUDGES_PYTHON");
  if (!python) GTEST_SKIP() << "FASTLLM_JUDGES_PYTHON names no Python";
  TemporaryDirectory folder;
  std::mt19937 random(11);
  const char alphabet[] =
      "a\x80\xBF\xC2\xC3\xA9\xE0\xA0\xE2\x82\xAC\xED\x9F\xF0\x90\x9F\xF4\x8F\xFF";
  std::string bytes;
  for (int i = 0; i < 20000; ++i) bytes += alphabet[random() % (sizeof(alphabet) - 1)];
  write_file_atomic(folder.path() / "in", bytes);
  std::string in = (folder.path() / "in").string(), out = (folder.path() / "out").string();
  std::string command = std::string(python) + " -c \"open('" + out + "', 'wb').write(open('" + in +
                        "', 'rb').read().decode('utf-8', 'replace').encode())\"";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(repair_utf8(bytes), read_file(out));
}

TEST(Utf8, MovesABorderBackOutOfACharacter) {
  std::string text =
      "a\xE2\x82\xAC"
      "b\xFF\x80";
  std::vector<size_t> borders;
  for (size_t i = 0; i <= text.size() + 1; ++i) borders.push_back(utf8_border_before(text, i));
  // Inside the euro sign: before it. After invalid bytes: where asked.
  EXPECT_THAT(borders, ElementsAre(0, 1, 1, 1, 4, 5, 6, 7, 7));
}

}  // namespace
}  // namespace fastllm::data
