#include "core/data/formats/memmap.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "core/data/fingerprint.hpp"
#include "core/data/formats/memmap_writer.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Golden {
  std::string folder, name;
};
const Golden kGoldens[] = {
    {"memmap-v1", "plain"}, {"memmap-v1", "wide"}, {"memmap-v2", "plain"}, {"memmap-v2", "spans"}};

std::vector<Span> spans_of(const json& list) {
  std::vector<Span> spans;
  for (const json& pair : list) spans.push_back({pair[0].get<int64_t>(), pair[1].get<int64_t>()});
  return spans;
}

TEST(Memmap, ReadsTheGoldenFiles) {
  for (const Golden& golden : kGoldens) {
    SCOPED_TRACE(golden.folder + "/" + golden.name);
    json expected = fixture_json(golden.folder + "/expected.json").at(golden.name);
    MemmapDataset dataset(fixture(golden.folder) / golden.name);
    EXPECT_EQ(dataset.version(), expected.at("version").get<int>());
    EXPECT_EQ(int(dataset.token_type()), expected.at("dtype_code").get<int>());
    EXPECT_EQ(dataset.num_documents(), expected.at("num_documents").get<int64_t>());
    EXPECT_EQ(dataset.num_tokens(), expected.at("num_tokens").get<int64_t>());
    EXPECT_EQ(dataset.has_spans(), expected.at("has_spans").get<bool>());
    for (int64_t i = 0; i < dataset.num_documents(); ++i) {
      EXPECT_EQ(read_document(dataset, i),
                expected.at("documents").at(size_t(i)).get<std::vector<int64_t>>());
      EXPECT_EQ(dataset.document_size(i),
                expected.at("document_sizes").at(size_t(i)).get<int64_t>());
    }
    ASSERT_FALSE(expected.at("reads").empty());
    for (const json& read : expected.at("reads")) {
      SCOPED_TRACE(read.dump());
      std::vector<Span> spans;
      int64_t length = read.at("length").is_null() ? -1 : read.at("length").get<int64_t>();
      EXPECT_EQ(read_document(dataset, read.at("document"), read.at("offset"), &spans, length),
                read.at("tokens").get<std::vector<int64_t>>());
      EXPECT_EQ(spans, read.contains("spans") ? spans_of(read.at("spans")) : std::vector<Span>{});
    }
  }
}

class MemmapFiles : public ::testing::Test {
 protected:
  std::filesystem::path prefix() const { return folder_.path() / "x"; }
  // Writes x.idx, and x.bin with that many bytes 0, 1, 2, ...
  void write_raw(const std::string& index, size_t data_bytes) {
    std::string data;
    for (size_t i = 0; i < data_bytes; ++i) data += char(i);
    write_file_atomic(folder_.path() / "x.idx", index);
    write_file_atomic(folder_.path() / "x.bin", data);
  }
  void write(const IndexSpec& spec, size_t data_bytes) { write_raw(index_bytes(spec), data_bytes); }
  std::string open_error(std::optional<Status> status = std::nullopt) {
    return message_of([&] { MemmapDataset dataset(prefix()); }, status);
  }

  TemporaryDirectory folder_;
};

TEST_F(MemmapFiles, ReadsEveryWidthWithNegativeAndUnalignedValues) {
  for (const TokenTypeInfo& type : kTokenTypes) {
    SCOPED_TRACE(type.name);
    std::vector<int64_t> first{type.lowest, type.highest, 0, 1}, second{type.highest};
    MemmapWriter writer(prefix(), type.type);
    writer.add(first);
    writer.add(second);
    writer.finish();
    MemmapDataset dataset(prefix());
    EXPECT_EQ(read_document(dataset, 0), first);
    EXPECT_EQ(read_document(dataset, 1), second);
  }
  // Documents may lie in any order.
  write({.sizes = {2, 1}, .offsets = {2, 0}}, 6);
  MemmapDataset dataset(prefix());
  EXPECT_THAT(read_document(dataset, 0), ElementsAre(0x0302, 0x0504));
  EXPECT_THAT(read_document(dataset, 1), ElementsAre(0x0100));
}

TEST_F(MemmapFiles, AppendsTheSuffixToNamesWithDots) {
  auto dotted = folder_.path() / "wiki.en_v1.2_text_document";
  MemmapWriter writer(dotted, TokenType::kUint16);
  writer.add(std::vector<int64_t>{1, 2, 3});
  writer.finish();
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "wiki.en_v1.2_text_document.idx"));
  EXPECT_EQ(MemmapDataset(dotted).num_tokens(), 3);
}

TEST_F(MemmapFiles, NamesTheFilesThatReplacingTheSuffixWouldHaveMade) {
  MemmapWriter writer(folder_.path() / "wiki.en_v1", TokenType::kUint16);
  writer.add(std::vector<int64_t>{1});
  writer.finish();
  EXPECT_THAT(message_of([&] { MemmapDataset dataset(folder_.path() / "wiki.en_v1.2"); },
                         Status::kNotFound),
              AllOf(HasSubstr("wiki.en_v1.2.idx"),
                    HasSubstr("found " + (folder_.path() / "wiki.en_v1.idx").string()),
                    HasSubstr("give the path " + (folder_.path() / "wiki.en_v1").string())));
}

TEST_F(MemmapFiles, RefusesPathsWithSuffixFoldersAndMissingFiles) {
  EXPECT_THAT(message_of([&] { MemmapDataset dataset("data/wiki.bin"); }, Status::kInvalid),
              AllOf(HasSubstr("found data/wiki.bin"), HasSubstr("write data/wiki")));
  EXPECT_THAT(message_of([&] { MemmapDataset dataset("data/wiki.v2.idx"); }, Status::kInvalid),
              HasSubstr("write data/wiki.v2"));
  EXPECT_THAT(message_of([&] { MemmapDataset dataset("data/"); }, Status::kInvalid),
              HasSubstr("the folder 'data/'"));
  EXPECT_THAT(open_error(Status::kNotFound),
              HasSubstr("found no file " + (folder_.path() / "x.idx").string()));
  write({.sizes = {1}, .offsets = {0}}, 2);
  std::filesystem::remove(folder_.path() / "x.bin");
  EXPECT_THAT(open_error(Status::kNotFound),
              HasSubstr("found no file " + (folder_.path() / "x.bin").string()));
}

TEST_F(MemmapFiles, RefusesOtherVersionsAndFiles) {
  write({.version = 4, .sizes = {2}, .offsets = {0}}, 4);
  EXPECT_THAT(
      open_error(Status::kUnsupported),
      AllOf(HasSubstr("x.idx"),
            HasSubstr("data set version 4; this build reads 1-3; written by a newer tool?")));
  write({.version = 0, .sizes = {2}, .offsets = {0}}, 4);
  EXPECT_THAT(
      open_error(Status::kUnsupported),
      AllOf(HasSubstr("data set version 0; this build reads 1-3"), Not(HasSubstr("newer"))));
  write_raw("something else entirely", 4);
  EXPECT_THAT(open_error(Status::kInvalid), AllOf(HasSubstr("x.idx"), HasSubstr("MMIDIDX")));
  write_raw("", 4);
  EXPECT_THAT(open_error(Status::kInvalid), HasSubstr("MMIDIDX"));
}

TEST_F(MemmapFiles, RefusesFloatAndUnknownTypesListingTheLegalOnes) {
  for (int code : {0, 6, 7, 9, 255}) {
    write({.code = uint8_t(code), .sizes = {2}, .offsets = {0}}, 16);
    std::string message = open_error(Status::kInvalid);
    EXPECT_THAT(message, AllOf(HasSubstr("x.idx"), HasSubstr("found " + std::to_string(code)),
                               HasSubstr("1 uint8, 2 int8, 3 int16, 4 int32, 5 int64, 8 uint16")));
    EXPECT_EQ(message.find("floating-point") != std::string::npos, code == 6 || code == 7);
  }
}

TEST_F(MemmapFiles, SaysBothSizesWhenTheTokensAreCut) {
  write({.sizes = {100, 100}, .offsets = {0, 200}}, 300);
  EXPECT_THAT(
      open_error(Status::kDataLoss),
      AllOf(HasSubstr("at least 400 bytes"), HasSubstr("x.bin"), HasSubstr("found 300 bytes")));
}

TEST_F(MemmapFiles, BelievesNoCountTheFileCannotHold) {
  for (uint64_t count : {uint64_t(1) << 40, uint64_t(3), UINT64_MAX, UINT64_MAX / 12 + 1}) {
    write({.sizes = {1, 1}, .offsets = {0, 2}, .count = count}, 4);
    // Three documents of 12 bytes just fit where the last table is; one of them is then too large for the tokens.
    EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("copy or prepare")) << count;
  }
  write_raw(index_bytes({.sizes = {1}, .offsets = {0}}).substr(0, 20), 4);
  EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("header of at least"));
}

TEST_F(MemmapFiles, RefusesImpossibleSizesAndOffsets) {
  write({.sizes = {-1}, .offsets = {0}}, 4);
  EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("document 0"));
  write({.sizes = {1, 1}, .offsets = {0, -2}}, 4);
  EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("document 1"));
  write({.sizes = {1}, .offsets = {INT64_MAX}}, 4);
  EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("document 0"));
  write({.sizes = {2}, .offsets = {2}}, 4);
  EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("at least 6 bytes"));
  write({.sizes = {2, 1}, .offsets = {1, 0}}, 6);
  EXPECT_THAT(open_error(Status::kDataLoss),
              HasSubstr("document 0 to be a multiple of 2 bytes, found 1"));
}

TEST_F(MemmapFiles, KeepsEmptyDocumentsAndRefusesSetsWithoutTokens) {
  write({.sizes = {0, 2, 0}, .offsets = {0, 0, 4}}, 4);
  MemmapDataset dataset(prefix());
  EXPECT_EQ(dataset.num_documents(), 3);
  EXPECT_THAT(read_document(dataset, 2), IsEmpty());
  write(IndexSpec{}, 0);
  EXPECT_THAT(open_error(Status::kInvalid), HasSubstr("found 0 documents and no token"));
  write({.sizes = {0, 0}, .offsets = {0, 0}}, 0);
  EXPECT_THAT(open_error(Status::kInvalid), HasSubstr("found 2 documents and no token"));
}

TEST_F(MemmapFiles, ChecksExpectedCounts) {
  write({.sizes = {1, 2}, .offsets = {0, 2}}, 6);
  auto open = [&](MemmapExpectations expected, size_t bytes = 6) {
    write({.sizes = {1, 2}, .offsets = {0, 2}}, bytes);
    return message_of([&] { MemmapDataset dataset(prefix(), expected); });
  };
  EXPECT_EQ(open({2, 3}), "(no error)");
  EXPECT_THAT(open({3, {}}), HasSubstr("expected 3 documents"));
  EXPECT_THAT(open({{}, 4}),
              AllOf(HasSubstr("expected 4 tokens of 2 bytes"), HasSubstr("found 6 bytes")));
  EXPECT_THAT(open({{}, 3}, 7), HasSubstr("found 7 bytes"));  // the division must be exact
  EXPECT_THAT(open({{}, 3}, 8), HasSubstr("found 8 bytes"));
  EXPECT_EQ(open({}, 8), "(no error)");
}

TEST_F(MemmapFiles, ReadsVersion3) {
  // Loss-masking spans only: as version 2. Counts 1, 0 and one pair.
  write({.version = 3,
         .sizes = {2, 1},
         .offsets = {0, 4},
         .flags = {1, 0},
         .after_offsets = {1, 0, 0, 1}},
        6);
  MemmapDataset masked(prefix());
  std::vector<Span> spans;
  EXPECT_THAT(read_document(masked, 0, 0, &spans), ElementsAre(0x0100, 0x0302));
  EXPECT_THAT(spans, ElementsAre(Span{0, 1}));
  EXPECT_FALSE(masked.has_preference_spans());
  // Preference spans only: chosen pairs, then rejected ones.
  write({.version = 3,
         .sizes = {2, 1},
         .offsets = {0, 4},
         .flags = {0, 1},
         .after_offsets = {0, 0, 1, 2, 3, 4, 5, 6}},
        6);
  MemmapDataset preferred(prefix());
  EXPECT_FALSE(preferred.has_spans());
  ASSERT_TRUE(preferred.has_preference_spans());
  EXPECT_EQ(preferred.chosen_span(1), (Span{1, 2}));
  EXPECT_EQ(preferred.rejected_span(0), (Span{3, 4}));
  EXPECT_EQ(preferred.rejected_span(1), (Span{5, 6}));
  EXPECT_THAT(read_document(preferred, 1), ElementsAre(0x0504));
  // Neither, and both.
  write({.version = 3, .sizes = {1}, .offsets = {0}, .flags = {0, 0}}, 2);
  EXPECT_EQ(MemmapDataset(prefix()).num_tokens(), 1);
  write(
      {.version = 3, .sizes = {1}, .offsets = {0}, .flags = {1, 1}, .after_offsets = {0, 0, 0, 0}},
      2);
  EXPECT_THAT(open_error(Status::kUnsupported), HasSubstr("both flags set"));
  // Preference pairs cut, and a flag that is none.
  std::string cut = index_bytes({.version = 3, .sizes = {1}, .offsets = {0}, .flags = {0, 1}});
  write_raw(cut.substr(0, cut.size() - 8), 2);
  EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("preference spans"));
  write({.version = 2, .sizes = {1}, .offsets = {0}, .flags = {2}}, 2);
  EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("expected 0 or 1"));
}

TEST_F(MemmapFiles, ChecksSpanTables) {
  auto open_with = [&](std::vector<int32_t> tables) {
    write({.version = 2,
           .sizes = {2, 1},
           .offsets = {0, 4},
           .flags = {1},
           .after_offsets = std::move(tables)},
          6);
    return open_error();
  };
  EXPECT_EQ(open_with({1, 1, 0, 0, 0, 0}), "(no error)");
  EXPECT_THAT(open_with({1, -1, 0, 0}), HasSubstr("document 1, found -1"));
  EXPECT_THAT(open_with({INT32_MAX, INT32_MAX, 0, 0}), HasSubstr("loss-masking spans"));
  std::string cut = index_bytes(
      {.version = 2, .sizes = {2, 1}, .offsets = {0, 4}, .flags = {1}, .after_offsets = {}});
  write_raw(cut.substr(0, cut.size() - 20), 6);
  EXPECT_THAT(open_error(Status::kDataLoss), HasSubstr("span counts"));
  // The reference leaves counts behind when all lists are empty and the flag is 0: nobody reads them.
  write({.version = 2, .sizes = {2, 1}, .offsets = {0, 4}, .flags = {0}, .after_offsets = {0, 0}},
        6);
  EXPECT_FALSE(MemmapDataset(prefix()).has_spans());
}

TEST_F(MemmapFiles, FindsTheSpansOfDocumentsFarIn) {
  // More documents than one step of the table of span positions; document i has i % 3 one-token spans.
  MemmapWriter writer(prefix(), TokenType::kInt32);
  auto spans_of_document = [](int64_t i) {
    std::vector<Span> spans;
    for (int64_t s = 0; s < i % 3; ++s) spans.push_back({s, s});
    return spans;
  };
  for (int64_t i = 0; i < 300; ++i) writer.add(std::vector<int64_t>{i, i, i}, spans_of_document(i));
  writer.finish();
  MemmapDataset dataset(prefix());
  for (int64_t i = 0; i < 300; ++i) {
    std::vector<Span> spans;
    read_document(dataset, i, 0, &spans);
    EXPECT_EQ(spans, spans_of_document(i)) << i;
  }
}

TEST_F(MemmapFiles, RefusesReadsOutsideTheDocument) {
  write({.sizes = {2, 2}, .offsets = {0, 4}}, 8);
  MemmapDataset dataset(prefix());
  std::vector<int64_t> tokens(2);
  auto read = [&](int64_t document, int64_t offset, size_t length) {
    return message_of(
        [&] { dataset.get(document, offset, std::span(tokens).first(length), nullptr); },
        Status::kInvalid);
  };
  EXPECT_THAT(read(0, 1, 2),
              AllOf(HasSubstr("2 tokens of document 0"), HasSubstr("found 2 tokens from 1")));
  EXPECT_THAT(read(0, -1, 1), HasSubstr("from -1"));
  EXPECT_THAT(read(0, 3, 0), HasSubstr("from 3"));
  EXPECT_THAT(read(0, INT64_MAX, 2), HasSubstr("found 2 tokens from"));
  EXPECT_THAT(read(2, 0, 1), HasSubstr("expected a document from 0 to 1"));
  EXPECT_THAT(read(-1, 0, 1), HasSubstr("expected a document from 0 to 1"));
  EXPECT_EQ(read(1, 2, 0), "(no error)");
}

TEST_F(MemmapFiles, FingerprintsChangeWithTheFiles) {
  write({.sizes = {1, 2}, .offsets = {0, 2}}, 6);
  auto before = MemmapDataset(prefix()).fingerprints();
  ASSERT_EQ(before.size(), 2u);
  std::string index = read_file(folder_.path() / "x.idx"),
              data = read_file(folder_.path() / "x.bin");
  EXPECT_EQ(before[0], (folder_.path() / "x.idx").string() + ": " + std::to_string(index.size()) +
                           " bytes, sha256 " + sha256_hex(index));
  data.back() ^= 1;
  write_file_atomic(folder_.path() / "x.bin", data);
  auto after = MemmapDataset(prefix()).fingerprints();
  EXPECT_EQ(before[0], after[0]);
  EXPECT_NE(before[1], after[1]);
}

// Hashing costs as much as reading: once for as long as the files are open.
TEST_F(MemmapFiles, HashesOnce) {
  write({.sizes = {1, 2}, .offsets = {0, 2}}, 6);
  const MemmapDataset dataset(prefix());
  const auto before = dataset.fingerprints();
  {
    std::fstream tokens(folder_.path() / "x.bin", std::ios::in | std::ios::out);
    tokens.put('!');  // in place: the map shows it
  }
  EXPECT_EQ(dataset.fingerprints(), before);
  EXPECT_NE(MemmapDataset(prefix()).fingerprints(), before);
}

// As of the tokens: of a large index too, blocks are hashed.
TEST_F(MemmapFiles, SamplesALargeIndex) {
  IndexSpec spec;
  spec.sizes.assign(900'000, 1);  // 20 bytes each
  spec.offsets.assign(spec.sizes.size(), 0);
  write(spec, 8);
  const std::string index = read_file(folder_.path() / "x.idx");
  EXPECT_EQ(
      MemmapDataset(prefix()).fingerprints()[0],
      fingerprint_sampled((folder_.path() / "x.idx").string(), std::as_bytes(std::span(index))));
  EXPECT_THAT(MemmapDataset(prefix()).fingerprints()[0], HasSubstr("sha256 of 16 sampled blocks"));
}

}  // namespace
}  // namespace fastllm::data
