#include "core/data/loader.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/data/formats/memmap_writer.hpp"
#include "core/data/sampling/random_dataset.hpp"
#include "core/data/sampling/sampling.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Documents = std::vector<std::vector<int64_t>>;

bool equal(const Batch& a, const Batch& b) {
  return a.samples == b.samples && a.length == b.length && a.tokens == b.tokens &&
         a.labels == b.labels && a.positions == b.positions && a.documents == b.documents &&
         a.cu_seqlens == b.cu_seqlens && a.valid_labels == b.valid_labels;
}

// Stream 0, 1, 2, ... in documents of 3, 1, 4, 2 tokens, again and again.
std::shared_ptr<const SampledDataset> counting(SamplingOptions sampling,
                                               std::vector<std::vector<Span>> spans = {}) {
  sampling.shuffle = Shuffle::kDisabled;
  return make_sampled(std::make_shared<FakeDocuments>(
                          Documents{{0, 1, 2}, {3}, {4, 5, 6, 7}, {8, 9}}, std::move(spans)),
                      sampling);
}
std::shared_ptr<const SampledDataset> counting(int64_t samples, int64_t length) {
  return counting({.num_samples = samples, .sequence_length = length});
}

LoaderOptions options_for(int64_t length, int64_t rows, int threads = 0) {
  LoaderOptions options;
  options.sequence_length = length;
  options.micro_batch_size = rows;
  options.threads = threads;
  return options;
}

TEST(Loader, LaysOutAMicroBatch) {
  Loader loader(counting(4, 4), options_for(4, 2));
  auto batch = loader.next();
  EXPECT_EQ(batch->samples, 2);
  EXPECT_EQ(batch->length, 4);
  EXPECT_THAT(batch->tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(batch->labels, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(batch->positions, ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(batch->documents, ElementsAre(0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(batch->cu_seqlens, ElementsAre(0, 4, 8));
  EXPECT_EQ(batch->valid_labels, 8);
}

TEST(Loader, DeliversTheGoldenSamplesInOrder) {
  nlohmann::json goldens = fixture_json("sampling/expected.json");
  for (const auto& golden : goldens.at("sampling")) {
    const int64_t length = golden.at("sequence_length");
    auto dataset =
        make_sampled(std::make_shared<FakeDocuments>(goldens.at("documents").get<Documents>()),
                     {golden.at("num_samples"), length, golden.at("seed"),
                      parse_shuffle(golden.at("shuffle").get<std::string>())});
    Loader loader(dataset, options_for(length, 1));
    for (std::vector<int64_t> sample : golden.at("samples")) {
      auto batch = loader.next();
      EXPECT_EQ(batch->labels, std::vector<int64_t>(sample.begin() + 1, sample.end()));
      sample.pop_back();
      EXPECT_EQ(batch->tokens, sample);
    }
  }
}

TEST(Loader, SeparatesDocuments) {
  LoaderOptions options = options_for(4, 2);
  options.cross_document_attention = false;
  Loader loader(counting(4, 4), options);
  // 0 1 2 | 3 | 4 and 4 5 6 7 | 8: the last token is only a label and gives no range.
  auto batch = loader.next();
  EXPECT_THAT(batch->positions, ElementsAre(0, 1, 2, 0, 0, 1, 2, 3));
  EXPECT_THAT(batch->documents, ElementsAre(0, 0, 0, 1, 0, 0, 0, 0));
  EXPECT_THAT(batch->cu_seqlens, ElementsAre(0, 3, 4, 8));
  EXPECT_THAT(batch->labels, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  // 8 9 | 0 1 2 and 2 | 3 | 4 5 6
  batch = loader.next();
  EXPECT_THAT(batch->positions, ElementsAre(0, 1, 0, 1, 0, 0, 0, 1));
  EXPECT_THAT(batch->documents, ElementsAre(0, 0, 1, 1, 0, 1, 2, 2));
  EXPECT_THAT(batch->cu_seqlens, ElementsAre(0, 2, 4, 5, 6, 8));
}

// Two rows of 36: documents of 8, 13, 4, 11 and of 11, 16, 9 tokens. A row's last label is one token
// more: of the next document in a stream, of the row's own last one where documents stay whole.
TEST(Loader, GivesTheCumulativeLengthsOfWholeRows) {
  for (const bool stream : {true, false}) {
    SCOPED_TRACE(stream);
    const int64_t more = stream ? 0 : 1;
    Documents documents;
    for (int64_t size : {8l, 13l, 4l, 11 + more, 11l, 16l, 9 + more, 5l})
      documents.emplace_back(size_t(size), 1);
    LoaderOptions options = options_for(36, 2);
    options.cross_document_attention = false;
    Loader loader(
        make_sampled(std::make_shared<FakeDocuments>(documents), {.num_samples = 2,
                                                                  .sequence_length = 36,
                                                                  .shuffle = Shuffle::kDisabled,
                                                                  .truncate_documents = stream}),
        options);
    const auto batch = loader.next();
    EXPECT_THAT(batch->cu_seqlens, ElementsAre(0, 8, 21, 25, 36, 47, 63, 72));
    // Positions begin again where a document does.
    for (size_t t = 0, range = 0; t < 72; ++t) {
      if (int64_t(t) == int64_t(batch->cu_seqlens[range + 1])) ++range;
      EXPECT_EQ(batch->positions[t], int64_t(t) - int64_t(batch->cu_seqlens[range])) << t;
    }
  }
}

TEST(Loader, MasksTheLabelsOfSpans) {
  std::vector<std::vector<Span>> spans{{{0, 0}, {2, 2}}, {}, {{1, 3}}, {{0, 1}}};
  SamplingOptions sampling{.num_samples = 4, .sequence_length = 4};
  {
    Loader plain(counting(sampling, spans), options_for(4, 2));
    EXPECT_EQ(plain.next()->valid_labels, 8);
  }
  sampling.use_loss_masking_spans = true;
  Loader loader(counting(sampling, spans), options_for(4, 2));
  auto batch = loader.next();
  EXPECT_THAT(batch->tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  // Masked tokens 0, 2 | 5, 6, 7, 8: token 0 is no label of the first sample.
  EXPECT_THAT(batch->labels, ElementsAre(1, -100, 3, 4, -100, -100, -100, -100));
  EXPECT_EQ(batch->valid_labels, 3);
}

TEST(Loader, PadsWhatDocumentsLeave) {
  // Rows 0 1 2 | 3 | and 4 5 6 7 | : a sample has 5 tokens, the last of them only a label.
  SamplingOptions sampling{.num_samples = 4, .sequence_length = 4, .truncate_documents = false};
  for (bool cross : {true, false}) {
    LoaderOptions options = options_for(4, 2);
    options.cross_document_attention = cross;
    options.vocab_size = 10;  // padding is no id to check
    Loader loader(counting(sampling), options);
    auto batch = loader.next();
    EXPECT_THAT(batch->tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(batch->labels, ElementsAre(1, 2, 3, -100, 5, 6, 7, -100));
    EXPECT_EQ(batch->valid_labels, 6);
    if (cross)
      EXPECT_THAT(batch->cu_seqlens, ElementsAre(0, 4, 8));
    else
      EXPECT_THAT(batch->cu_seqlens, ElementsAre(0, 3, 4, 8));
    // 8 9 | 0 1 2 and 3 | 4 5 6 7: full, no padding.
    batch = loader.next();
    EXPECT_THAT(batch->tokens, ElementsAre(8, 9, 0, 1, 3, 4, 5, 6));
    EXPECT_EQ(batch->valid_labels, 8);
  }
  // 3 | 4 5 6 7 | and 8 9 | 0 1 2 | : two tokens of each row are padding.
  sampling.sequence_length = 6;
  LoaderOptions options = options_for(6, 1);
  options.cross_document_attention = false;
  options.vocab_size = 10;
  options.predicted_tokens = sampling.predicted_tokens = 2;
  options.first_sample = 1;
  Loader loader(counting(sampling), options);  // 0 1 2 3 4 5 6 7 was the first
  auto batch = loader.next();
  EXPECT_THAT(batch->tokens, ElementsAre(8, 9, 0, 1, 2, 3));
  EXPECT_THAT(batch->labels, ElementsAre(9, 0, 1, 2, 3, -100));
  batch = loader.next();
  EXPECT_THAT(batch->tokens, ElementsAre(4, 5, 6, 7, 8, 9));
  batch = loader.next();
  EXPECT_THAT(batch->tokens, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(batch->further_labels[0].valid, 3);  // 2 | 6, 7: the others are of later documents
}

TEST(Loader, DeliversLabelsFurtherAhead) {
  LoaderOptions options = options_for(4, 2);
  options.predicted_tokens = 3;
  {
    Loader loader(counting({.num_samples = 4, .sequence_length = 4, .predicted_tokens = 3}),
                  options);
    const auto batch = loader.next();
    EXPECT_THAT(batch->tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_THAT(batch->labels, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
    ASSERT_EQ(batch->further_labels.size(), 2u);
    EXPECT_THAT(batch->further_labels[0].labels, ElementsAre(2, 3, 4, 5, 6, 7, 8, 9));
    EXPECT_THAT(batch->further_labels[1].labels, ElementsAre(3, 4, 5, 6, 7, 8, 9, 0));
    EXPECT_EQ(batch->further_labels[1].valid, 8);
  }
  // Rows 0 1 2 | 3 | 4 5 6 and 4 5 6 7 | 8 9 | 0: further labels stay in their document.
  options.cross_document_attention = false;
  {
    Loader loader(counting({.num_samples = 4, .sequence_length = 4, .predicted_tokens = 3}),
                  options);
    const auto batch = loader.next();
    EXPECT_THAT(batch->documents, ElementsAre(0, 0, 0, 1, 0, 0, 0, 0));
    EXPECT_THAT(batch->labels, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
    EXPECT_THAT(batch->further_labels[0].labels,
                ElementsAre(2, -100, -100, -100, 6, 7, -100, -100));
    EXPECT_THAT(batch->further_labels[1].labels,
                ElementsAre(-100, -100, -100, -100, 7, -100, -100, -100));
    EXPECT_EQ(batch->further_labels[0].valid, 3);
    EXPECT_EQ(batch->further_labels[1].valid, 1);
  }
}

TEST(Loader, MasksTheFurtherLabelsOfSpans) {
  // Masked tokens 0, 2 | 5, 6, 7, 8: each further label is one token less far in its row.
  std::vector<std::vector<Span>> spans{{{0, 0}, {2, 2}}, {}, {{1, 3}}, {{0, 1}}};
  LoaderOptions options = options_for(4, 2);
  options.predicted_tokens = 2;
  Loader loader(counting({.num_samples = 4,
                          .sequence_length = 4,
                          .predicted_tokens = 2,
                          .use_loss_masking_spans = true},
                         spans),
                options);
  const auto batch = loader.next();
  EXPECT_THAT(batch->labels, ElementsAre(1, -100, 3, 4, -100, -100, -100, -100));
  EXPECT_THAT(batch->further_labels[0].labels,
              ElementsAre(-100, 3, 4, -100, -100, -100, -100, -100));
  EXPECT_EQ(batch->valid_labels, 3);
  EXPECT_EQ(batch->further_labels[0].valid, 2);
}

TEST(Loader, GivesTheSameForAnyNumberOfThreads) {
  auto dataset = counting(64, 5);
  for (bool cross : {true, false}) {
    LoaderOptions options = options_for(5, 2);
    options.cross_document_attention = cross;
    Loader plain(dataset, options);
    std::vector<std::unique_ptr<Batch>> expected;
    for (int i = 0; i < 32; ++i) expected.push_back(plain.next());
    for (int threads : {1, 2, 4}) {
      options.threads = threads;
      Loader loader(dataset, options);
      for (const auto& batch : expected) ASSERT_TRUE(equal(*loader.next(), *batch));
    }
  }
}

TEST(Loader, ResumesWhereAnotherStopped) {
  auto dataset = make_random("dummy", 40, 6, 100, 3);
  LoaderOptions options = options_for(6, 2, 2);
  Loader whole(dataset, options);
  for (int i = 0; i < 7; ++i) whole.next();
  options.first_sample = 14;
  Loader resumed(dataset, options);
  for (int i = 7; i < 20; ++i) ASSERT_TRUE(equal(*whole.next(), *resumed.next())) << i;
}

TEST(Loader, DealsSamplesToDataRanks) {
  auto dataset = counting(13, 4);
  std::vector<std::vector<int64_t>> rows;
  LoaderOptions options = options_for(4, 2);
  options.first_sample = 1;
  options.batch_data_size = 3;
  for (options.batch_data_rank = 0; options.batch_data_rank < 3; ++options.batch_data_rank) {
    Loader loader(dataset, options);
    auto batch = loader.next();
    for (int64_t row : {0, 1}) {
      EXPECT_EQ(std::vector<int64_t>(batch->tokens.begin() + row * 4,
                                     batch->tokens.begin() + row * 4 + 4),
                [&] {
                  auto tokens = read_sample(*dataset, 1 + options.batch_data_rank * 2 + row, 4);
                  tokens.pop_back();
                  return tokens;
                }());
    }
    loader.next();  // 12 samples follow the first: two full batches
    EXPECT_THAT(message_of([&] { loader.next(); }, Status::kInvalid),
                HasSubstr("found the end: it has 13"));
  }
}

// Rows of four documents and a label in another one, masked labels, and a second prediction.
TEST(Loader, DealsTheTokensOfSamplesToSequenceDataRanks) {
  const auto open = [](int rank, int size, bool cross) {
    LoaderOptions options = options_for(12, 2);
    options.predicted_tokens = 2;
    options.cross_document_attention = cross;
    options.sequence_data_rank = rank;
    options.sequence_data_size = size;
    return Loader(counting({.num_samples = 4,
                            .sequence_length = 12,
                            .predicted_tokens = 2,
                            .use_loss_masking_spans = true},
                           {{{1, 2}}, {}, {{0, 1}}, {}}),
                  options)
        .next();
  };
  for (const bool cross : {true, false}) {
    const auto whole = open(0, 1, cross);
    EXPECT_EQ(whole->whole_length(), 12);
    for (const int size : {2, 3, 4}) {
      int64_t valid = 0, further = 0;
      for (int rank = 0; rank < size; ++rank) {
        const auto part = open(rank, size, cross);
        EXPECT_EQ(part->samples, 2);
        EXPECT_EQ(part->length, 12 / size);
        EXPECT_EQ(part->first, rank * part->length);
        EXPECT_EQ(part->whole_length(), 12);
        EXPECT_EQ(part->cu_seqlens, whole->cu_seqlens);
        const auto here = [&](const std::vector<int64_t>& all) {
          std::vector<int64_t> result;
          for (int64_t row : {0, 1})
            for (int64_t i = 0; i < part->length; ++i)
              result.push_back(all[size_t(row * 12 + part->first + i)]);
          return result;
        };
        EXPECT_EQ(part->tokens, here(whole->tokens));
        EXPECT_EQ(part->labels, here(whole->labels));
        EXPECT_EQ(part->positions, here(whole->positions));
        EXPECT_EQ(part->documents, here(whole->documents));
        EXPECT_EQ(part->further_labels[0].labels, here(whole->further_labels[0].labels));
        EXPECT_LT(part->valid_labels, whole->valid_labels);
        valid += part->valid_labels;
        further += part->further_labels[0].valid;
      }
      EXPECT_EQ(valid, whole->valid_labels);
      EXPECT_EQ(further, whole->further_labels[0].valid);
    }
  }
}

TEST(Loader, NamesTheTokenOutsideTheVocabulary) {
  TemporaryDirectory folder;
  MemmapWriter writer(folder.path() / "b", TokenType::kInt32);
  writer.add(std::vector<int64_t>{1, 2, 3});
  writer.add(std::vector<int64_t>{4, 70000, 5, -3, 6, 7});
  writer.finish();
  for (int threads : {0, 2}) {
    auto open = [&](int64_t vocab_size) {
      LoaderOptions options = options_for(2, 1, threads);
      options.vocab_size = vocab_size;
      auto loader = std::make_unique<Loader>(
          make_sampled(std::make_shared<MemmapDataset>(folder.path() / "b"),
                       {4, 2, 0, Shuffle::kDisabled}),
          options);
      loader->next();  // 1 2 3
      return loader;
    };
    auto small = open(49152);
    std::string first = message_of([&] { small->next(); }, Status::kInvalid);  // 3 4 70000
    EXPECT_THAT(
        first,
        AllOf(HasSubstr("Failed to get sample 1 from dataset"), HasSubstr("from 0 to 49151"),
              HasSubstr("vocab_size 49152"), HasSubstr("found 70000 at position 1 of document 1"),
              HasSubstr((folder.path() / "b.bin").string()), HasSubstr("at least 70001")));
    EXPECT_EQ(message_of([&] { small->next(); }), first);
    auto large = open(80000);
    large->next();
    EXPECT_THAT(
        message_of([&] { large->next(); }),  // 70000 5 -3
        AllOf(HasSubstr("found -3 at position 3 of document 1"), Not(HasSubstr("at least"))));
    auto unchecked = open(0);
    EXPECT_EQ(unchecked->next()->labels[1], 70000);
  }
}

TEST(Loader, RefusesImpossibleOptions) {
  auto open = [](auto change) {
    LoaderOptions options = options_for(4, 2);
    change(options);
    return message_of([&] { Loader loader(counting(4, 4), options); }, Status::kInvalid);
  };
  EXPECT_THAT(open([](auto& o) { o.micro_batch_size = 0; }),
              HasSubstr("micro_batch_size of the loader from 1 up"));
  EXPECT_THAT(open([](auto& o) { o.sequence_length = 0; }), HasSubstr("sequence_length"));
  EXPECT_THAT(open([](auto& o) { o.first_sample = -1; }), HasSubstr("first_sample"));
  EXPECT_THAT(open([](auto& o) { o.threads = -1; }), HasSubstr("threads"));
  EXPECT_THAT(open([](auto& o) { o.prefetch = 0; }), HasSubstr("prefetch"));
  EXPECT_THAT(open([](auto& o) { o.step_batches = 0; }), HasSubstr("step_batches"));
  EXPECT_THAT(open([](auto& o) { o.batch_data_rank = 1; }), HasSubstr("batch_data_size"));
  EXPECT_THAT(open([](auto& o) { o.sequence_data_rank = 1; }), HasSubstr("sequence_data_size"));
  EXPECT_THAT(open([](auto& o) { o.sequence_data_size = 3; }),
              HasSubstr("a multiple of sequence_data_size 3, found 4; choose another length"));
  EXPECT_THAT(open([](auto& o) { o.micro_batch_size = int64_t(1) << 30; }), HasSubstr("2^31"));
}

TEST(Loader, SaysWhereItBeganWhenTheSamplesAreUsedUp) {
  LoaderOptions options = options_for(4, 2);
  options.first_sample = 1;
  Loader loader(counting(4, 4), options);
  loader.next();
  EXPECT_THAT(message_of([&] { loader.next(); }, Status::kInvalid),
              AllOf(HasSubstr("expected 2 more samples"),
                    HasSubstr("it has 4, and reading began at "
                              "sample 1"),
                    HasSubstr("train fewer iterations, or sample more")));
}

// Counts what is asked for, and lets a test wait for it.
class Counted final : public SampledDataset {
 public:
  int64_t size() const override { return 1000; }
  void get(int64_t index, Sample& sample) const override {
    std::fill(sample.tokens.begin(), sample.tokens.end(), index);
    sample.document_lengths.assign(1, int64_t(sample.tokens.size()));
    std::lock_guard lock(mutex_);
    ++asked_;
    changed_.notify_all();
  }
  std::string name() const override { return "counted"; }
  std::vector<std::string> fingerprints() const override { return {}; }

  int64_t asked() const {
    std::lock_guard lock(mutex_);
    return asked_;
  }
  // False when it does not come to that many; the limit matters to a failure alone.
  bool wait_for(int64_t asked) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return asked_ >= asked; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int64_t asked_ = 0;
};

// A step takes its micro-batches together. While it computes, nobody calls next(): all of the next
// step must get ready all the same, and no more than two steps of them.
TEST(Loader, ReadiesAStepWhileAnotherComputes) {
  constexpr int64_t kStep = 32;
  auto dataset = std::make_shared<Counted>();
  LoaderOptions options = options_for(4, 1, 2);
  options.step_batches = kStep;
  {
    Loader loader(dataset, options);
    for (int64_t step = 1; step <= 3; ++step) {
      for (int64_t i = 0; i < kStep; ++i) loader.next();
      ASSERT_TRUE(dataset->wait_for((step + 2) * kStep)) << dataset->asked();
    }
  }
  EXPECT_EQ(dataset->asked(), 5 * kStep);
  // Where the workers' share is more, it counts.
  options.prefetch = 50;
  EXPECT_EQ(read_ahead(options), 100);
  options.prefetch = 2;
  EXPECT_EQ(read_ahead(options), 64);
}

TEST(Loader, EndsWhileWorkersWaitOrWork) {
  for (int taken = 0; taken < 8; ++taken) {
    Loader loader(make_random("dummy", 1000, 64, 100, 3), options_for(64, 2, 3));
    for (int i = 0; i < taken; ++i) loader.next();
  }
}

TEST(Loader, CountsTheTimeItWaits) {
  Loader loader(counting(4, 4), options_for(4, 2));
  EXPECT_EQ(loader.waited_ms(), 0);
  loader.next();
  EXPECT_GT(loader.waited_ms(), 0);
}

// A dataset that takes its time, and fails when asked to.
class Slow final : public SampledDataset {
 public:
  int64_t size() const override { return 4; }
  void get(int64_t index, Sample& sample) const override {
    if (index == 2) throw Error(Status::kUnavailable, "the disk went away");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::fill(sample.tokens.begin(), sample.tokens.end(), 0);
    sample.document_lengths.assign(1, int64_t(sample.tokens.size()));
  }
  std::string name() const override { return "slow"; }
  std::vector<std::string> fingerprints() const override { return {}; }
};

TEST(Loader, WarnsOfSlowSamplesAndSaysWhichFailed) {
  const test::CapturedLog log;
  LoaderOptions options = options_for(4, 1);
  options.sample_warn_ms = 1;
  {
    Loader loader(std::make_shared<Slow>(), options);
    loader.next();
    loader.next();
    EXPECT_EQ(message_of([&] { loader.next(); }, Status::kUnavailable),
              "Failed to get sample 2 from dataset slow: the disk went away");
  }
  EXPECT_THAT(log.text(), ::testing::ContainsRegex(
                              "Sample 1 from dataset slow took [0-9,]+\\.[0-9][0-9] ms to load"));
}

}  // namespace
}  // namespace fastllm::data
