#include "core/data/formats/memmap_folder.hpp"

#include <gmock/gmock.h>

#include "core/data/formats/memmap.hpp"
#include "core/data/formats/memmap_writer.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class MemmapFolder : public ::testing::Test {
 protected:
  void touch(const std::string& name, const std::string& text = "") const {
    write_file_atomic(folder.path() / name, text);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const fs::path& prefix : memmap_prefixes(folder.path()))
      names.push_back(prefix.lexically_relative(folder.path()).string());
    return names;
  }
  TemporaryDirectory folder;
};

TEST_F(MemmapFolder, TakesAllPairsByName) {
  for (const char* name : {"b.idx", "b.bin", "a.en.idx", "a.en.bin", "half.idx", "other.bin",
                           "notes.txt", "c.idx", "c.bin"})
    touch(name);
  fs::create_directory(folder.path() / "d.idx");
  touch("d.bin");
  EXPECT_THAT(names(), ElementsAre("a.en", "b", "c"));
}

TEST_F(MemmapFolder, TakesTheOrderOfItsIndex) {
  touch("a.idx");
  touch("a.bin");
  touch("index.txt", "z\r\n\n  sub/b \na");
  EXPECT_THAT(names(), ElementsAre("z", "sub/b", "a"));
}

TEST_F(MemmapFolder, AnIndexWithAPathThatNoSystemHasIsToldByItsLine) {
  touch("index.txt", std::string("a\nb\0c\n", 6));
  EXPECT_EQ(
      message_of([&] { names(); }, Status::kInvalid),
      (folder.path() / "index.txt").string() +
          ":2: expected a prefix without the character \\0, found one that holds it; write the "
          "list as plain text, one prefix a line");
}

// Lengths add up, and documents follow in the order of the files.
TEST_F(MemmapFolder, FourFilesAreJoined) {
  std::vector<std::vector<int64_t>> documents;
  std::vector<IndexedPointer> parts;
  std::string index;
  for (const std::string name : {"d", "b", "c", "a"}) {
    MemmapWriter writer(folder.path() / name, TokenType::kInt16);
    for (size_t size : {1u, 0u, 4u}) {
      documents.emplace_back(size, int64_t(documents.size()));
      writer.add(documents.back());
    }
    writer.finish();
    index += name + "\n";
  }
  touch("index.txt", index);
  for (const fs::path& prefix : memmap_prefixes(folder.path()))
    parts.push_back(std::make_shared<MemmapDataset>(prefix));
  ASSERT_EQ(parts.size(), 4u);
  const auto all = make_concatenated("all", parts);
  EXPECT_EQ(all->num_documents(), 12);
  EXPECT_EQ(all->num_tokens(), 20);
  for (size_t d = 0; d < documents.size(); ++d)
    EXPECT_EQ(read_document(*all, int64_t(d)), documents[d]) << d;

  const auto thrice = make_concatenated("thrice", {parts[0], parts[0], parts[0]});
  EXPECT_EQ(thrice->num_documents(), 9);
  EXPECT_EQ(thrice->num_tokens(), 15);
  for (size_t d = 0; d < 9; ++d)
    EXPECT_EQ(read_document(*thrice, int64_t(d)), documents[d % 3]) << d;
}

TEST_F(MemmapFolder, SaysWhereNothingWasFound) {
  EXPECT_THAT(message_of([&] { names(); }, Status::kInvalid),
              HasSubstr("expected .idx/.bin pairs in " + folder.path().string()));
  touch("index.txt", "\n \n");
  EXPECT_THAT(message_of([&] { names(); }, Status::kInvalid),
              HasSubstr("prefixes, one a line, in"));
  EXPECT_THAT(message_of([&] { memmap_prefixes(folder.path() / "none"); }, Status::kNotFound),
              HasSubstr("expected a folder of .idx/.bin pairs, found none at"));
}

}  // namespace
}  // namespace fastllm::data
