#include "core/data/prepare/prepare.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "core/data/formats/memmap.hpp"
#include "core/data/tokenizers/byte_tokenizer.hpp"
#include "tests/support/names_in.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;
using test::names_in;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

std::vector<int64_t> text_tokens(const std::string& text) {
  return ByteTokenizer().encode(text, {true, true});
}

class Prepare : public ::testing::Test {
 protected:
  void SetUp() override {
    make_directories(folder_.path() / "in");
    options_.output_path = folder_.path() / "out";
  }
  void input(const std::string& name, const std::string& content) {
    fs::path path = folder_.path() / "in" / name;
    make_directories(path.parent_path());
    write_file_atomic(path, content);
    options_.inputs = {(folder_.path() / "in").string()};
  }
  std::string error(std::optional<Status> status = Status::kInvalid) {
    std::string message = message_of([&] { prepare(options_); }, status);
    EXPECT_FALSE(fs::exists(options_.output_path));
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("in"));  // nothing aside either
    return message;
  }
  // Every file of the output, name and content.
  std::vector<std::pair<std::string, std::string>> contents(const fs::path& out) const {
    std::vector<std::pair<std::string, std::string>> all;
    for (const std::string& name : names_in(out)) all.emplace_back(name, read_file(out / name));
    return all;
  }
  fs::path out(const std::string& name) const { return options_.output_path / name; }

  TemporaryDirectory folder_;
  PrepareOptions options_;
};

TEST_F(Prepare, MakesADocumentOfEveryTextFile) {
  input("b.txt", "h\xC3\xA9");
  input("a.txt", "hi");
  input("deep/er/c.txt", "");
  input(".hidden/d.txt", "no");
  std::vector<std::pair<int64_t, int64_t>> steps;
  PrepareReport report =
      prepare(options_, [&](int64_t done, int64_t total) { steps.emplace_back(done, total); });
  EXPECT_EQ(report.files, 3);
  EXPECT_EQ(report.documents, 3);
  EXPECT_EQ(report.tokens, 4 + 5 + 2);
  EXPECT_EQ(report.token_type, TokenType::kInt16);
  EXPECT_THAT(report.shards, ElementsAre(out("shard_0_0")));
  EXPECT_THAT(report.configurations, ElementsAre(out("fast_llm_config.yaml")));
  EXPECT_THAT(report.warnings, IsEmpty());
  EXPECT_THAT(steps, ElementsAre(std::pair(5, 5)));
  EXPECT_THAT(names_in(options_.output_path),
              ElementsAre("fast_llm_config.yaml", "shard_0_0.bin", "shard_0_0.idx"));
  EXPECT_EQ(read_file(out("fast_llm_config.yaml")),
            "type: memmap\npath: shard_0_0\nnum_documents: 3\nnum_tokens: 11\n");
  MemmapDataset dataset(out("shard_0_0"), {3, 11});
  EXPECT_EQ(read_document(dataset, 0), text_tokens("hi"));
  EXPECT_EQ(read_document(dataset, 1), text_tokens("h\xC3\xA9"));
  EXPECT_EQ(read_document(dataset, 2), text_tokens(""));
}

TEST_F(Prepare, ReadsJsonLines) {
  input("x.jsonl",
        "{\"text\": \"abcdef\", \"loss_masking_spans\": [[2, 3]]}\n"
        "\n"
        "{\"text\": \"abcdef\", \"loss_masking_spans\": [[0, 1], [4, 5]], \"other\": 1}\r\n"
        "{\"text\": \"\xC3\xA9\xE2\x82\xAC"
        "b\\u00e9\", \"loss_masking_spans\": [[1, 1]]}\n"
        "{\"tokens\": [5, 32767, 0], \"loss_masking_spans\": [[1, 2]]}\n"
        "{\"tokens\": []}\n"
        "{\"text\": \"x\", \"loss_masking_spans\": null}");  // no line end
  PrepareReport report = prepare(options_);
  EXPECT_EQ(report.documents, 6);
  MemmapDataset dataset(out("shard_0_0"));
  auto spans = [&](int64_t document) {
    std::vector<Span> all;
    read_document(dataset, document, 0, &all);
    return all;
  };
  EXPECT_EQ(read_document(dataset, 0), text_tokens("abcdef"));
  EXPECT_THAT(spans(0), ElementsAre(Span{3, 4}));
  EXPECT_THAT(spans(1), ElementsAre(Span{0, 2}, Span{5, 7}));  // BOS and EOS belong to the ends
  EXPECT_EQ(read_document(dataset, 2), text_tokens("\xC3\xA9\xE2\x82\xAC"
                                                   "b\xC3\xA9"));
  EXPECT_THAT(spans(2), ElementsAre(Span{3, 5}));  // the three bytes of the second character
  EXPECT_THAT(read_document(dataset, 3), ElementsAre(5, 32767, 0));  // no BOS or EOS added
  EXPECT_THAT(spans(3), ElementsAre(Span{1, 2}));
  EXPECT_THAT(read_document(dataset, 4), IsEmpty());
  EXPECT_EQ(read_document(dataset, 5), text_tokens("x"));
  EXPECT_THAT(spans(5), IsEmpty());
}

TEST_F(Prepare, CoversAWholeTextWithOneSpan) {
  input("x.jsonl", "{\"text\": \"abc\", \"loss_masking_spans\": [[0, 2]]}\n");
  prepare(options_);
  MemmapDataset dataset(out("shard_0_0"));
  std::vector<Span> spans;
  read_document(dataset, 0, 0, &spans);
  EXPECT_THAT(spans, ElementsAre(Span{0, 4}));
}

TEST_F(Prepare, TakesOtherFieldsFormatsAndTypes) {
  input("x.txt", "{\"body\": \"hi\", \"mask\": [[0, 0]]}\n{\"tokens\": [49000]}\n");
  options_.format = InputFormat::kJsonLines;
  options_.text_field = "body";
  options_.spans_field = "mask";
  options_.vocab_size = 49152;
  PrepareReport report = prepare(options_);
  EXPECT_EQ(report.token_type, TokenType::kInt32);
  MemmapDataset dataset(out("shard_0_0"));
  EXPECT_TRUE(dataset.has_spans());
  EXPECT_THAT(read_document(dataset, 1), ElementsAre(49000));
  options_.overwrite = true;
  options_.token_type = TokenType::kUint16;
  options_.spans_field = "";
  prepare(options_);
  MemmapDataset again(out("shard_0_0"));
  EXPECT_EQ(again.token_type(), TokenType::kUint16);
  EXPECT_FALSE(again.has_spans());
}

TEST_F(Prepare, RefusesBadLinesWithFileAndLine) {
  auto line = [&](const std::string& text) {
    input("x.jsonl", "{\"text\": \"fine\"}\n\n" + text + "\n{\"text\": \"fine\"}\n");
    std::string message = error();
    EXPECT_THAT(message, HasSubstr("in/x.jsonl:3: ")) << text;
    return message;
  };
  EXPECT_THAT(line("{\"text\": \"cut"),
              AllOf(HasSubstr("expected a JSON object in one line"),
                    EndsWith("(column 14: invalid string: missing closing quote)")));
  EXPECT_THAT(line("{\"text\": \"\xFF\"}"),
              EndsWith("(column 11: invalid string: ill-formed UTF-8 byte)"));
  EXPECT_THAT(line("{\"x\": 1e999}"), HasSubstr("found what cannot be read"));
  EXPECT_THAT(line("{\"text\": \"a\", \"text\": \"b\"}"), HasSubstr("found 'text' twice"));
  EXPECT_THAT(line("{\"text\": \"a\", \"x\": [{\"k\": 1, \"k\": 1}]}"),
              HasSubstr("found 'k' twice"));
  EXPECT_THAT(line("[1, 2]"), HasSubstr("found array"));
  EXPECT_THAT(line("{\"body\": \"x\"}"), HasSubstr("Dataset does not have field 'text'."));
  EXPECT_THAT(line("{\"text\": \"x\", \"tokens\": [1]}"), HasSubstr("found both"));
  EXPECT_THAT(line("{\"text\": 5}"), HasSubstr("expected text in 'text', found number"));
  EXPECT_THAT(line("{\"tokens\": \"5\"}"), HasSubstr("expected 'tokens' as a list"));
  EXPECT_THAT(line("{\"tokens\": [1, 32768]}"),
              AllOf(HasSubstr("from 0 to 32767 (int16)"), HasSubstr("found 32768 at position 1")));
  EXPECT_THAT(line("{\"tokens\": [-1]}"), HasSubstr("found -1 at position 0"));
  EXPECT_THAT(line("{\"tokens\": [1.0]}"), HasSubstr("found 1.0 at position 0"));
  EXPECT_THAT(line("{\"tokens\": [[7, 8]]}"), HasSubstr("found [7,8] at position 0"));
  EXPECT_THAT(line("{\"tokens\": [[1, 2, 3, 4, 5]]}"), HasSubstr("found array at position 0"));
  EXPECT_THAT(line("{\"tokens\": [1, {\"a\": 1}]}"), HasSubstr("found object at position 1"));
  EXPECT_THAT(line("{\"tokens\": [18446744073709551615]}"),
              HasSubstr("found 18446744073709551615"));
  for (const char* spans : {"5", "[5]", "[[1]]", "[[1, 2, 3]]", "[[2, 1]]", "[[0, 3]]", "[[-1, 0]]",
                            "[[0, 1], [1, 2]]", "[[1, 1], [0, 0]]", "[[0.5, 1]]"}) {
    EXPECT_THAT(line(std::string("{\"text\": \"abc\", \"loss_masking_spans\": ") + spans + "}"),
                AllOf(HasSubstr("inclusive character positions"), HasSubstr("below 3")));
    EXPECT_THAT(line(std::string("{\"tokens\": [1, 2, 3], \"loss_masking_spans\": ") + spans + "}"),
                HasSubstr("inclusive token positions"));
  }
  options_.vocab_size = 300;
  EXPECT_THAT(line("{\"tokens\": [300]}"), HasSubstr("from 0 to 299 (int16, vocab_size 300)"));
}

TEST_F(Prepare, BoundsTheDepthOfALine) {
  auto nested = [](size_t lists) {
    return "{\"text\": \"x\", \"other\": " + std::string(lists, '[') + std::string(lists, ']') +
           "}\n";
  };
  input("x.jsonl", nested(63));  // and the block around them
  EXPECT_EQ(prepare(options_).documents, 1);
  fs::remove_all(options_.output_path);
  for (size_t lists : {size_t(64), size_t(1'000'000)}) {
    input("x.jsonl", "{\"text\": \"fine\"}\n" + nested(lists));
    EXPECT_THAT(error(), AllOf(HasSubstr("in/x.jsonl:2: expected lists and blocks at most 64 deep"),
                               HasSubstr("leave such fields out")));
  }
}

TEST_F(Prepare, RefusesTextThatIsNoUtf8WithFileAndOffset) {
  input("a.txt", "fine");
  input("b.txt", std::string(1000, 'x') + "\xE9" + "y");
  for (int64_t block : {int64_t(8) << 20, int64_t(7), int64_t(1001)}) {
    options_.block_bytes = block;
    EXPECT_THAT(error(), AllOf(HasSubstr("0xe9 at offset 1000 of"), HasSubstr("b.txt"))) << block;
  }
}

TEST_F(Prepare, RefusesOptionsThatMakeNoSense) {
  input("a.txt", "text");
  auto with = [&](auto change, Status status = Status::kInvalid) {
    PrepareOptions before = options_;
    change(options_);
    std::string message = error(status);
    options_ = before;
    return message;
  };
  EXPECT_THAT(with([](auto& o) { o.tokenizer = "/models/llama"; }, Status::kNotFound),
              AllOf(HasSubstr("at /models/llama, found none"), HasSubstr("download it first")));
  EXPECT_THAT(with([](auto& o) { o.tokenizer = ""; }), HasSubstr("expected a tokenizer"));
  EXPECT_THAT(with([](auto& o) { o.tokens_per_shard = 99'999; }),
              HasSubstr("tokens_per_shard from 100000 up"));
  EXPECT_THAT(with([](auto& o) { o.workers = 0; }), HasSubstr("workers from 1 up"));
  EXPECT_THAT(with([](auto& o) { o.workers = 1025; }),
              HasSubstr("at most 1024 workers, found 1025"));
  EXPECT_THAT(with([](auto& o) { o.holdout_every = 1; }), HasSubstr("holdout_every from 2 up"));
  EXPECT_THAT(with([](auto& o) { o.holdout_every = 5; }), HasSubstr("lower holdout_every"));
  EXPECT_THAT(with([](auto& o) {
                o.splits = {{"a", 1}}, o.holdout_every = 2;
              }),
              HasSubstr("found both"));
  EXPECT_THAT(with([](auto& o) { o.splits = {{"../a", 1}}; }), HasSubstr("'../a'"));
  EXPECT_THAT(with([](auto& o) { o.splits = {{"a", 1}, {"a", 1}}; }), HasSubstr("'a' twice"));
  EXPECT_THAT(with([](auto& o) { o.vocab_size = 256; }), HasSubstr("room for the 259 ids"));
  EXPECT_THAT(with([](auto& o) { o.token_type = TokenType::kUint8; }), HasSubstr("uint8"));
  EXPECT_THAT(with([](auto& o) { o.inputs = {}; }), HasSubstr("name at least one"));
  EXPECT_THAT(
      with([&](auto& o) { o.inputs = {(folder_.path() / "none").string()}; }, Status::kNotFound),
      HasSubstr("none; check the path"));
  EXPECT_THAT(with([&](auto& o) { o.inputs = {(folder_.path() / "in" / "*.md").string()}; },
                   Status::kNotFound),
              HasSubstr("expected at least one file"));
  EXPECT_THAT(message_of([&] {
                PrepareOptions o = options_;
                o.output_path.clear();
                prepare(o);
              }),
              HasSubstr("expected output_path"));
  input("a.txt", "");
  input("b.jsonl", "{\"tokens\": []}\n");
  options_.inputs = {(folder_.path() / "in" / "b.jsonl").string()};
  EXPECT_THAT(error(), HasSubstr("expected documents with tokens in the 1 input files"));
}

// Hours of tokenizing lie between the command line and the splits.
TEST_F(Prepare, RefusesRatiosOfSplitsBeforeAnythingIsOpened) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  options_.tokenizer = (folder_.path() / "no tokenizer").string();
  options_.inputs = {(folder_.path() / "no input").string()};
  for (const auto& [ratios, shown] : std::vector<std::pair<std::vector<double>, std::string>>{
           {{0}, "[0]"},
           {{0, 0}, "[0, 0]"},
           {{1, -0.5}, "[1, -0.5]"},
           {{std::nan(""), 1}, "[nan, 1]"},
           {{1, kInfinite}, "[1, inf]"},
           {{1e308, 1e308}, "[1e+308, 1e+308]"}}) {
    options_.splits.clear();
    for (double ratio : ratios)
      options_.splits.emplace_back("s" + std::to_string(options_.splits.size()), ratio);
    EXPECT_THAT(error(), AllOf(HasSubstr("expected split ratios from 0 up, one of them above 0"),
                               HasSubstr("found " + shown)));
  }
  EXPECT_FALSE(fs::exists(options_.output_path));
}

// Text with characters of every length, long enough for several shards and for many small blocks.
void write_corpus(const fs::path& folder) {
  make_directories(folder);
  const char* pieces[] = {"plain ", "caf\xC3\xA9 ", "\xE2\x82\xAC ", "\xF0\x9F\x98\x80 ", "\n"};
  std::string lines;
  for (int file = 0; file < 30; ++file) {
    std::string text;
    for (int i = 0; i < 40 * file * file % 1500 + 900; ++i)
      text += pieces[(i * 7 + file * i * i) % 5];
    write_file_atomic(folder / ("text_" + std::to_string(file) + ".txt"), text);
    nlohmann::json line{{"text", text.substr(0, text.find(' ', 20))}};
    if (file % 3 == 0) line["loss_masking_spans"] = {{0, file % 4}};
    lines += line.dump() + "\n";
    lines += nlohmann::json{{"tokens", {file, 2 * file, 258}}}.dump() + "\n";
  }
  write_file_atomic(folder / "lines.jsonl", lines);
}

TEST_F(Prepare, DoesNotDependOnWorkersOrBlocks) {
  write_corpus(folder_.path() / "in");
  options_.inputs = {(folder_.path() / "in").string()};
  options_.tokens_per_shard = 100'000;
  for (int64_t holdout : {0, 7}) {
    options_.holdout_every = holdout;
    std::vector<std::pair<std::string, std::string>> expected;
    for (int workers : {1, 2, 4}) {
      for (int64_t block : {int64_t(8) << 20, int64_t(1000), int64_t(61)}) {
        options_.workers = workers;
        options_.block_bytes = block;
        options_.output_path =
            folder_.path() / ("out_" + std::to_string(holdout) + "_" + std::to_string(workers) +
                              "_" + std::to_string(block));
        PrepareReport report = prepare(options_);
        EXPECT_GE(report.shards.size(), 2u);
        auto all = contents(options_.output_path);
        if (expected.empty()) expected = all;
        EXPECT_EQ(all, expected) << workers << " workers, blocks of " << block;
      }
    }
  }
}

TEST_F(Prepare, CutsShardsByDocuments) {
  // 1000 documents of 350 tokens, 100,000 tokens a shard: 4 shards of 250 documents.
  std::string lines;
  for (int i = 0; i < 1001; ++i)
    lines += "{\"text\": \"" + std::string(348, char('a' + i % 26)) + "\"}\n";
  input("x.jsonl", lines);
  options_.tokens_per_shard = 100'000;
  PrepareReport report = prepare(options_);
  ASSERT_THAT(report.shards, SizeIs(4));
  int64_t document = 0;
  for (size_t shard = 0; shard < 4; ++shard) {
    MemmapDataset dataset(report.shards[shard]);
    EXPECT_EQ(dataset.num_documents(), shard == 0 ? 251 : 250);  // the remainder goes to the first
    for (int64_t i = 0; i < dataset.num_documents(); ++i, ++document) {
      ASSERT_EQ(read_document(dataset, i)[5], 'a' + document % 26);
    }
  }
  EXPECT_EQ(document, 1001);
  std::string yaml = read_file(out("fast_llm_config.yaml"));
  EXPECT_THAT(yaml, AllOf(HasSubstr("type: blended\n"), HasSubstr("path: shard_0_3\n"),
                          HasSubstr("weights:\n- 0.2507")));
}

TEST_F(Prepare, WritesSplits) {
  for (char c = 'a'; c < 'k'; ++c) input(std::string(1, c) + ".txt", std::string(98, c));
  options_.splits = {{"training", 0.8}, {"validation", 0.2}, {"test", 0}};
  PrepareReport report = prepare(options_);
  EXPECT_THAT(report.warnings, ElementsAre("Datasets split test is empty!"));
  EXPECT_THAT(names_in(options_.output_path),
              ElementsAre("fast_llm_config_training.yaml", "fast_llm_config_validation.yaml",
                          "shard_0_0.bin", "shard_0_0.idx"));
  EXPECT_EQ(read_file(out("fast_llm_config_validation.yaml")),
            "type: slice\ndataset:\n  type: memmap\n  path: shard_0_0\n  num_documents: 10\n  "
            "num_tokens: 1000\n"
            "begin: 0.8\nend: 1.0\n");
}

TEST_F(Prepare, HoldsOutWholeFiles) {
  for (char c = 'a'; c < 'k'; ++c) input(std::string(1, c) + ".txt", std::string(3, c));
  options_.holdout_every = 4;
  PrepareReport report = prepare(options_);
  EXPECT_EQ(report.documents, 10);
  EXPECT_THAT(report.configurations, ElementsAre(out("fast_llm_config_training.yaml"),
                                                 out("fast_llm_config_validation.yaml")));
  EXPECT_EQ(read_file(out("fast_llm_config_validation.yaml")),
            "type: memmap\npath: shard_0_1\nnum_documents: 2\nnum_tokens: 10\n");
  MemmapDataset training(out("shard_0_0")), validation(out("shard_0_1"));
  EXPECT_EQ(training.num_documents(), 8);
  EXPECT_EQ(read_document(training, 3), text_tokens("eee"));
  EXPECT_EQ(read_document(validation, 0), text_tokens("ddd"));
  EXPECT_EQ(read_document(validation, 1), text_tokens("hhh"));
}

TEST_F(Prepare, ExpandsPatternsInOrder) {
  for (const char* name :
       {"b/x.py", "a/x.py", "a/y.txt", "a/deep/z.py", "x.py", "a/.hidden.py", "B/x.py"}) {
    input(name, name);
  }
  fs::create_directory_symlink(folder_.path() / "in", folder_.path() / "in" / "loop");
  auto listed = [&](std::vector<std::string> patterns) {
    for (std::string& pattern : patterns) pattern = (folder_.path() / "in" / pattern).string();
    std::vector<std::string> names;
    for (const InputFile& file : list_inputs(patterns, InputFormat::kAuto)) {
      names.push_back(file.path.lexically_relative(folder_.path() / "in").string());
    }
    return names;
  };
  EXPECT_THAT(listed({"**/*.py"}),
              ElementsAre("B/x.py", "a/deep/z.py", "a/x.py", "b/x.py", "x.py"));
  EXPECT_THAT(listed({"*/x.py"}), ElementsAre("B/x.py", "a/x.py", "b/x.py", "loop/x.py"));
  EXPECT_THAT(listed({"[ab]/?.py"}), ElementsAre("a/x.py", "b/x.py"));
  EXPECT_THAT(listed({"x.py", "a", "**/x.py"}),  // once each, in the order given
              ElementsAre("x.py", "a/deep/z.py", "a/x.py", "a/y.txt", "B/x.py", "b/x.py"));
  EXPECT_THAT(listed({"a/**"}), ElementsAre("a/deep/z.py", "a/x.py", "a/y.txt"));
  // Walked once, not once for each.
  std::string many;
  for (int i = 0; i < 60; ++i) many += "**/";
  input("1/2/3/4/5/6/7/8/9/10/11/12/x.py", "");
  EXPECT_EQ(listed({many + "*.py"}), listed({"**/*.py"}));
}

TEST_F(Prepare, CutsInputsIntoBlocksInOrder) {
  std::vector<InputFile> files;
  for (int64_t bytes : {0, 3, 25, 10, 0, 4, 4, 4, 11}) {
    files.push_back({});
    files.back().state.bytes = bytes;
  }
  files[8].json_lines = true;
  auto cut = [&](bool texts) {
    std::string all;
    for (const InputBlock& block : cut_into_blocks(files, 10, texts)) {
      for (const InputPart& part : block.parts) {
        all += std::to_string(part.file) + ":" + std::to_string(part.begin) + "-" +
               std::to_string(part.end) + " ";
      }
      all += "| ";
    }
    return all;
  };
  EXPECT_EQ(cut(true),
            "0:0-0 1:0-3 | 2:0-10 | 2:10-20 | 2:20-25 | 3:0-10 4:0-0 | 5:0-4 6:0-4 | 7:0-4 | "
            "8:0-10 | 8:10-11 | ");
  EXPECT_EQ(cut(false),
            "0:0-0 1:0-3 | 2:0-25 | 3:0-10 4:0-0 | 5:0-4 6:0-4 | 7:0-4 | 8:0-10 | 8:10-11 | ");
  EXPECT_EQ(cut_into_blocks(std::vector<InputFile>(3000), 10, true).size(), 3u);  // shared out
}

TEST_F(Prepare, LeavesOutWhatIsExcluded) {
  for (const char* name : {"a.py", "tests/b.py", "tests/deep/c.py", "d.py"}) input(name, name);
  options_.exclude = {"*/tests/*", "*/d.py"};
  EXPECT_EQ(prepare(options_).files, 1);
  EXPECT_EQ(read_document(MemmapDataset(out("shard_0_0")), 0), text_tokens("a.py"));
  options_.exclude = {"*.py"};
  options_.overwrite = true;
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kInvalid),
              HasSubstr("[*.py] leaves out"));
}

TEST_F(Prepare, PassesTheMetadataOfAFolderOn) {
  const std::string metadata = "{\"name\": \"caf\xC3\xA9\",\n \"url\": null}\n\n";
  input("a.txt", "one");
  prepare(options_);
  EXPECT_FALSE(fs::exists(out("croissant.json")));
  input("croissant.json", metadata);
  input("deep/croissant.json", "{}");  // of another dataset: a text like any other
  const fs::path in = folder_.path() / "in";
  for (const std::string& inputs : {in.string(), in.string() + "//", (in / ".").string()}) {
    SCOPED_TRACE(inputs);
    options_.inputs = {inputs};
    options_.overwrite = true;
    PrepareReport report = prepare(options_);
    EXPECT_EQ(report.documents, 2);
    EXPECT_THAT(report.warnings, IsEmpty());
    EXPECT_EQ(read_file(out("croissant.json")), metadata);
    EXPECT_EQ(read_document(MemmapDataset(out("shard_0_0")), 1), text_tokens("{}"));
  }
  // A folder's own is all there is in it: nothing to prepare.
  options_.inputs = {(in / "deep").string()};
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kNotFound),
              HasSubstr("expected at least one file for " + (in / "deep").string()));
  input("deep/b.txt", "two");
  options_.inputs = {in.string(), (in / "deep").string()};
  EXPECT_THAT(
      prepare(options_).warnings,
      ElementsAre((in / "deep/croissant.json").string() + " is not copied: the output describes " +
                  (in / "croissant.json").string() + " already"));
  EXPECT_EQ(read_file(out("croissant.json")), metadata);
  // Named itself it is a document, and describes nothing.
  options_.inputs = {(in / "croissant.json").string()};
  EXPECT_EQ(prepare(options_).documents, 1);
  EXPECT_FALSE(fs::exists(out("croissant.json")));
}

TEST_F(Prepare, RefusesAnOutputThatExists) {
  input("a.txt", "one");
  prepare(options_);
  auto before = contents(options_.output_path);
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kInvalid),
              HasSubstr("expected no output at"));
  EXPECT_EQ(contents(options_.output_path), before);
  options_.overwrite = true;
  input("a.txt", "other");
  prepare(options_);
  EXPECT_EQ(read_document(MemmapDataset(out("shard_0_0")), 0), text_tokens("other"));
  // An overwrite removes nothing but an output.
  write_file_atomic(out("notes.txt"), "mine");
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kInvalid),
              HasSubstr("found notes.txt"));
  EXPECT_EQ(read_file(out("notes.txt")), "mine");
  options_.output_path = folder_.path() / "in" / "a.txt";
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kInvalid),
              HasSubstr("found something else"));
  options_.output_path = "/";
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kInvalid), HasSubstr("'/'"));
  // A trailing slash and an empty folder are fine.
  options_.output_path = (folder_.path() / "empty").string() + "/";
  make_directories(options_.output_path);
  EXPECT_EQ(prepare(options_).documents, 1);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("empty", "in", "out"));
}

TEST_F(Prepare, StopsWhenAsked) {
  for (char c = 'a'; c < 'k'; ++c) input(std::string(1, c) + ".txt", "text");
  options_.block_bytes = 4;  // a block is a file
  for (int calls : {0, 3, 10}) {
    int left = calls;
    EXPECT_THAT(
        message_of([&] { prepare(options_, {}, [&] { return left-- == 0; }); }, Status::kCancelled),
        HasSubstr("nothing was written to"));
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("in"));
  }
}

TEST_F(Prepare, KilledLeavesNothingUnderTheFinalName) {
  write_corpus(folder_.path() / "in");
  options_.inputs = {(folder_.path() / "in").string()};
  options_.block_bytes = 1000;
  int pipe_ends[2];
  ASSERT_EQ(::pipe2(pipe_ends, O_CLOEXEC), 0);
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int calls = 0;
    try {
      prepare(options_, [&](int64_t, int64_t) {
        if (++calls < 20) return;
        [[maybe_unused]] ssize_t written = ::write(pipe_ends[1], "x", 1);
        while (true) ::pause();
      });
    } catch (...) {
    }
    ::_exit(1);
  }
  ::close(pipe_ends[1]);
  char byte = 0;
  ASSERT_EQ(::read(pipe_ends[0], &byte, 1), 1);
  ::close(pipe_ends[0]);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(options_.output_path));
  std::string left = "out.partial." + std::to_string(child);
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("in", left));
  // It is no input, also where its folder is one.
  const size_t files = list_inputs(options_.inputs, InputFormat::kAuto).size();
  options_.inputs = {folder_.path().string()};
  EXPECT_EQ(list_inputs(options_.inputs, InputFormat::kAuto).size(), files);
  EXPECT_THAT(message_of([&] {
                list_inputs({(folder_.path() / "out*" / "coll*").string()}, InputFormat::kAuto);
              }),
              HasSubstr("found none"));
  // The next run completes, and removes what lies around.
  PrepareReport report = prepare(options_);
  EXPECT_EQ(size_t(report.files), files);
  EXPECT_THAT(report.warnings, ElementsAre(AllOf(HasSubstr("removed "), HasSubstr(left))));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("in", "out"));
  EXPECT_THAT(names_in(options_.output_path),
              ElementsAre("fast_llm_config.yaml", "shard_0_0.bin", "shard_0_0.idx"));
}

TEST_F(Prepare, RemovesNothingButItsOwnLeftovers) {
  input("a.txt", "text");
  // Names like those of leftovers, with what is not: notes, folders, a complete output.
  write_file_atomic(folder_.path() / "out.partial.1", "a file");
  for (const char* folder : {"out.partial.2", "out.partial.backup"}) {
    make_directories(folder_.path() / folder);
    write_file_atomic(folder_.path() / folder / "thesis.txt", "precious");
  }
  for (const char* name : {"out.partial.3", "out"}) {
    options_.output_path = folder_.path() / name;
    EXPECT_THAT(prepare(options_).warnings, IsEmpty());
  }
  options_.overwrite = true;
  EXPECT_THAT(prepare(options_).warnings, IsEmpty());
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("in", "out", "out.partial.1", "out.partial.2",
                                                    "out.partial.3", "out.partial.backup"));
  EXPECT_THAT(names_in(folder_.path() / "out.partial.3"),
              ElementsAre("fast_llm_config.yaml", "shard_0_0.bin", "shard_0_0.idx"));
  EXPECT_EQ(read_file(folder_.path() / "out.partial.2" / "thesis.txt"), "precious");
}

TEST_F(Prepare, NeverTakesAFolderThatIsThere) {
  input("a.txt", "text");
  const fs::path mine =
      folder_.path() / ("out.partial." + std::to_string(::getpid()));  // that of this process
  make_directories(mine);
  write_file_atomic(mine / "thesis.txt", "precious");
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kUnavailable),
              AllOf(HasSubstr("cannot make the folder " + mine.string()), HasSubstr("exists")));
  EXPECT_EQ(read_file(mine / "thesis.txt"), "precious");
}

TEST_F(Prepare, RefusesASecondPreparationOfAnOutput) {
  input("a.txt", "text");
  std::string message;
  prepare(options_, [&](int64_t, int64_t) {
    message = message_of([&] { prepare(options_); }, Status::kUnavailable);
  });
  EXPECT_THAT(message, AllOf(HasSubstr("found one at work in"), HasSubstr("out.partial.")));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("in", "out"));
}

TEST_F(Prepare, RefusesItsOwnOutputAsInput) {
  input("a.txt", "text");
  prepare(options_);
  auto before = contents(options_.output_path);
  options_.overwrite = true;
  options_.inputs = {folder_.path().string()};
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kInvalid),
              AllOf(HasSubstr("expected inputs outside of the output"), HasSubstr("found ")));
  fs::create_directory_symlink(options_.output_path, folder_.path() / "in" / "link");
  options_.inputs = {(folder_.path() / "in" / "link" / "*.yaml").string()};
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kInvalid),
              HasSubstr("link/fast_llm_config.yaml in it"));
  EXPECT_EQ(contents(options_.output_path), before);
}

TEST_F(Prepare, NoticesInputsThatChange) {
  input("a.txt", "text");
  input("b.txt", "text");
  options_.block_bytes = 4;
  for (const char* changed : {"a.txt", "b.txt"}) {  // read already, and not yet
    bool done = false;
    std::string message = message_of(
        [&] {
          prepare(options_, {}, [&] {
            // Another file under the name: the same size, and the same content even.
            if (!std::exchange(done, true)) input(changed, "text");
            return false;
          });
        },
        Status::kUnavailable);
    EXPECT_THAT(message, AllOf(HasSubstr(changed), HasSubstr("changed meanwhile")));
    EXPECT_THAT(names_in(folder_.path()), ElementsAre("in"));
  }
}

TEST_F(Prepare, NamesWhatItMayNotRead) {
  input("a.txt", "text");
  input("locked/b.txt", "text");
  fs::path locked = folder_.path() / "in" / "locked";
  fs::permissions(folder_.path(), fs::perms(0755));
  fs::permissions(locked, fs::perms::none);
  std::string inputs, dataset, output;
  {
    WithoutPrivileges without;
    if (!without.hold()) GTEST_SKIP() << "cannot take another user's place";
    inputs =
        message_of([&] { list_inputs(options_.inputs, InputFormat::kAuto); }, Status::kUnavailable);
    dataset = message_of([&] { MemmapDataset d(locked / "shard_0_0"); }, Status::kUnavailable);
    options_.inputs = {(folder_.path() / "in" / "a.txt").string()};
    options_.output_path = locked / "out";
    output = message_of([&] { prepare(options_); }, Status::kUnavailable);
  }
  fs::permissions(locked, fs::perms::owner_all);
  for (const std::string& message : {inputs, dataset, output})
    EXPECT_THAT(message, AllOf(HasSubstr(locked.string()), HasSubstr("Permission denied")));
}

TEST_F(Prepare, NamesPathsThatAreTooLong) {
  const std::string name(300, 'n');
  auto too_long = AllOf(HasSubstr(name), HasSubstr("File name too long"));
  options_.inputs = {(folder_.path() / name).string()};
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kUnavailable), too_long);
  EXPECT_THAT(message_of([&] { MemmapDataset d(folder_.path() / name); }, Status::kUnavailable),
              too_long);
  input("a.txt", "text");
  options_.output_path = folder_.path() / name;
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kUnavailable), too_long);
}

TEST_F(Prepare, RefusesInputsThatAreNeitherFilesNorFolders) {
  options_.inputs = {"/dev/null"};
  EXPECT_THAT(error(Status::kNotFound),
              HasSubstr("expected a file or a folder at /dev/null, found something else"));
}

TEST_F(Prepare, RefusesFilesThatHideTheirSize) {
  options_.inputs = {"/proc/version"};
  for (InputFormat format : {InputFormat::kText, InputFormat::kJsonLines}) {
    options_.format = format;
    const std::string message = message_of([&] { prepare(options_); }, Status::kInvalid);
    EXPECT_THAT(message, AllOf(HasSubstr("found /proc/version with content but size 0"),
                               HasSubstr("copy it")));
  }
}

TEST_F(Prepare, TakesTextInEveryTypeThatHoldsItsIds) {
  input("a.txt", "text");
  options_.overwrite = true;
  for (TokenType type :
       {TokenType::kInt16, TokenType::kUint16, TokenType::kInt32, TokenType::kInt64}) {
    options_.token_type = type;
    EXPECT_EQ(prepare(options_).token_type, type);
    EXPECT_EQ(read_document(MemmapDataset(out("shard_0_0")), 0), text_tokens("text"));
  }
  options_.vocab_size = ByteTokenizer().vocabulary();
  EXPECT_EQ(prepare(options_).documents, 1);
  --options_.vocab_size;
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kInvalid),
              AllOf(HasSubstr("expected room for the 259 ids"), HasSubstr("found ids up to 257 "),
                    HasSubstr("int64")));
}

// Sparse: it takes no room.
TEST_F(Prepare, RefusesTextsThatAreTooLongForADocument) {
  input("a.txt", "");
  const fs::path path = folder_.path() / "in" / "a.txt";
  constexpr auto kMost = uint64_t(std::numeric_limits<int32_t>::max()) - 2;  // BOS and EOS
  fs::resize_file(path, kMost + 1);
  EXPECT_THAT(error(), AllOf(HasSubstr("expected text files of at most 2147483645 bytes"),
                             HasSubstr("found " + path.string() + " with 2147483646"),
                             HasSubstr("split it, or give its parts as JSON lines")));
}

TEST_F(Prepare, SaysWhenAnotherOutputCameInBetween) {
  input("a.txt", "text");
  const std::string message = message_of(
      [&] {
        prepare(options_, [&](int64_t, int64_t) {
          make_directories(options_.output_path);
          write_file_atomic(out("other"), "theirs");
        });
      },
      Status::kUnavailable);
  EXPECT_THAT(message, AllOf(HasSubstr("cannot put "), HasSubstr(" in its place "),
                             HasSubstr(options_.output_path.string() + ": File exists")));
  EXPECT_THAT(names_in(folder_.path()), ElementsAre("in", "out"));
  EXPECT_THAT(names_in(options_.output_path), ElementsAre("other"));
}

TEST_F(Prepare, SaysWhenItCannotWrite) {
  input("a.txt", "text");
  // Room for the name of the output, none for that of the folder it is made in.
  options_.output_path = folder_.path() / std::string(250, 'n');
  EXPECT_THAT(message_of([&] { prepare(options_); }, Status::kUnavailable),
              AllOf(HasSubstr("cannot make the folder "), HasSubstr(".partial."),
                    HasSubstr("File name too long")));
  options_.output_path = "/dev/null/out";
  EXPECT_THAT(message_of([&] { prepare(options_); }), HasSubstr("/dev/null"));
}

}  // namespace
}  // namespace fastllm::data
