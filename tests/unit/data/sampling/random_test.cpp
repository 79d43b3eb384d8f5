#include "core/data/sampling/random.hpp"

#include <gmock/gmock.h>

#include "core/data/sampling/random_dataset.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(Random, RandpermEqualsTorch) {
  json cases = fixture_json("sampling/expected.json").at("torch_cpu_randperm");
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    EXPECT_EQ(torch_randperm<uint32_t>(c.at("n"), c.at("seed")),
              c.at("value").get<std::vector<uint32_t>>());
    EXPECT_EQ(torch_randperm<uint64_t>(c.at("n"), c.at("seed")),
              c.at("value").get<std::vector<uint64_t>>());
  }
  // Beyond one state of the generator, and seeds beyond 32 bits. SHA-256 of the int64 values torch 2.11 gives.
  EXPECT_EQ(sha256_hex(bytes_of(torch_randperm<uint64_t>(25000, 784569))),
            "f826890e04d0c958490fc57362ca749a49418af5a9a2e31cc17a71051eea51ae");
  EXPECT_EQ(sha256_hex(bytes_of(torch_randperm<uint64_t>(100003, 784569))),
            "f9c1503958d7f0b625e4afa76d46ca7cc143feb872737bae8c9dc75f0d7c5aab");
  EXPECT_THAT(torch_randperm<uint32_t>(6, uint64_t(-5)), ElementsAre(2, 0, 5, 1, 3, 4));
  EXPECT_THAT(torch_randperm<uint32_t>(6, (uint64_t(1) << 32) + 7), ElementsAre(3, 0, 1, 5, 2, 4));
  EXPECT_TRUE(torch_randperm<uint32_t>(0, 1).empty());
  EXPECT_THAT(torch_randperm<uint32_t>(1, 1), ElementsAre(0));
}

TEST(Random, ShuffleEqualsNumpy) {
  json cases = fixture_json("sampling/expected.json").at("numpy_randomstate_shuffle");
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    std::vector<int64_t> values(c.at("n").get<size_t>());
    std::iota(values.begin(), values.end(), 0);
    std::mt19937 generator = make_generator(c.at("seed"));
    numpy_shuffle(generator, std::span(values));
    EXPECT_EQ(values, c.at("value").get<std::vector<int64_t>>());
  }
}

TEST(Random, BoundedDrawsNothingForZeroAndAWholeWordForTheLargest) {
  std::mt19937 generator = make_generator(3), untouched = make_generator(3);
  EXPECT_EQ(numpy_bounded(generator, 0), 0u);
  EXPECT_EQ(generator, untouched);
  EXPECT_EQ(numpy_bounded(generator, UINT32_MAX), untouched());
}

TEST(RandomDataset, EqualsTheReference) {
  json cases = fixture_json("sampling/expected.json").at("random_dataset");
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    auto dataset =
        make_random("dummy", 100, c.at("sequence_length"), c.at("vocab_size"), c.at("seed"));
    for (size_t i = 0; i < c.at("samples").size(); ++i) {
      Sample sample;
      EXPECT_EQ(read_sample(*dataset, int64_t(i), c.at("sequence_length"), &sample),
                c.at("samples").at(i).get<std::vector<int64_t>>());
      EXPECT_THAT(sample.document_lengths, ElementsAre(c.at("sequence_length").get<int64_t>() + 1));
    }
  }
  auto dataset = make_random("dummy", 100, 5, 8192, 54983 + 697);
  EXPECT_THAT(read_sample(*dataset, 2, 5), ElementsAre(6920, 2218, 2921, 3963, 7606, 6904));
  EXPECT_EQ(dataset->locate(3, 4), "position 4 of sample 3 of dataset dummy");
}

TEST(RandomDataset, RefusesAnEmptyVocabulary) {
  EXPECT_THAT(message_of([] { make_random("dummy", 1, 1, 0, 0); }, Status::kInvalid),
              HasSubstr("found 0"));
}

}  // namespace
}  // namespace fastllm::data
