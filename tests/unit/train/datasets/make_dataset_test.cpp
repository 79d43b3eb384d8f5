// Definitions in the configuration become datasets; each way to define one wrongly is one sentence that names its place.
#include "core/train/datasets/make_dataset.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <set>
#include <utility>

#include "core/base/file.hpp"
#include "core/data/formats/dataset_file_writer.hpp"
#include "core/data/formats/memmap_writer.hpp"
#include "core/train/datasets/dataset_type.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DatasetsTest : public ::testing::Test {
 protected:
  DatasetsTest() {
    data::MemmapWriter writer((folder.path() / "docs").string(), data::TokenType::kInt16);
    for (int64_t d = 0; d < 6; ++d)
      writer.add(std::vector<int64_t>{10 * d, 10 * d + 1, 10 * d + 2, 10 * d + 3});
    writer.finish();
  }
  // Four samples of 3 tokens and a label, unless `change` says otherwise.
  std::shared_ptr<const data::SampledDataset> make(
      const std::string& yaml, const std::function<void(SamplingSettings&)>& change = {}) const {
    SamplingSettings sampling;
    sampling.num_samples = 4;
    sampling.sequence_length = 3;
    sampling.seed = 1;
    sampling.shuffle = "disabled";
    sampling.vocab_size = 100;
    if (change) change(sampling);
    return make_dataset(config::parse_yaml(yaml, "train.yaml"), sampling, "data.datasets.Training",
                        sources, folder.path());
  }
  std::string error(const std::string& yaml,
                    const std::function<void(SamplingSettings&)>& change = {}) const {
    return test::message_of([&] { make(yaml, change); });
  }
  // With spans, in both formats: tokens 0 1 2 3 | 4 5 6 7 and the spans 1 to 2 and 0.
  void write_spans() const {
    data::MemmapWriter pair((folder.path() / "spans").string(), data::TokenType::kInt16);
    data::DatasetFileWriter file(folder.path() / "spans.fast_llm_dataset", data::TokenType::kInt16);
    for (auto& [tokens, spans] :
         std::vector<std::pair<std::vector<int64_t>, std::vector<data::Span>>>{
             {{0, 1, 2, 3}, {{1, 2}}}, {{4, 5, 6, 7}, {{0, 0}}}}) {
      pair.add(tokens, spans);
      file.add(tokens, spans);
    }
    pair.finish();
    file.finish();
  }
  static data::Sample sample(const data::SampledDataset& dataset, int64_t index,
                             std::vector<int64_t>& ids) {
    data::Sample sample;
    sample.tokens = ids;
    dataset.get(index, sample);
    return sample;
  }
  static std::vector<int64_t> tokens(const data::SampledDataset& dataset, int64_t index) {
    std::vector<int64_t> ids(4);
    data::Sample sample;
    sample.tokens = ids;
    dataset.get(index, sample);
    return ids;
  }
  TemporaryDirectory folder;
  std::vector<data::TokenizerOptions> tokenizers;  // opened
  mutable DatasetSources sources{3, [this](const data::TokenizerOptions& options) {
                                   tokenizers.push_back(options);
                                   return data::open_tokenizer(options);
                                 }};
};

TEST_F(DatasetsTest, ReadsDocumentsInOrder) {
  auto dataset = make("{type: memmap, path: docs}");
  EXPECT_EQ(tokens(*dataset, 0), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(tokens(*dataset, 1), (std::vector<int64_t>{3, 10, 11, 12}));
}

TEST_F(DatasetsTest, TakesSlicesAndJoinsThem) {
  auto dataset = make(
      "{type: concatenated, datasets: [{type: slice, begin: 0.5, dataset: {type: memmap, path: "
      "docs}}, {type: memmap, path: docs}]}");
  EXPECT_EQ(tokens(*dataset, 0), (std::vector<int64_t>{30, 31, 32, 33}));
}

TEST_F(DatasetsTest, BlendsAndOverridesSampling) {
  auto dataset = make(
      "{type: blended, weights: [3, 1], datasets: [{type: memmap, path: docs}, {type: sampled, "
      "sampling: {shuffle: disabled, seed: 5},"
      " dataset: {type: slice, begin: 0.5, dataset: {type: memmap, path: docs}}}]}");
  EXPECT_EQ(tokens(*dataset, 0)[0], 0);
  EXPECT_EQ(tokens(*dataset, 2)[0], 30);  // 0:0 0:1 1:0
}

// Each sample of a blend is the next of one of its parts, taken 3 to 1.
TEST_F(DatasetsTest, BlendsSampledFilesByTheirWeights) {
  write_file_atomic(folder.path() / "first.yaml", "type: memmap\npath: docs\n");
  write_file_atomic(folder.path() / "second.yaml",
                    "type: slice\nbegin: 0.5\ndataset: {type: memmap, path: docs}\n");
  const std::string first = "{type: file, path: first.yaml}",
                    second = "{type: file, path: second.yaml}";
  for (const std::string& shuffle : {std::string("disabled"), std::string("epoch")}) {
    const auto with = [=](int64_t samples, uint64_t seed) {
      return [=](SamplingSettings& s) {
        s.num_samples = samples;
        s.seed = seed;
        s.shuffle = shuffle;
      };
    };
    const auto blend =
        make("{type: blended, weights: [0.75, 0.25], datasets: [" + first + ", " + second + "]}",
             with(8, 54983));
    // ceil(share) + 1 samples of each part, the second with a seed of its own.
    const auto one = make(first, with(7, 54983)), other = make(second, with(3, 54983 + 697));
    int64_t of_one = 0, of_other = 0;
    for (int64_t i : {0, 1, 3, 4, 5, 7}) EXPECT_EQ(tokens(*blend, i), tokens(*one, of_one++)) << i;
    for (int64_t i : {2, 6}) EXPECT_EQ(tokens(*blend, i), tokens(*other, of_other++)) << i;
  }
}

TEST_F(DatasetsTest, PathsInAFileAreRelativeToIt) {
  std::filesystem::create_directory(folder.path() / "set");
  write_file_atomic(folder.path() / "set/set.yaml", "type: memmap\npath: ../docs\n");
  EXPECT_EQ(tokens(*make("{type: file, path: set/set.yaml}"), 0)[3], 3);
  write_file_atomic(folder.path() / "set/later.yaml",
                    "config: {type: memmap, path: ../docs}\nmetadata: {}\n");
  EXPECT_EQ(tokens(*make("{type: file, path: set/later.yaml}"), 0)[3], 3);
}

TEST_F(DatasetsTest, NamesAFileThatDefinesNothing) {
  const std::filesystem::path path = folder.path() / "empty.yaml";
  for (const char* content : {"", "# nothing yet\n", "---\n", "config:\nmetadata: {}\n"}) {
    write_file_atomic(path, content);
    EXPECT_EQ(error("{type: file, path: empty.yaml}"),
              "expected the definition of a dataset in " + path.string() +
                  ", found nothing; write for example type: memmap")
        << content;
  }
}

TEST_F(DatasetsTest, RandomTokensStayInTheVocabulary) {
  for (int64_t id : tokens(*make("{type: random}"), 2)) EXPECT_LT(id, 100);
}

TEST_F(DatasetsTest, ReadsTheLaterFormatByItsPath) {
  write_spans();
  EXPECT_EQ(tokens(*make("{type: memmap, path: spans.fast_llm_dataset}"), 1),
            (std::vector<int64_t>{3, 4, 5, 6}));
  EXPECT_THAT(error("{type: memmap, path: spans.fast_llm_dataset, num_tokens: 7}"),
              HasSubstr("expected 7 tokens"));
}

TEST_F(DatasetsTest, SpansAreAChoiceOfEachDataset) {
  write_spans();
  auto spans = [&](const std::string& yaml, bool use) {
    std::vector<int64_t> ids(4);
    return sample(*make(yaml, [&](auto& s) { s.use_loss_masking_spans = use; }), 0, ids)
        .loss_masking_spans;
  };
  const std::vector<data::Span> masked{{1, 2}};
  for (const char* path : {"spans", "spans.fast_llm_dataset"}) {
    const std::string memmap = std::string("{type: memmap, path: ") + path + "}";
    EXPECT_EQ(spans(memmap, true), masked);
    EXPECT_TRUE(spans(memmap, false).empty());
    EXPECT_EQ(
        spans("{type: sampled, sampling: {use_loss_masking_spans: true}, dataset: " + memmap + "}",
              false),
        masked);
    EXPECT_TRUE(
        spans("{type: sampled, sampling: {use_loss_masking_spans: false}, dataset: " + memmap + "}",
              true)
            .empty());
  }
}

TEST_F(DatasetsTest, KeepsDocumentsWholeWhereItIsTold) {
  const std::string docs = "{type: memmap, path: docs}";
  auto dataset = make(docs, [](auto& s) {
    s.truncate_documents = false;
    s.sequence_length = 5;
  });
  std::vector<int64_t> ids(6);
  EXPECT_EQ(sample(*dataset, 1, ids).padding, 2);
  EXPECT_EQ(ids, (std::vector<int64_t>{10, 11, 12, 13, -100, -100}));
  auto chunks =
      make("{type: sampled, sampling: {maximum_document_length: 3}, dataset: " + docs + "}",
           [](auto& s) { s.sequence_length = 5; });
  EXPECT_EQ(sample(*chunks, 0, ids).document_lengths, (std::vector<int64_t>{3, 1, 2}));
  EXPECT_EQ(ids, (std::vector<int64_t>{0, 1, 2, 3, 10, 11}));
  auto whole = make(
      "{type: sampled, sampling: {truncate_documents: true, maximum_document_length: 3}, "
      "dataset: " +
          docs + "}",
      [](auto& s) {
        s.truncate_documents = false;
        s.sequence_length = 5;
      });
  EXPECT_EQ(sample(*whole, 0, ids).padding, 0);
}

TEST_F(DatasetsTest, JoinsTheFilesOfAFolder) {
  std::filesystem::create_directory(folder.path() / "set");
  for (const char* name : {"b", "a"}) {
    data::MemmapWriter writer((folder.path() / "set" / name).string(), data::TokenType::kInt16);
    writer.add(std::vector<int64_t>{name[0] - 'a', 7});
    writer.finish();
  }
  const std::string yaml = "{type: concatenated_memmap, path: set}";
  EXPECT_EQ(tokens(*make(yaml), 0), (std::vector<int64_t>{0, 7, 1, 7}));
  write_file_atomic(folder.path() / "set/index.txt", "b\na\n");
  EXPECT_EQ(tokens(*make(yaml), 0), (std::vector<int64_t>{1, 7, 0, 7}));
  EXPECT_EQ(tokens(*make("{type: slice, begin: 0.5, dataset: " + yaml + "}"), 0),
            (std::vector<int64_t>{0, 7, 0, 7}));
  EXPECT_THAT(error("{type: concatenated_memmap, path: none}"), HasSubstr("expected a folder"));
}

TEST_F(DatasetsTest, TurnsTextsForFillingInTheMiddle) {
  auto with_bytes = [](auto& s) {
    s.tokenizer_path = "bytes";
    s.vocab_size = 263;
    s.sequence_length = 11;
    s.num_samples = 50;
  };
  auto read = [&](const std::string& keys, int64_t index) {
    std::vector<int64_t> ids(12);
    sample(*make("{type: fim, " + keys + ", dataset: {type: memmap, path: docs}}", with_bytes),
           index, ids);
    return ids;
  };
  EXPECT_EQ(read("rate: 0", 0)[4], 10);
  EXPECT_EQ(read("rate: 1", 0)[0], 259);
  EXPECT_EQ(read("rate: 1, spm_rate: 1", 0)[1], 262);  // suffix first
  EXPECT_EQ(read("rate: 1, spm_rate: 0", 0)[1], 256);  // prefix first
  // All keys arrive.
  EXPECT_EQ(read("rate: 1, ignore_prefix: \"\\0\"", 0)[0], 0);
  std::set<int64_t> last;
  for (int64_t i = 0; i < 20; ++i) {
    last.insert(read("rate: 1, max_middle_len: 1, spm_rate: 0, truncate_or_pad: true", i)[11]);
  }
  EXPECT_GT(last.size(), 1u);
  // Cut in fragments at the 1, none of which is turned.
  EXPECT_EQ(read("rate: 1, split_sample: \"\\x01\", fragment_rate: 0", 0)[1], 1);
  EXPECT_THAT(error("{type: fim, rate: 1, dataset: {type: random}}",
                    [](auto& s) { s.tokenizer_path = "no/such/tokenizer"; }),
              HasSubstr("no/such/tokenizer"));
  EXPECT_THAT(error("{type: fim, rate: 1}", with_bytes), HasSubstr("expected `dataset`"));
}

// Processes are dear, and threads that wait for one process are not at work.
TEST_F(DatasetsTest, SharesATokenizerWithAsManyProcessesAsThreads) {
  auto fim = [&](const std::string& keys, const std::string& inner) {
    return "{type: fim, rate: 1, " + keys + " dataset: " + inner + "}";
  };
  auto with_bytes = [](auto& s) {
    s.tokenizer_path = "bytes";
    s.vocab_size = 264;
  };
  const std::string docs = "{type: memmap, path: docs}";
  const auto blended = make("{type: blended, weights: [1, 1], datasets: [" + fim("", docs) + ", " +
                                fim("spm_rate: 0,", "{type: random}") + "]}",
                            with_bytes);
  const auto validation = make(fim("", docs), with_bytes);
  ASSERT_EQ(tokenizers.size(), 1u);
  EXPECT_EQ(tokenizers[0].path, "bytes");
  EXPECT_EQ(tokenizers[0].workers, 3);
  // With other tokens it is another.
  make(fim("pad_token: <other>,", docs), with_bytes);
  ASSERT_EQ(tokenizers.size(), 2u);
  EXPECT_THAT(tokenizers[1].added_tokens, testing::Contains("<other>"));
  // Without threads, next() itself needs one.
  int workers = 0;
  DatasetSources alone(0, [&](const data::TokenizerOptions& options) {
    workers = options.workers;
    return nullptr;
  });
  alone.tokenizer("bytes", {});
  EXPECT_EQ(workers, 1);
}

TEST_F(DatasetsTest, OpensAFileOnceForAllDefinitions) {
  const auto training = make("{type: memmap, path: docs}");
  const auto validation = make(
      "{type: concatenated, datasets: [{type: memmap, path: docs}, {type: slice, end: 0.5, "
      "dataset: "
      "{type: memmap, path: docs}}]}");
  EXPECT_EQ(sources.files().opened(), 1);
}

// ---------------------------------------------------------------- the legacy definition

class LegacyTest : public DatasetsTest {
 protected:
  // The documents of the goldens, in the given number of copies named d0, d1, ...
  void write_documents(int copies) const {
    for (int copy = 0; copy < copies; ++copy) {
      data::MemmapWriter writer((folder.path() / ("d" + std::to_string(copy))).string(),
                                data::TokenType::kInt16);
      int64_t id = 100 * copy;
      for (int64_t size : {4, 1, 3, 5, 6, 10}) {
        std::vector<int64_t> document(static_cast<size_t>(size), 0);
        for (int64_t& token : document) token = id++;
        writer.add(document);
      }
      writer.finish();
    }
  }
  static std::string legacy(const std::string& keys) {
    return "{type: legacy, format: list, split: [1], fim: {rate: 0}, " + keys + "}";
  }
  std::vector<int64_t> firsts(const std::string& yaml, size_t split_part = 0,
                              int64_t samples = 40) const {
    auto dataset = make(yaml, [&](auto& s) {
      s.num_samples = samples;
      s.legacy_seed = 88;
      s.split_part = split_part;
    });
    std::vector<int64_t> first;
    for (int64_t i = 0; i < samples; ++i) first.push_back(tokens(*dataset, i)[0]);
    return first;
  }
};

TEST_F(LegacyTest, EqualsTheGoldensWithTheDistributedSeed) {
  write_documents(1);
  auto goldens = config::parse_json(
      read_file(std::string(FASTLLM_SOURCE_DIR "/tests/fixtures/sampling/expected.json")),
      "golden");
  const config::Node& cases = *goldens.find("sampling");
  int seen = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const config::Node& c = cases.at(i);
    if (c.get<std::string>("shuffle") != "legacy") continue;
    ++seen;
    const auto length = c.get<int64_t>("sequence_length"), count = c.get<int64_t>("num_samples");
    auto dataset = make(legacy("path: [d0]"), [&](auto& s) {
      s.sequence_length = length;
      s.num_samples = count;
      s.legacy_seed = c.get<int64_t>("seed");
    });
    for (int64_t k = 0; k < count; ++k) {
      std::vector<int64_t> ids(size_t(length) + 1), expected;
      sample(*dataset, k, ids);
      const config::Node& golden = c.find("samples")->at(size_t(k));
      for (size_t t = 0; t < golden.size(); ++t) expected.push_back(golden.at(t).as_int());
      EXPECT_EQ(ids, expected) << k;
    }
  }
  EXPECT_GT(seen, 0);
}

// What it stands for, written out.
TEST_F(LegacyTest, MixesPrefixesByWeight) {
  write_documents(2);
  const std::string written =
      "{type: sampled, sampling: {seed: 88, shuffle: legacy}, dataset: {type: blended, legacy: "
      "true, weights: [3, 1], datasets: [{type: memmap, path: d0}, {type: memmap, path: d1}]}}";
  const std::vector<int64_t> expected = firsts(written);
  EXPECT_EQ(firsts(legacy("path: ['0.75', d0, '0.25', d1]")), expected);
  std::filesystem::create_directory(folder.path() / "lists");
  write_file_atomic(folder.path() / "lists/list.json",
                    R"({"datasets": [{"prefix": "../d0", "weight": 3},
                                     {"prefix": "../d1", "weight": 1.0}]})");
  EXPECT_EQ(firsts("{type: legacy, format: file, path: [lists/list.json], split: [2, 0], fim: "
                   "{rate: 0}}"),
            expected);
}

TEST_F(LegacyTest, OpensAFileOnceForAllParts) {
  write_documents(1);
  std::vector<std::shared_ptr<const data::SampledDataset>> parts;
  for (size_t part = 0; part < 3; ++part)
    parts.push_back(
        make("{type: legacy, format: list, split: [1, 1, 1], fim: {rate: 0}, path: [d0]}",
             [&](auto& s) { s.split_part = part; }));
  EXPECT_EQ(sources.files().opened(), 1);
}

TEST_F(LegacyTest, CutsDocumentsInThree) {
  write_documents(1);
  auto slice = [](const std::string& bounds) {
    return "{type: sampled, sampling: {seed: 88, shuffle: legacy}, dataset: {type: slice, " +
           bounds + ", dataset: {type: memmap, path: d0}}}";
  };
  const std::string thirds =
      "{type: legacy, format: list, path: [d0], split: [3, 2, 1], fim: {rate: 0}}";
  EXPECT_EQ(firsts(thirds, 0), firsts(slice("begin: 0, end: 0.5")));
  EXPECT_EQ(firsts(thirds, 1), firsts(slice("begin: 0.5, end: 0.8333333333333333")));
  EXPECT_EQ(firsts(thirds, 2), firsts(slice("begin: 0.8333333333333333, end: 1")));
}

TEST_F(LegacyTest, TurnsTextsAndTakesRandomTokens) {
  write_documents(1);
  auto first = [&](const std::string& keys) {
    auto dataset = make("{type: legacy, split: [1], " + keys + "}", [](auto& s) {
      s.tokenizer_path = "bytes";
      s.vocab_size = 263;
    });
    return tokens(*dataset, 0)[0];
  };
  EXPECT_EQ(first("format: list, path: [d0], fim: {rate: 1}"), 259);
  EXPECT_NE(first("format: list, path: [d0], fim: {rate: 0}"), 259);
  EXPECT_EQ(first("format: random, fim: {rate: 0}"), tokens(*make("{type: random}",
                                                                  [](auto& s) {
                                                                    s.seed = 1234;
                                                                    s.vocab_size = 263;
                                                                  }),
                                                            0)[0]);
}

TEST_F(LegacyTest, ErrorsNameTheKey) {
  write_documents(1);
  auto with = [&](const std::string& keys, size_t part = 0) {
    return error("{type: legacy, fim: {rate: 0}, " + keys + "}",
                 [&](auto& s) { s.split_part = part; });
  };
  const std::string at = "data.datasets.Training.";
  EXPECT_THAT(with("format: list, path: [], split: [1]"),
              HasSubstr(at + "path: expected one prefix, or weight, prefix"));
  EXPECT_THAT(with("format: list, path: [d0, '1', d1, '2'], split: [1]"),
              HasSubstr("found 'd0' where a weight belongs"));
  EXPECT_THAT(with("format: list, path: ['-1', d0], split: [1]"), HasSubstr("found '-1'"));
  EXPECT_THAT(with("format: list, path: ['1', d0, '2', ./d0], split: [1]"),
              HasSubstr("expected every prefix once, found ./d0 twice"));
  EXPECT_THAT(with("format: random, path: [d0], split: [1]"), HasSubstr("expected nothing"));
  EXPECT_THAT(with("format: list, path: [d0], split: [0, 0]"),
              HasSubstr(at + "split: expected finite shares"));
  EXPECT_THAT(with("format: list, path: [d0], split: [1, 1]", 2), HasSubstr("for test"));
  EXPECT_THAT(with("format: list, path: [d0], split: [1, 0]", 1),
              HasSubstr("above 0 for validation, which takes samples, found 0"));
  EXPECT_THAT(with("format: list, path: [d0], split: [99, 1]", 1),
              HasSubstr("expected documents in the slice"));
  EXPECT_THAT(with("format: file, path: [a, b], split: [1]"), HasSubstr("one JSON file"));
  EXPECT_THAT(with("format: file, path: [none.json], split: [1]"), HasSubstr("none.json"));
  auto file = [&](const std::string& json) {
    write_file_atomic(folder.path() / "list.json", json);
    return with("format: file, path: [list.json], split: [1]");
  };
  EXPECT_THAT(file("{"), HasSubstr("list.json"));
  EXPECT_THAT(file("[]"), HasSubstr("expected a list `datasets`"));
  EXPECT_THAT(file(R"({"datasets": []})"), HasSubstr("expected a list `datasets`"));
  for (const char* entry :
       {"3", R"({"prefix": "d0"})", R"({"weight": 1})", R"({"prefix": 1, "weight": 1})",
        R"({"prefix": "d0", "weight": "1"})", R"({"prefix": "d0", "weight": -1})"})
    EXPECT_THAT(file(std::string(R"({"datasets": [)") + entry + "]}"),
                HasSubstr("for entry 0 of datasets"))
        << entry;
}

TEST_F(DatasetsTest, ErrorsNameThePlaceAndWhatToDo) {
  EXPECT_THAT(
      error("{type: slice}"),
      HasSubstr("data.datasets.Training: expected `dataset`, the documents to take a slice of"));
  EXPECT_THAT(error("{type: sampled}"), HasSubstr("expected `dataset`, what to sample"));
  EXPECT_THAT(error("{path: docs}"), HasSubstr("expected a block with a `type`"));
  EXPECT_THAT(error("{type: blended, weights: [1], datasets: [{type: random}]}"),
              HasSubstr("expected at least two datasets"));
  EXPECT_THAT(
      error("{type: concatenated, datasets: [{type: random}]}"),
      HasSubstr("data.datasets.Training.datasets.0: expected a dataset of documents (memmap, "
                "concatenated, slice, file or concatenated_memmap), found type random"));
  EXPECT_THAT(
      error("{type: parquet}"),
      HasSubstr("expected a dataset of type memmap, concatenated, slice, file, "
                "concatenated_memmap, random, sampled, blended, fim or legacy, found parquet"));
  for (const std::string& type :
       dataset_type_names(/*of_documents=*/false))  // each of them is known
    EXPECT_THAT(error("{type: " + type + ", path: none}"), Not(HasSubstr("a dataset of type")))
        << type;
  for (const std::string& type : dataset_type_names(/*of_documents=*/true))
    EXPECT_THAT(error("{type: slice, dataset: {type: " + type + ", path: none}}"),
                Not(HasSubstr("a dataset of documents")))
        << type;
  EXPECT_THAT(error("{type: memmap, path: none}"), HasSubstr("none"));
  EXPECT_THAT(error("{type: memmap, path: docs, num_documents: 7}"), HasSubstr("7"));
  write_file_atomic(folder.path() / "loop.yaml", "{type: file, path: loop.yaml}");
  EXPECT_THAT(error("{type: file, path: loop.yaml}"), HasSubstr("does a file name itself"));
  // The content of a file is judged by the rules of where it stands.
  write_file_atomic(folder.path() / "fim.yaml", "{type: fim, dataset: {type: random}}");
  EXPECT_THAT(error("{type: file, path: fim.yaml}"),
              HasSubstr("fim.yaml:1: data.datasets.Training.type: expected data.tokenizer.path"));
  EXPECT_THAT(error("{type: file, path: fim.yaml}",
                    [](auto& s) {
                      s.tokenizer_path = "bytes";
                      s.use_loss_masking_spans = true;
                    }),
              HasSubstr("use_loss_masking_spans: false"));
  write_file_atomic(folder.path() / "spans.yaml",
                    "{type: sampled, sampling: {use_loss_masking_spans: true}, dataset: {type: "
                    "random}}");
  EXPECT_THAT(error("{type: fim, dataset: {type: file, path: spans.yaml}}",
                    [](auto& s) { s.tokenizer_path = "bytes"; }),
              HasSubstr("spans.yaml:1: data.datasets.Training.dataset.sampling"));
  write_file_atomic(folder.path() / "typo.yaml", "{type: memmap, pth: docs}");
  EXPECT_THAT(error("{type: file, path: typo.yaml}"), HasSubstr("pth"));
}

}  // namespace
}  // namespace fastllm::train
