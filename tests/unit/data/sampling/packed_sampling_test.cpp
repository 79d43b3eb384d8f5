// Whole documents, packed: against the plainest packing, and the reference's own cases.
#include <gmock/gmock.h>

#include <numeric>
#include <set>
#include <thread>

#include "core/base/log.hpp"
#include "core/data/sampling/random.hpp"
#include "core/data/sampling/sampling.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Documents = std::vector<std::vector<int64_t>>;

// Documents of these sizes over the ids 0, 1, 2, ...
Documents counting(const std::vector<int64_t>& sizes) {
  Documents documents;
  int64_t id = 0;
  for (int64_t size : sizes) {
    documents.emplace_back(size_t(size), 0);
    for (int64_t& token : documents.back()) token = id++;
  }
  return documents;
}

std::shared_ptr<const SampledDataset> packed(const Documents& documents, SamplingOptions options) {
  options.truncate_documents = false;
  return make_sampled(std::make_shared<FakeDocuments>(documents), options);
}

// The definition: documents in order, as many as fit, then padding.
Documents plain_packing(const Documents& order, int64_t capacity, int64_t longest, int64_t count) {
  Documents samples(1);
  for (size_t i = 0; int64_t(samples.size()) <= count; ++i) {
    const auto& document = order[i % order.size()];
    if (int64_t(document.size()) > longest) continue;
    if (int64_t(samples.back().size() + document.size()) > capacity) samples.emplace_back();
    samples.back().insert(samples.back().end(), document.begin(), document.end());
  }
  samples.pop_back();
  for (auto& sample : samples) sample.resize(size_t(capacity), kIgnoredLabel);
  return samples;
}

TEST(PackedSampling, EqualsThePlainPacking) {
  log::configure({.level = log::Level::kError});  // hundreds of warnings otherwise
  std::mt19937 random(11);
  for (int round = 0; round < 80; ++round) {
    std::vector<int64_t> sizes(1 + random() % 60);
    for (int64_t& size : sizes) size = int64_t(random() % 5 == 0 ? 0 : random() % 14);
    SamplingOptions options{.num_samples = 1 + int64_t(random() % 60),
                            .sequence_length = 1 + int64_t(random() % 20),
                            .seed = random(),
                            .predicted_tokens = 1 + int64_t(random() % 3)};
    if (random() % 2) options.maximum_document_length = 1 + int64_t(random() % 10);
    const int64_t capacity = options.sequence_length + options.predicted_tokens;
    const int64_t longest = options.maximum_document_length > 0
                                ? std::min(options.maximum_document_length, capacity)
                                : capacity;
    const Documents documents = counting(sizes);
    int64_t kept = 0;
    for (int64_t size : sizes) kept += size <= longest ? size : 0;
    if (kept == 0) continue;
    const auto epochs = uint64_t((capacity * options.num_samples + kept - 1) / kept);
    for (Shuffle shuffle :
         {Shuffle::kDisabled, Shuffle::kEpoch, Shuffle::kSkipFirstEpoch, Shuffle::kFull}) {
      SCOPED_TRACE(int(shuffle));
      options.shuffle = shuffle;
      const auto n = uint64_t(sizes.size());
      std::vector<uint64_t> numbers;
      // One epoch more than the tokens need: padding takes room, and the plain packing looks ahead.
      for (uint64_t e = 0; e < (shuffle == Shuffle::kFull ? 1 : 3 * epochs + 1); ++e) {
        std::vector<uint64_t> more(n);
        std::iota(more.begin(), more.end(), uint64_t(0));
        if (shuffle == Shuffle::kEpoch) more = torch_randperm<uint64_t>(n, options.seed + 571 * e);
        if (shuffle == Shuffle::kSkipFirstEpoch && e > 0)
          more = torch_randperm<uint64_t>(n, options.seed + 571 * (e - 1));
        if (shuffle == Shuffle::kFull) more = torch_randperm<uint64_t>(n * epochs, options.seed);
        numbers.insert(numbers.end(), more.begin(), more.end());
      }
      Documents order;
      for (uint64_t number : numbers) order.push_back(documents[number % n]);
      const Documents expected = plain_packing(order, capacity, longest, options.num_samples);
      auto dataset = packed(documents, options);
      // From the end, so that the first access is far in.
      for (int64_t i = options.num_samples - 1; i >= 0; --i) {
        Sample sample;
        ASSERT_EQ(
            read_sample(*dataset, i, options.sequence_length, &sample, options.predicted_tokens),
            expected[size_t(i)])
            << i;
        EXPECT_EQ(std::accumulate(sample.document_lengths.begin(), sample.document_lengths.end(),
                                  int64_t(0)),
                  capacity);
        EXPECT_EQ(sample.padding, std::count(expected[size_t(i)].begin(), expected[size_t(i)].end(),
                                             kIgnoredLabel));
      }
    }
  }
  log::configure({});
}

TEST(PackedSampling, LeavesLongDocumentsOutAndSaysSo) {
  TemporaryDirectory folder;
  log::set_file(folder.path() / "log");
  auto dataset = packed(counting({3, 5, 2, 4, 6}), {.num_samples = 2,
                                                    .sequence_length = 4,
                                                    .shuffle = Shuffle::kDisabled,
                                                    .maximum_document_length = 4});
  log::flush();
  log::set_file({});
  EXPECT_THAT(read_file(folder.path() / "log"),
              HasSubstr("2 of 5 documents of dataset fake are longer than 4 tokens and left out"));
  Sample sample;
  EXPECT_THAT(read_sample(*dataset, 0, 4, &sample), ElementsAre(0, 1, 2, 8, 9));
  EXPECT_THAT(sample.document_lengths, ElementsAre(3, 2));
  EXPECT_THAT(read_sample(*dataset, 1, 4, &sample), ElementsAre(10, 11, 12, 13, -100));
  EXPECT_THAT(sample.document_lengths, ElementsAre(4, 1));
  EXPECT_EQ(dataset->locate(0, 4), "position 1 of document 2 of fake");
  EXPECT_EQ(dataset->locate(1, 4), "the padding of sample 1 of dataset fake");
}

TEST(PackedSampling, TruncationKeepsEveryToken) {
  auto dataset = make_sampled(std::make_shared<FakeDocuments>(counting({3, 5, 2, 4, 6})),
                              {.num_samples = 10,
                               .sequence_length = 4,
                               .shuffle = Shuffle::kDisabled,
                               .maximum_document_length = 4});
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 10; ++i) {
    for (int64_t token : read_sample(*dataset, i, 4)) seen.insert(token);
  }
  EXPECT_EQ(seen.size(), 20u);
  EXPECT_EQ(*seen.begin(), 0);
}

// With their padding, documents 0, 4, 8 and the end lie 0, 3, 5 and 7 samples of 769 tokens in.
TEST(PackedSampling, PutsDocumentsWhereTheReferenceDoes) {
  const std::vector<int64_t> sizes{100, 256, 580, 600, 550, 89, 339, 430, 400, 795, 680, 50};
  const Documents documents = counting(sizes);
  auto dataset =
      packed(documents, {.num_samples = 8, .sequence_length = 768, .shuffle = Shuffle::kDisabled});
  auto first_token = [&](int64_t sample) { return read_sample(*dataset, sample, 768)[0]; };
  EXPECT_EQ(first_token(0), documents[0][0]);
  EXPECT_EQ(first_token(2307 / 769), documents[4][0]);
  EXPECT_EQ(first_token(3845 / 769), documents[8][0]);
  EXPECT_EQ(first_token(5383 / 769), documents[0][0]);  // the next epoch
}

TEST(PackedSampling, FewerSamplesAreAPrefix) {
  const Documents documents = counting({3, 5, 2, 4, 6, 1, 1, 7});
  for (Shuffle shuffle : {Shuffle::kDisabled, Shuffle::kEpoch, Shuffle::kSkipFirstEpoch}) {
    auto many = packed(documents, {.num_samples = 50, .sequence_length = 6, .shuffle = shuffle}),
         few = packed(documents, {.num_samples = 7, .sequence_length = 6, .shuffle = shuffle});
    for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(read_sample(*few, i, 6), read_sample(*many, i, 6));
  }
}

TEST(PackedSampling, MovesSpansWithTheirDocuments) {
  auto documents = std::make_shared<FakeDocuments>(
      Documents{{0, 1, 2}, {3, 4}}, std::vector<std::vector<Span>>{{{1, 2}}, {{0, 0}}});
  auto dataset = make_sampled(documents, {.num_samples = 2,
                                          .sequence_length = 5,
                                          .shuffle = Shuffle::kDisabled,
                                          .use_loss_masking_spans = true,
                                          .truncate_documents = false});
  EXPECT_TRUE(dataset->has_spans());
  Sample sample;
  read_sample(*dataset, 0, 5, &sample);
  EXPECT_THAT(sample.loss_masking_spans, ElementsAre(Span{1, 2}, Span{3, 3}));
}

TEST(PackedSampling, ThreadsSeeTheSameSamples) {
  const Documents documents = counting({3, 5, 2, 4, 6, 1, 1, 7});
  const SamplingOptions options{.num_samples = 300, .sequence_length = 9, .seed = 4};
  std::vector<std::vector<int64_t>> expected;
  auto alone = packed(documents, options);
  for (int64_t i = 0; i < 300; ++i) expected.push_back(read_sample(*alone, i, 9));
  auto shared = packed(documents, options);
  std::vector<std::thread> threads;
  std::vector<int> different(4, 0);
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = int64_t(t); i < 300; i += 2)
        different[t] += read_sample(*shared, i, 9) != expected[size_t(i)];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(different, ElementsAre(0, 0, 0, 0));
}

TEST(PackedSampling, RefusesWhatCannotBePacked) {
  auto error = [](const SamplingOptions& options) {
    return message_of([&] { packed(counting({5, 6, 0}), options); }, Status::kInvalid);
  };
  EXPECT_THAT(error({.num_samples = 1, .sequence_length = 3}),
              AllOf(HasSubstr("documents of at most 4 tokens in dataset fake"),
                    HasSubstr("truncate_documents: true")));
  EXPECT_THAT(error({.num_samples = 1, .sequence_length = 30, .maximum_document_length = 4}),
              HasSubstr("at most 4 tokens"));
  EXPECT_THAT(error({.num_samples = 1, .sequence_length = 30, .shuffle = Shuffle::kLegacy}),
              HasSubstr("with shuffle legacy"));
  EXPECT_THAT(error({.num_samples = INT64_MAX / 4, .sequence_length = 3}), HasSubstr("samples of"));
  auto dataset = packed(counting({3}), {.num_samples = 2, .sequence_length = 3});
  EXPECT_THAT(message_of([&] { read_sample(*dataset, 2, 3); }, Status::kInvalid),
              HasSubstr("from 0 to 1"));
}

}  // namespace
}  // namespace fastllm::data
