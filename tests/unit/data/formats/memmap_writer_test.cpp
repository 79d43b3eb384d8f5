#include "core/data/formats/memmap_writer.hpp"

#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/unit/data/formats/round_trip.hpp"

namespace fastllm::data {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

size_t entries(const std::filesystem::path& folder) {
  return size_t(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST(MemmapWriter, WritesTheGoldenFilesByteForByte) {
  json goldens = fixture_json("memmap-v2/expected.json");
  ASSERT_EQ(goldens.size(), 2u);
  for (const auto& [name, golden] : goldens.items()) {
    SCOPED_TRACE(name);
    TemporaryDirectory folder;
    MemmapWriter writer(folder.path() / "deep" / name,
                        find_token_type(golden.at("dtype").get<std::string>())->type);
    for (size_t i = 0; i < golden.at("documents").size(); ++i) {
      std::optional<std::vector<Span>> spans;
      if (!golden.at("spans").is_null()) {
        spans.emplace();
        for (const json& pair : golden.at("spans").at(i)) spans->push_back({pair[0], pair[1]});
      }
      writer.add(golden.at("documents").at(i).get<std::vector<int64_t>>(), spans);
    }
    writer.finish();
    EXPECT_EQ(read_file(folder.path() / "deep" / (name + ".idx")), unhex(golden.at("idx_hex")));
    EXPECT_EQ(read_file(folder.path() / "deep" / (name + ".bin")), unhex(golden.at("bin_hex")));
    EXPECT_EQ(entries(folder.path() / "deep"), 2u);
  }
}

TEST(MemmapWriter, GivesBackEveryDocumentOfEveryType) {
  expect_round_trips<MemmapWriter, MemmapDataset>("x");
}

TEST(MemmapWriter, LeavesOutTheTablesWhenAllSpanListsAreEmpty) {
  TemporaryDirectory folder;
  MemmapWriter with(folder.path() / "with", TokenType::kInt16),
      without(folder.path() / "without", TokenType::kInt16);
  with.add(std::vector<int64_t>{1, 2}, std::vector<Span>{});
  without.add(std::vector<int64_t>{1, 2});
  with.finish();
  without.finish();
  EXPECT_EQ(read_file(folder.path() / "with.idx"), read_file(folder.path() / "without.idx"));
}

TEST(MemmapWriter, LeavesNothingBehindUnfinished) {
  TemporaryDirectory folder;
  {
    MemmapWriter writer(folder.path() / "x", TokenType::kInt16);
    writer.add(std::vector<int64_t>{1, 2});
    EXPECT_EQ(entries(folder.path()), 1u);
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "x.bin"));
  }
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(MemmapWriter, SaysWhatItCannotReplace) {
  TemporaryDirectory folder;
  make_directories(folder.path() / "x.idx" / "inside");
  MemmapWriter writer(folder.path() / "x", TokenType::kInt16);
  writer.add(std::vector<int64_t>{1});
  EXPECT_THAT(
      message_of([&] { writer.finish(); }, Status::kUnavailable),
      HasSubstr("cannot replace " + (folder.path() / "x.idx").string() + ": Is a directory"));
}

TEST(MemmapWriter, RefusesWhatTheFormatCannotHold) {
  TemporaryDirectory folder;
  MemmapWriter writer(folder.path() / "x", TokenType::kInt16);
  auto add = [&](std::vector<int64_t> tokens,
                 std::optional<std::vector<Span>> spans = std::nullopt) {
    return message_of([&] { writer.add(tokens, spans); }, Status::kInvalid);
  };
  EXPECT_THAT(message_of([&] { writer.finish(); }, Status::kInvalid),
              HasSubstr("at least one document"));
  EXPECT_THAT(add({1, 40000}), HasSubstr("-32768 to 32767 (int16) in document 0"));
  EXPECT_THAT(add({1, 2}, std::vector<Span>{{1, 2}}), HasSubstr("found 1 to 2"));
  EXPECT_THAT(add({1, 2}, std::vector<Span>{{1, 0}}), HasSubstr("found 1 to 0"));
  EXPECT_THAT(add({1, 2}, std::vector<Span>{{-1, 0}}), HasSubstr("found -1 to 0"));
  EXPECT_EQ(add({1, 2}, std::vector<Span>{{1, 1}}), "(no error)");
  EXPECT_THAT(add({1, 2}), HasSubstr("document 1 without one"));
  EXPECT_THAT(message_of([] { MemmapWriter bad("x.bin", TokenType::kInt16); }),
              HasSubstr("write x"));
  EXPECT_THAT(message_of([] { MemmapWriter bad("/dev/null/x", TokenType::kInt16); }),
              HasSubstr("/dev/null"));
}

// An independent reader: numpy, in a few lines of its own.
TEST(MemmapWriter, IsReadBackByNumpy) {
  const char* python = std::getenv("FASTLLM_JUDGES_PYTHON");
  if (!python) GTEST_SKIP() << "FASTLLM_JUDGES_PYTHON names no Python with numpy";
  TemporaryDirectory folder;
  json expected;
  MemmapWriter writer(folder.path() / "x.v1", TokenType::kUint16);
  for (int64_t i = 0; i < 20; ++i) {
    std::vector<int64_t> tokens;
    for (int64_t j = 0; j < i % 7; ++j) tokens.push_back((i * 9973 + j * 131) % 65536);
    std::vector<Span> spans;
    if (tokens.size() > 3) spans = {{0, 0}, {2, 3}};
    writer.add(tokens, spans);
    json pairs = json::array();
    for (const Span& span : spans) pairs.push_back({span.first, span.last});
    expected.push_back({{"tokens", tokens}, {"spans", pairs}});
  }
  writer.finish();
  std::string script = std::string(FASTLLM_SOURCE_DIR) + "/tests/unit/data/formats/read_memmap.py";
  std::string out = (folder.path() / "read.json").string();
  std::string command =
      std::string(python) + " " + script + " " + (folder.path() / "x.v1").string() + " > " + out;
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(json::parse(read_file(out)), expected);
}

}  // namespace
}  // namespace fastllm::data
