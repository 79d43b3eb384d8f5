// The later one-file format: the golden files read and written byte for byte, and each claim a file
// makes about itself turned into a lie.
#include "core/data/formats/dataset_file.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "core/data/formats/dataset_file_writer.hpp"
#include "core/data/formats/memmap.hpp"
#include "core/data/formats/open_memmap.hpp"
#include "core/data/prepare/prepare.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/unit/data/formats/round_trip.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char* const kNames[] = {"plain", "spans"};

fs::path golden_path(const std::string& name) {
  return fixture("memmap-e2/" + name + ".fast_llm_dataset");
}

void write(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::vector<Span> spans_of(const json& half_open) {
  std::vector<Span> spans;
  for (const json& range : half_open)
    spans.push_back({range[0].get<int64_t>(), range[1].get<int64_t>() - 1});
  return spans;
}

TEST(DatasetFile, ReadsTheGoldenFiles) {
  json goldens = fixture_json("memmap-e2/expected.json");
  ASSERT_EQ(goldens.size(), std::size(kNames));
  for (const auto& [name, golden] : goldens.items()) {
    SCOPED_TRACE(name);
    DatasetFile dataset(golden_path(name));
    EXPECT_EQ(dataset.token_type(), find_token_type(golden.at("dtype").get<std::string>())->type);
    ASSERT_EQ(dataset.num_documents(), int64_t(golden.at("documents").size()));
    EXPECT_EQ(dataset.has_spans(), !golden.at("spans").is_null());
    EXPECT_EQ(int64_t(fs::file_size(golden_path(name))), golden.at("size"));
    int64_t tokens = 0;
    for (int64_t i = 0; i < dataset.num_documents(); ++i) {
      std::vector<Span> spans;
      EXPECT_EQ(read_document(dataset, i, 0, &spans),
                golden.at("documents").at(size_t(i)).get<std::vector<int64_t>>());
      if (dataset.has_spans()) {
        EXPECT_EQ(spans, spans_of(golden.at("spans").at(size_t(i))));
      }
      tokens += dataset.document_size(i);
    }
    EXPECT_EQ(dataset.num_tokens(), tokens);
    EXPECT_THAT(dataset.locate(1), HasSubstr("document 1 of " + golden_path(name).string()));
    EXPECT_THAT(dataset.fingerprints(),
                ElementsAre(HasSubstr(name + ".fast_llm_dataset: " + golden.at("size").dump())));
  }
}

TEST(DatasetFile, ClipsSpansToWhatIsRead) {
  DatasetFile dataset(golden_path("spans"));
  // Document 2 has 8 tokens and the spans 0 to 3 and 6 to 7.
  auto read = [&](int64_t offset, int64_t length) {
    std::vector<Span> spans{{77, 78}};  // of an earlier piece, left alone
    read_document(dataset, 2, offset, &spans, length);
    spans.erase(spans.begin());
    return spans;
  };
  EXPECT_THAT(read(0, 8), ElementsAre(Span{0, 3}, Span{6, 7}));
  EXPECT_THAT(read(2, 3), ElementsAre(Span{0, 1}));
  EXPECT_THAT(read(3, 4), ElementsAre(Span{0, 0}, Span{3, 3}));
  EXPECT_THAT(read(4, 2), IsEmpty());
  EXPECT_THAT(read(4, 0), IsEmpty());
  EXPECT_THAT(message_of([&] { read(5, 4); }, Status::kInvalid),
              HasSubstr("expected a range inside the 8 tokens of document 2"));
  EXPECT_THAT(message_of([&] { dataset.document_size(4); }, Status::kInvalid),
              HasSubstr("expected a document from 0 to 3"));
}

TEST(DatasetFileWriter, WritesTheGoldenFilesByteForByte) {
  json goldens = fixture_json("memmap-e2/expected.json");
  for (const auto& [name, golden] : goldens.items()) {
    SCOPED_TRACE(name);
    TemporaryDirectory folder;
    fs::path path = folder.path() / "deep" / (name + ".fast_llm_dataset");
    DatasetFileWriter writer(path, find_token_type(golden.at("dtype").get<std::string>())->type);
    for (size_t i = 0; i < golden.at("documents").size(); ++i) {
      std::optional<std::vector<Span>> spans;
      if (!golden.at("spans").is_null()) spans = spans_of(golden.at("spans").at(i));
      writer.add(golden.at("documents").at(i).get<std::vector<int64_t>>(), spans);
    }
    EXPECT_FALSE(fs::exists(path));
    writer.finish();
    EXPECT_EQ(read_file(path), read_file(golden_path(name)));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "deep"), {}), 1);
  }
}

TEST(DatasetFileWriter, ReadsBackEveryTypeAndEmptyDocuments) {
  for (const TokenTypeInfo& type : kTokenTypes) {
    SCOPED_TRACE(type.name);
    TemporaryDirectory folder;
    fs::path path = folder.path() / "x.fast_llm_dataset";
    DatasetFileWriter writer(path, type.type);
    std::vector<std::vector<int64_t>> documents{{type.lowest, type.highest}, {}, {1}, {}};
    for (const auto& document : documents) writer.add(document, std::vector<Span>{});
    writer.finish();
    DatasetFile dataset(path, {.num_documents = 4, .num_tokens = 3});
    EXPECT_TRUE(dataset.has_spans());
    for (size_t i = 0; i < documents.size(); ++i) {
      std::vector<Span> spans;
      EXPECT_EQ(read_document(dataset, int64_t(i), 0, &spans), documents[i]);
      EXPECT_THAT(spans, IsEmpty());
    }
  }
}

TEST(DatasetFileWriter, GivesBackEveryDocumentOfEveryType) {
  expect_round_trips<DatasetFileWriter, DatasetFile>("x.fast_llm_dataset");
}

TEST(DatasetFileWriter, RefusesWhatTheFormatCannotHold) {
  TemporaryDirectory folder;
  EXPECT_THAT(message_of([&] { DatasetFileWriter(folder.path() / "x", TokenType::kInt16); },
                         Status::kInvalid),
              HasSubstr("x.fast_llm_dataset"));
  {
    DatasetFileWriter writer(folder.path() / "x.fast_llm_dataset", TokenType::kInt16);
    EXPECT_THAT(message_of([&] { writer.finish(); }, Status::kInvalid),
                HasSubstr("at least one document"));
    auto add = [&](std::vector<int64_t> tokens, std::optional<std::vector<Span>> spans) {
      return message_of([&] { writer.add(tokens, spans); }, Status::kInvalid);
    };
    EXPECT_THAT(add({40000}, {}), HasSubstr("-32768 to 32767 (int16) in document 0"));
    EXPECT_THAT(add({1}, {{{0, 1}}}), HasSubstr("expected a span inside the 1 tokens"));
    writer.add(std::vector<int64_t>{1});
    EXPECT_THAT(add({1}, {{{0, 0}}}), HasSubstr("found document 1 with one"));
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));  // nothing stays unfinished
}

// What prepare writes is what the writer writes, shard by shard, spans where a shard has some.
TEST(DatasetFileWriter, IsWhatPrepareWritesWithOneFile) {
  TemporaryDirectory folder;
  std::string lines;
  for (int i = 0; i < 700; ++i) {
    lines += "{\"text\": \"" + std::string(size_t(200 + i), char('a' + i % 26)) + "\"" +
             (i < 10 ? ", \"loss_masking_spans\": [[0, 4], [9, 9]]}\n" : "}\n");
  }
  write_file_atomic(folder.path() / "in.jsonl", lines);
  PrepareOptions options;
  options.inputs = {(folder.path() / "in.jsonl").string()};
  options.tokens_per_shard = 100'000;
  auto prepared = [&](const char* name, bool one_file) {
    options.output_path = folder.path() / name;
    options.one_file = one_file;
    return prepare(options);
  };
  const PrepareReport pairs = prepared("pairs", false), files = prepared("files", true);
  ASSERT_EQ(files.shards.size(), pairs.shards.size());
  ASSERT_GT(files.shards.size(), 2u);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path() / "files"), {}),
            ptrdiff_t(files.shards.size()) + 1);  // and the definition
  EXPECT_THAT(read_file(files.configurations.at(0)), HasSubstr("path: shard_0_0.fast_llm_dataset"));
  int with_spans = 0;
  for (size_t shard = 0; shard < files.shards.size(); ++shard) {
    MemmapDataset pair(pairs.shards[shard]);
    fs::path again = folder.path() / "again.fast_llm_dataset";
    DatasetFileWriter writer(again, pair.token_type());
    for (int64_t i = 0; i < pair.num_documents(); ++i) {
      std::vector<Span> spans;
      auto tokens = read_document(pair, i, 0, &spans);
      writer.add(tokens, pair.has_spans() ? std::optional(spans) : std::nullopt);
    }
    writer.finish();
    EXPECT_EQ(read_file(files.shards[shard]), read_file(again)) << shard;
    with_spans += DatasetFile(files.shards[shard]).has_spans();
  }
  EXPECT_EQ(with_spans, 1);
}

// ---------------------------------------------------------------- lies

// The golden file with spans, with its configuration or its bytes changed.
class Lies : public ::testing::Test {
 protected:
  Lies() : bytes(read_file(golden_path("spans"))) {
    for (size_t i = 25; i < 33; ++i) end = end << 8 | uint8_t(bytes[i]);
    configuration = ordered_json::parse(bytes.substr(end + 4));
  }
  std::string with_configuration(const std::string& text) const {
    std::string file = bytes.substr(0, end);
    for (int shift : {24, 16, 8, 0}) file += char(text.size() >> shift);
    return file + text;
  }
  std::string open(const std::string& file, std::optional<Status> status = std::nullopt) const {
    fs::path path = folder.path() / "x.fast_llm_dataset";
    write(path, file);
    std::string message = message_of([&] { DatasetFile dataset(path); }, status);
    if (message != "(no error)") {
      EXPECT_THAT(message, HasSubstr(path.string()));
    }
    return message;
  }
  std::string change(const std::function<void(ordered_json&)>& lie,
                     Status status = Status::kDataLoss) const {
    ordered_json lying = configuration;
    lie(lying);
    return open(with_configuration(lying.dump()), status);
  }
  std::string set(const std::string& pointer, const ordered_json& value,
                  Status status = Status::kDataLoss) const {
    return change([&](auto& c) { c[ordered_json::json_pointer(pointer)] = value; }, status);
  }
  std::string poke(size_t at, const std::string& with) const {
    std::string file = bytes;
    file.replace(at, with.size(), with);
    return open(file, Status::kDataLoss);
  }

  TemporaryDirectory folder;
  std::string bytes;
  uint64_t end = 0;  // where the configuration begins
  ordered_json configuration;
};

TEST_F(Lies, TheTruthOpens) {
  EXPECT_EQ(open(bytes), "(no error)");
  EXPECT_EQ(open(with_configuration(configuration.dump(2))), "(no error)");
  // Parts that are absent need not be named, nor need later ones.
  EXPECT_EQ(change([](auto& c) { c.erase("advantages"); }), "(no error)");
  EXPECT_EQ(set("/audio", {{"type", "none"}}), "(no error)");
}

TEST_F(Lies, OfTheHeader) {
  EXPECT_THAT(open("MMIDIDX", Status::kInvalid), HasSubstr("expected a prepared dataset"));
  EXPECT_THAT(open("", Status::kInvalid), HasSubstr("expected a prepared dataset"));
  EXPECT_THAT(open(bytes.substr(0, 30), Status::kDataLoss), HasSubstr("a header of 33 bytes"));
  EXPECT_THAT(poke(25, std::string(8, '\0')), HasSubstr("was it never finished?"));
  EXPECT_THAT(poke(25, std::string(8, '\xFF')),
              HasSubstr("its offset 18446744073709551615 in a file of 664 bytes"));
  // Big-endian: the same number the other way round is far outside.
  std::string reversed(bytes.rbegin() + ptrdiff_t(bytes.size() - 33),
                       bytes.rbegin() + ptrdiff_t(bytes.size() - 25));
  EXPECT_THAT(poke(25, reversed), HasSubstr("inside the file"));
  for (size_t cut : {end - 1, end + 2, end + 4, bytes.size() - 1})
    EXPECT_THAT(open(bytes.substr(0, cut), Status::kDataLoss), HasSubstr("cut or damaged"));
  EXPECT_THAT(open(bytes + "x", Status::kDataLoss), HasSubstr("a configuration of 449 bytes"));
  EXPECT_THAT(open(with_configuration("[1]"), Status::kDataLoss), HasSubstr("in JSON"));
  EXPECT_THAT(open(with_configuration("{"), Status::kDataLoss), HasSubstr("in JSON"));
  std::string deep(100000, '[');
  EXPECT_THAT(open(with_configuration(R"({"type":)" + deep + std::string(100000, ']') + "}"),
                   Status::kDataLoss),
              HasSubstr("expected a type"));
}

TEST_F(Lies, OfBlocks) {
  EXPECT_THAT(set("/type", "image", Status::kUnsupported),
              HasSubstr("expected the dataset of type language_model, found type image"));
  EXPECT_THAT(set("/tokens/type", "none", Status::kUnsupported), HasSubstr("found type none"));
  EXPECT_THAT(change([](auto& c) { c.erase("tokens"); }, Status::kUnsupported),
              HasSubstr("expected tokens of type token, found type none"));
  EXPECT_THAT(set("/tokens", 3), HasSubstr("expected a block for tokens"));
  EXPECT_THAT(change([](auto& c) { c["tokens"].erase("type"); }),
              HasSubstr("expected a type for tokens"));
  EXPECT_THAT(set("/end", 210), HasSubstr("the words 'lm begin' and 'lm end'"));
  EXPECT_THAT(set("/begin", 34), HasSubstr("'lm begin'"));
  EXPECT_THAT(set("/end", 1e18), HasSubstr("expected a number from 0 up for end of the dataset"));
  EXPECT_THAT(set("/end", uint64_t(1) << 60), HasSubstr("expected the dataset between 33 and 211"));
  EXPECT_THAT(set("/tokens/begin", 133), HasSubstr("expected tokens between"));
  EXPECT_THAT(set("/tokens/begin", -1),
              HasSubstr("expected a number from 0 up for begin of tokens"));
  EXPECT_THAT(set("/tokens/end", 132), HasSubstr("the words 'token begin' and 'token end'"));
  EXPECT_THAT(change([](auto& c) {
                c["loss_masking_spans"] = {{"type", "none"}};
              }),
              HasSubstr("expected the dataset's parts to end at 205, found them end at 133"));
  EXPECT_THAT(change([](auto& c) { c["chosen_spans"] = c["loss_masking_spans"]; }),
              HasSubstr("expected chosen_spans to begin at 205, where the part before ends, found "
                        "133"));
  EXPECT_THAT(change([](auto& c) { std::swap(c["loss_masking_spans"], c["chosen_spans"]); }),
              HasSubstr("expected chosen_spans and rejected_spans or none of them"));
  EXPECT_THAT(poke(end - 1, "D"), HasSubstr("'lm end'"));
}

TEST_F(Lies, OfSizes) {
  const auto huge = uint64_t(1) << 62;
  for (auto count : {uint64_t(0), uint64_t(15), uint64_t(17), huge, UINT64_MAX})
    EXPECT_THAT(set("/tokens/num_tokens", count), HasSubstr("expected tokens of ")) << count;
  for (auto count : {uint64_t(0), uint64_t(3), uint64_t(5), huge, UINT64_MAX})
    EXPECT_THAT(set("/tokens/num_documents", count), HasSubstr("documents, found")) << count;
  EXPECT_THAT(set("/tokens/data_type", "int32"), HasSubstr("16 values of 4 bytes"));
  for (const ordered_json& type :
       {ordered_json("float32"), ordered_json("int128"), ordered_json(3), ordered_json::array()})
    EXPECT_THAT(set("/tokens/data_type", type, Status::kInvalid),
                HasSubstr("expected tokens of type uint8, int8, int16, int32, int64, uint16"));
  EXPECT_THAT(change([](auto& c) { c["tokens"].erase("data_type"); }, Status::kInvalid),
              HasSubstr("found none"));
  EXPECT_THAT(set("/loss_masking_spans/num_documents", 3),
              HasSubstr("expected 4 documents in loss_masking_spans"));
  for (auto count : {uint64_t(3), uint64_t(5), huge, UINT64_MAX})
    EXPECT_THAT(set("/loss_masking_spans/num_ranges", count),
                HasSubstr("expected loss_masking_spans of"))
        << count;
}

TEST_F(Lies, OfTables) {
  // Sums of tokens at 84: 0 5 7 15 16; sums of ranges at 176: 0 2 2 4 4.
  auto number = [](int64_t value, size_t size) {
    return std::string(reinterpret_cast<const char*>(&value), size);
  };
  EXPECT_THAT(poke(84, number(1, 8)), HasSubstr("rise from 0 to 16, found 1 at 0"));
  EXPECT_THAT(poke(92, number(-1, 8)), HasSubstr("found -1 at 1"));
  EXPECT_THAT(poke(92, number(8, 8)), HasSubstr("found 7 at 2"));
  EXPECT_THAT(poke(92, number(INT64_MAX, 8)), HasSubstr("at 1"));
  EXPECT_THAT(poke(116, number(15, 8)), HasSubstr("found 15 at 4"));
  EXPECT_THAT(poke(180, number(5, 4)), HasSubstr("the sums of loss_masking_spans"));
  EXPECT_THAT(poke(192, number(3, 4)), HasSubstr("found 3 at 4"));
  // Ranges themselves are clipped to what is read: no lie in them leads outside.
  std::string file = bytes;
  file.replace(144, 8, number(INT64_MIN, 8));  // begin 0, end -2^31: empty
  file.replace(152, 4, number(-5, 4));
  file.replace(156, 4, number(INT32_MAX, 4));
  ASSERT_EQ(open(file), "(no error)");
  DatasetFile dataset(folder.path() / "x.fast_llm_dataset");
  std::vector<Span> spans;
  read_document(dataset, 0, 1, &spans);
  EXPECT_THAT(spans, ElementsAre(Span{0, 3}));
}

TEST_F(Lies, EmptyOnesAreRefused) {
  DatasetFileWriter writer(folder.path() / "empty.fast_llm_dataset", TokenType::kInt16);
  writer.add(std::vector<int64_t>{});
  writer.finish();
  EXPECT_THAT(
      message_of([&] { DatasetFile(folder.path() / "empty.fast_llm_dataset"); }, Status::kInvalid),
      HasSubstr("found 1 documents and no token"));
}

// A file of one document 1 2 3 with further parts after its tokens, each {name, kind words, content,
// description}.
struct Part {
  std::string name, word, content;
  ordered_json description;
};
std::string file_with(const std::vector<Part>& parts) {
  Bytes file;
  auto append = [](std::string& to, const auto& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  std::string body = "fast_llm_prepared_dataset" + std::string(8, '\0') + "lm begin";
  ordered_json configuration{{"type", "language_model"}, {"begin", 33}};
  auto block = [&](const std::string& word, const std::string& content, ordered_json& described) {
    described["begin"] = body.size();
    body += word + " begin" + content + word + " end";
    described["end"] = body.size();
  };
  std::string tokens("\1\2\3", 3);
  append(tokens, int64_t(0));
  append(tokens, int64_t(3));
  configuration["tokens"] = {
      {"type", "token"}, {"num_documents", 1}, {"num_tokens", 3}, {"data_type", "uint8"}};
  block("token", tokens, configuration["tokens"]);
  for (const Part& part : parts) {
    configuration[part.name] = part.description;
    block(part.word, part.content, configuration[part.name]);
  }
  body += "lm end";
  configuration["end"] = body.size();
  for (int i = 0; i < 8; ++i) body[size_t(32 - i)] = char(uint64_t(configuration["end"]) >> 8 * i);
  std::string text = configuration.dump();
  for (int shift : {24, 16, 8, 0}) body += char(text.size() >> shift);
  return body + text;
}

Part ranges(const std::string& name, std::vector<int32_t> numbers) {
  std::string content(reinterpret_cast<const char*>(numbers.data()), 4 * numbers.size());
  return {name,
          "range",
          content,
          {{"type", "range"}, {"num_documents", 1}, {"num_ranges", (numbers.size() - 2) / 2}}};
}

Part values(const std::string& name, const std::string& type, ordered_json shape, size_t bytes) {
  std::string content(3 * bytes, 'v');
  for (int64_t sum : {0, 3}) content.append(reinterpret_cast<const char*>(&sum), 8);
  return {name,
          "token data",
          content,
          {{"type", "token_data"},
           {"num_documents", 1},
           {"num_tokens", 3},
           {"shape", shape},
           {"data_type", type}}};
}

TEST_F(Lies, PartsWithoutAUseAreKeptAndTold) {
  const test::CapturedLog log;
  ASSERT_EQ(
      open(file_with({ranges("chosen_spans", {0, 1, 0, 1}), ranges("rejected_spans", {1, 3, 0, 1}),
                      values("advantages", "float32", ordered_json::array(), 4),
                      values("old_log_probabilities", "bfloat16", {2, 3}, 12)})),
      "(no error)");
  EXPECT_THAT(log.text(),
              HasSubstr("preference spans, advantages, old_log_probabilities are not used by GPT "
                        "training"));
  DatasetFile dataset(folder.path() / "x.fast_llm_dataset");
  EXPECT_FALSE(dataset.has_spans());
  ASSERT_TRUE(dataset.has_preference_spans());
  EXPECT_THAT(dataset.chosen_spans(0), ElementsAre(Span{0, 0}));
  EXPECT_THAT(dataset.rejected_spans(0), ElementsAre(Span{1, 2}));
  std::vector<Span> spans;
  EXPECT_THAT(read_document(dataset, 0, 1, &spans), ElementsAre(2, 3));
  EXPECT_THAT(spans, IsEmpty());
}

TEST_F(Lies, PartsThatChangeTheMeaningAreRefused) {
  Part image = values("image_patches", "uint8", {3}, 3);
  image.description["type"] = "patch";
  EXPECT_THAT(open(file_with({image}), Status::kUnsupported),
              AllOf(HasSubstr("found image patches"), HasSubstr("without images")));
  EXPECT_THAT(open(file_with({values("audio", "uint8", {3}, 3)})), HasSubstr("audio"));
  EXPECT_THAT(set("/audio", {{"type", "sound"}}, Status::kUnsupported),
              HasSubstr("expected the parts that this build knows, found audio"));
  for (const auto& [type, shape] : std::vector<std::pair<std::string, ordered_json>>{
           {"text", {1}}, {"float32", 3}, {"float32", {-1}}, {"int64", {uint64_t(1) << 62}}})
    EXPECT_THAT(open(file_with({values("advantages", type, shape, 4)}), Status::kDataLoss),
                HasSubstr("expected a data type and a shape for advantages"));
  EXPECT_THAT(open(file_with({values("advantages", "float32", {1}, 5)}), Status::kDataLoss),
              HasSubstr("expected advantages of 3 values of 4 bytes"));
}

TEST_F(Lies, WhatTheConfigurationExpectsIsCompared) {
  auto open_with = [&](const MemmapExpectations& expected) {
    return message_of([&] { DatasetFile(golden_path("spans"), expected); }, Status::kInvalid);
  };
  EXPECT_EQ(open_with({.num_documents = 4, .num_tokens = 16}), "(no error)");
  EXPECT_THAT(
      open_with({.num_documents = 5, .num_tokens = {}}),
      AllOf(HasSubstr("expected 5 documents"), HasSubstr("found 4; correct num_documents")));
  EXPECT_THAT(open_with({.num_documents = {}, .num_tokens = 7}),
              AllOf(HasSubstr("expected 7 tokens"), HasSubstr("found 16; correct num_tokens")));
}

// ---------------------------------------------------------------- what a path names

TEST(OpenMemmap, TakesAFileOrAPair) {
  TemporaryDirectory folder;
  auto open = [&](const std::string& name) { return open_memmap(folder.path() / name); };
  fs::copy(golden_path("plain"), folder.path() / "new.fast_llm_dataset");
  fs::copy(golden_path("plain"), folder.path() / "renamed");
  for (const char* suffix : {".idx", ".bin"}) {
    fs::copy(fixture(std::string("memmap-v2/spans") + suffix),
             folder.path() / ("pair" + std::string(suffix)));
    fs::copy(fixture(std::string("memmap-v2/spans") + suffix),
             folder.path() / ("odd.fast_llm_dataset" + std::string(suffix)));
  }
  write(folder.path() / "pair", "something else, of that name");
  EXPECT_EQ(open("new.fast_llm_dataset")->num_documents(), 3);
  EXPECT_EQ(open("renamed")->num_documents(), 3);
  EXPECT_EQ(open("pair")->num_documents(), 4);
  EXPECT_EQ(open("odd.fast_llm_dataset")->num_documents(), 4);
}

// Opening a pipe would wait for a writer that never comes.
TEST(OpenMemmap, RefusesAPipe) {
  TemporaryDirectory folder;
  const fs::path path = folder.path() / "p.fast_llm_dataset";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(message_of([&] { open_memmap(path); }, Status::kInvalid),
              HasSubstr("expected a regular file at " + path.string() + ", found a pipe"));
  EXPECT_THAT(message_of([&] { open_memmap(folder.path() / "p"); }),
              HasSubstr(folder.path().string()));
}

TEST(OpenMemmap, SaysWhatWouldFit) {
  TemporaryDirectory folder;
  auto error = [&](const std::string& name, Status status) {
    return message_of([&] { open_memmap(folder.path() / name); }, status);
  };
  fs::copy(golden_path("plain"), folder.path() / "new.fast_llm_dataset");
  EXPECT_THAT(error("new", Status::kNotFound), HasSubstr("new.fast_llm_dataset; give that path"));
  EXPECT_THAT(error("none.fast_llm_dataset", Status::kNotFound), HasSubstr("no such file"));
  EXPECT_THAT(error("none", Status::kNotFound), HasSubstr("none.idx"));
  write(folder.path() / "bad.fast_llm_dataset", "text");
  EXPECT_THAT(error("bad.fast_llm_dataset", Status::kInvalid), HasSubstr("a prepared dataset"));
}

}  // namespace
}  // namespace fastllm::data
