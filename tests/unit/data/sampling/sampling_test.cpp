#include "core/data/sampling/sampling.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <set>
#include <thread>

#include "core/base/log.hpp"
#include "core/data/sampling/random.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using Documents = std::vector<std::vector<int64_t>>;

constexpr Shuffle kAll[] = {Shuffle::kDisabled, Shuffle::kEpoch, Shuffle::kSkipFirstEpoch,
                            Shuffle::kFull, Shuffle::kLegacy};

const Documents& six_documents() {
  static const Documents documents =
      fixture_json("sampling/expected.json").at("documents").get<Documents>();
  return documents;
}

Documents all_samples(const SampledDataset& dataset, int64_t length) {
  Documents samples;
  for (int64_t i = 0; i < dataset.size(); ++i) samples.push_back(read_sample(dataset, i, length));
  return samples;
}

TEST(Sampling, EqualsTheGoldensForEveryShuffleAndSeed) {
  json cases = fixture_json("sampling/expected.json").at("sampling");
  std::set<std::string> seen;
  for (const json& c : cases) {
    SCOPED_TRACE(c.at("shuffle").get<std::string>() + " seed " + c.at("seed").dump());
    seen.insert(c.at("shuffle"));
    auto dataset = make_sampled(std::make_shared<FakeDocuments>(six_documents()),
                                {c.at("num_samples"), c.at("sequence_length"), c.at("seed"),
                                 parse_shuffle(c.at("shuffle").get<std::string>())});
    EXPECT_EQ(all_samples(*dataset, c.at("sequence_length")), c.at("samples").get<Documents>());
  }
  EXPECT_EQ(seen.size(), std::size(kAll));
}

TEST(Sampling, AnySampleCanBeReadFirst) {
  for (Shuffle shuffle : kAll) {
    auto make = [&] {
      return make_sampled(std::make_shared<FakeDocuments>(six_documents()), {20, 5, 32, shuffle});
    };
    Documents forward = all_samples(*make(), 5);
    auto backward = make();
    for (int64_t i = 19; i >= 0; --i) EXPECT_EQ(read_sample(*backward, i, 5), forward[size_t(i)]);
    for (int64_t i = 0; i < 20; ++i) EXPECT_EQ(read_sample(*make(), i, 5), forward[size_t(i)]);
  }
}

TEST(Sampling, FewerSamplesAreAPrefix) {
  for (Shuffle shuffle : {Shuffle::kDisabled, Shuffle::kEpoch, Shuffle::kSkipFirstEpoch}) {
    for (uint64_t seed : {0, 32, 88}) {
      auto sampled = [&](int64_t count) {
        return all_samples(*make_sampled(std::make_shared<FakeDocuments>(six_documents()),
                                         {count, 5, seed, shuffle}),
                           5);
      };
      Documents whole = sampled(20);
      for (int64_t count : {10, 6, 5, 2, 1}) {
        EXPECT_EQ(sampled(count), Documents(whole.begin(), whole.begin() + count));
      }
    }
  }
}

// The definition in a few lines, against many shapes: samples that cover several epochs, tiny and empty documents.
TEST(Sampling, EqualsThePlainStream) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    Documents documents(1 + random() % 150);
    int64_t tokens = 0;
    for (auto& document : documents) {
      document.resize(random() % 4 == 0 ? 0 : random() % 9);
      for (int64_t& token : document) token = tokens++;
    }
    if (tokens == 0) continue;
    int64_t length = 1 + random() % 40, count = 1 + random() % 30;
    uint64_t seed = random();
    auto epochs = int64_t(std::ceil(double(length * count + 1) / double(tokens)));
    auto n = uint64_t(documents.size());
    for (Shuffle shuffle :
         {Shuffle::kDisabled, Shuffle::kEpoch, Shuffle::kSkipFirstEpoch, Shuffle::kFull}) {
      std::vector<uint64_t> order;
      auto append = [&](const std::vector<uint64_t>& more) {
        order.insert(order.end(), more.begin(), more.end());
      };
      std::vector<uint64_t> plain(n);
      std::iota(plain.begin(), plain.end(), 0);
      for (int64_t e = 0; e < epochs; ++e) {
        if (shuffle == Shuffle::kDisabled || (shuffle == Shuffle::kSkipFirstEpoch && e == 0))
          append(plain);
        else if (shuffle == Shuffle::kEpoch)
          append(torch_randperm<uint64_t>(n, seed + 571 * uint64_t(e)));
        else if (shuffle == Shuffle::kSkipFirstEpoch)
          append(torch_randperm<uint64_t>(n, seed + 571 * uint64_t(e - 1)));
      }
      if (shuffle == Shuffle::kFull) {
        append(torch_randperm<uint64_t>(n * uint64_t(epochs), seed));
        for (uint64_t& document : order) document %= n;
      }
      std::vector<int64_t> stream;
      for (uint64_t document : order) {
        stream.insert(stream.end(), documents[document].begin(), documents[document].end());
      }
      auto dataset =
          make_sampled(std::make_shared<FakeDocuments>(documents), {count, length, seed, shuffle});
      for (int64_t i = 0; i < count; ++i) {
        Sample sample;
        auto begin = stream.begin() + i * length;
        ASSERT_EQ(read_sample(*dataset, i, length, &sample),
                  std::vector<int64_t>(begin, begin + length + 1));
        EXPECT_THAT(sample.document_lengths, Each(Gt(0)));
        EXPECT_EQ(std::accumulate(sample.document_lengths.begin(), sample.document_lengths.end(),
                                  int64_t(0)),
                  length + 1);
      }
    }
  }
}

TEST(Sampling, CutsPiecesWhereDocumentsEnd) {
  auto dataset =
      make_sampled(std::make_shared<FakeDocuments>(Documents{{0, 1, 2}, {}, {3, 4, 5, 6}, {7}}),
                   {2, 3, 0, Shuffle::kDisabled});
  Sample sample;
  read_sample(*dataset, 0, 3, &sample);
  EXPECT_THAT(sample.document_lengths, ElementsAre(3, 1));
  // Begins exactly where a document does: no empty piece of the one before.
  EXPECT_THAT(read_sample(*dataset, 1, 3, &sample), ElementsAre(3, 4, 5, 6));
  EXPECT_THAT(sample.document_lengths, ElementsAre(4));
}

TEST(Sampling, SamplesOverlapByThePredictedTokens) {
  for (Shuffle shuffle : kAll) {
    SCOPED_TRACE(int(shuffle));
    // The last sample of 20 ends where the stream does: 3 more tokens need another epoch only then.
    const auto documents = std::make_shared<FakeDocuments>(six_documents());
    const auto one = make_sampled(documents, {20, 5, 32, shuffle}),
               three = make_sampled(documents, {20, 5, 32, shuffle, 3});
    for (int64_t i = 0; i < 20; ++i) {
      Sample sample;
      const auto tokens = read_sample(*three, i, 5, &sample, 3);
      ASSERT_EQ(tokens.size(), 8u);
      int64_t total = 0;
      for (int64_t length : sample.document_lengths) total += length;
      EXPECT_EQ(total, 8);
      if (shuffle == Shuffle::kLegacy) continue;  // its number of samples, hence order, is another
      const auto begin = read_sample(*one, i, 5);
      EXPECT_EQ(std::vector<int64_t>(tokens.begin(), tokens.begin() + 6), begin);
      if (i == 19) continue;
      const auto next = read_sample(*three, i + 1, 5, nullptr, 3);
      EXPECT_EQ(std::vector<int64_t>(tokens.begin() + 5, tokens.end()),
                std::vector<int64_t>(next.begin(), next.begin() + 3));
    }
  }
}

TEST(Sampling, ShiftsAndClipsSpans) {
  // Stream: 0 1 2 | 3 4 5 6 7 | 8 9. Spans (1,1); (0,0) (2,4); none.
  auto documents = std::make_shared<FakeDocuments>(
      Documents{{0, 1, 2}, {3, 4, 5, 6, 7}, {8, 9}},
      std::vector<std::vector<Span>>{{{1, 1}}, {{0, 0}, {2, 4}}, {}});
  SamplingOptions options{3, 3, 0, Shuffle::kDisabled};
  Sample sample;
  auto plain = make_sampled(documents, options);
  EXPECT_FALSE(plain->has_spans());
  read_sample(*plain, 0, 3, &sample);
  EXPECT_THAT(sample.loss_masking_spans, ElementsAre());
  options.use_loss_masking_spans = true;
  auto dataset = make_sampled(documents, options);
  EXPECT_TRUE(dataset->has_spans());
  read_sample(*dataset, 0, 3, &sample);  // 0 1 2 3
  EXPECT_THAT(sample.loss_masking_spans, ElementsAre(Span{1, 1}, Span{3, 3}));
  read_sample(*dataset, 1, 3, &sample);  // 3 4 5 6
  EXPECT_THAT(sample.loss_masking_spans, ElementsAre(Span{0, 0}, Span{2, 3}));
  read_sample(*dataset, 2, 3, &sample);  // 6 7 8 9: entered in the middle
  EXPECT_THAT(sample.loss_masking_spans, ElementsAre(Span{0, 1}));
}

TEST(Sampling, WarnsOfSpansThatAreNotThere) {
  TemporaryDirectory folder;
  log::set_file(folder.path() / "log");
  make_sampled(std::make_shared<FakeDocuments>(six_documents()),
               {.num_samples = 1, .sequence_length = 1, .use_loss_masking_spans = true});
  log::flush();
  log::set_file({});
  EXPECT_THAT(read_file(folder.path() / "log"),
              HasSubstr("use_loss_masking_spans has no effect: dataset fake holds no spans"));
}

TEST(Sampling, CutsLongDocumentsInChunks) {
  // Chunks of at most 3: 0 1 2 | 3 and 4 5 6 | 7 8 9 | 10.
  auto documents = std::make_shared<FakeDocuments>(Documents{{0, 1, 2, 3}, {4, 5, 6, 7, 8, 9, 10}});
  SamplingOptions options{.num_samples = 4,
                          .sequence_length = 5,
                          .shuffle = Shuffle::kDisabled,
                          .maximum_document_length = 3};
  auto dataset = make_sampled(documents, options);
  options.maximum_document_length = 0;
  auto whole = make_sampled(documents, options);
  const std::vector<std::vector<int64_t>> lengths{
      {3, 1, 2}, {2, 3, 1}, {1, 3, 1, 1}, {3, 3}};  // each begins with the last token before
  for (int64_t i = 0; i < 4; ++i) {
    Sample sample;
    EXPECT_EQ(read_sample(*dataset, i, 5, &sample), read_sample(*whole, i, 5));
    EXPECT_EQ(sample.document_lengths, lengths[size_t(i)]) << i;
  }
}

TEST(Sampling, LocatesATokenInItsDocument) {
  auto dataset =
      make_sampled(std::make_shared<FakeDocuments>(Documents{{0, 1, 2}, {3, 4, 5, 6, 7}}),
                   {2, 3, 0, Shuffle::kDisabled});
  EXPECT_EQ(dataset->locate(0, 2), "position 2 of document 0 of fake");
  EXPECT_EQ(dataset->locate(1, 3), "position 3 of document 1 of fake");
  EXPECT_THAT(dataset->fingerprints(), ElementsAre("fake: in memory"));
}

TEST(Sampling, RefusesWhatCannotBeSampled) {
  auto documents = std::make_shared<FakeDocuments>(six_documents());
  EXPECT_THAT(message_of(
                  [&] {
                    make_sampled(documents, {0, 5, 0, Shuffle::kEpoch});
                  },
                  Status::kInvalid),
              HasSubstr("found 0 samples"));
  EXPECT_THAT(message_of(
                  [&] {
                    make_sampled(documents, {INT64_MAX / 2, 5, 0, Shuffle::kEpoch});
                  },
                  Status::kInvalid),
              HasSubstr("samples of 5 tokens"));
  EXPECT_THAT(message_of(
                  [&] {
                    make_sampled(documents, {INT64_MAX / 16, 5, 0, Shuffle::kFull});
                  },
                  Status::kOutOfMemory),
              HasSubstr("shuffle by epoch"));
  EXPECT_THAT(message_of(
                  [&] {
                    make_sampled(documents, {int64_t(1) << 34, 5, 0, Shuffle::kLegacy});
                  },
                  Status::kInvalid),
              HasSubstr("legacy order"));
  auto empty = std::make_shared<FakeDocuments>(Documents{{}, {}});
  EXPECT_THAT(message_of(
                  [&] {
                    make_sampled(empty, {1, 5, 0, Shuffle::kEpoch});
                  },
                  Status::kInvalid),
              HasSubstr("found 2 documents and no token"));
  auto dataset = make_sampled(documents, {3, 5, 0, Shuffle::kEpoch});
  EXPECT_THAT(message_of([&] { read_sample(*dataset, 3, 5); }, Status::kInvalid),
              HasSubstr("from 0 to 2"));
  EXPECT_THAT(
      message_of([&] { parse_shuffle("random"); }, Status::kInvalid),
      AllOf(HasSubstr("disabled, epoch, skip_first_epoch, full, legacy"), HasSubstr("'random'")));
}

TEST(Sampling, ThreadsSeeTheSameSamples) {
  for (Shuffle shuffle : kAll) {
    auto documents = std::make_shared<FakeDocuments>(six_documents());
    Documents expected = all_samples(*make_sampled(documents, {200, 7, 5, shuffle}), 7);
    auto shared = make_sampled(documents, {200, 7, 5, shuffle});
    std::vector<std::thread> threads;
    std::vector<int> different(4, 0);
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int64_t i = int64_t(t); i < 200; i += 2)
          different[t] += read_sample(*shared, i, 7) != expected[size_t(i)];
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(different, Each(0));
  }
}

}  // namespace
}  // namespace fastllm::data
