#include "core/data/formats/memmap_folder.hpp"

#include <gmock/gmock.h>

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
