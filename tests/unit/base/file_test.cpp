#include "core/base/file.hpp"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/support/message_of.hpp"

namespace fastllm {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(File, WritesWholeFilesAndReadsThemBack) {
  TemporaryDirectory folder;
  auto path = folder.path() / "a.txt";
  write_file_atomic(path, "first");
  write_file_atomic(path, std::string("sec\0nd", 6));
  EXPECT_EQ(read_file(path), std::string("sec\0nd", 6));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(File, ErrorsNameThePathAndTheReason) {
  TemporaryDirectory folder;
  EXPECT_THAT(message_of([&] { read_file(folder.path() / "none"); }),
              HasSubstr("none: No such file"));
  EXPECT_THAT(message_of([&] { MappedFile(folder.path()); }),
              AllOf(HasSubstr("expected a regular file at " + folder.path().string()),
                    HasSubstr("found a folder; give the path of a file, perhaps one in it")));
  EXPECT_THAT(message_of([&] { read_file("/dev/null"); }),
              HasSubstr("expected a regular file at /dev/null, found a device; give the path"));
  EXPECT_THAT(message_of([&] { write_file_atomic("/dev/full/x", "x"); }), HasSubstr("/dev/full/x"));
  write_file_atomic(folder.path() / "big", std::string(100, 'x'));
  EXPECT_THAT(message_of([&] { read_file(folder.path() / "big", 10); }),
              HasSubstr("at most 10 bytes"));
}

TEST(File, LooksForPathsWithoutGuessing) {
  TemporaryDirectory folder;
  write_file_atomic(folder.path() / "a", "x");
  EXPECT_TRUE(path_exists(folder.path() / "a"));
  EXPECT_FALSE(path_exists(folder.path() / "b"));
  EXPECT_FALSE(path_exists(folder.path() / "a" / "b"));  // below a file
  auto too_long = folder.path() / std::string(300, 'n');
  EXPECT_THAT(message_of([&] { path_exists(too_long); }),
              AllOf(HasSubstr("cannot look for " + too_long.string()), HasSubstr("too long")));
}

TEST(File, ListsFolders) {
  TemporaryDirectory folder;
  EXPECT_TRUE(list_folder(folder.path()).empty());
  write_file_atomic(folder.path() / "a", "x");
  ASSERT_EQ(list_folder(folder.path()).size(), 1u);
  EXPECT_EQ(list_folder(folder.path())[0].path(), folder.path() / "a");
  EXPECT_THAT(message_of([&] { list_folder(folder.path() / "a"); }),
              AllOf(HasSubstr("cannot list the folder"), HasSubstr("Not a directory")));
}

TEST(File, MapsContentAndEmptyFiles) {
  TemporaryDirectory folder;
  write_file_atomic(folder.path() / "full", "abc");
  write_file_atomic(folder.path() / "empty", "");
  EXPECT_EQ(MappedFile(folder.path() / "full").size(), 3u);
  EXPECT_EQ(MappedFile(folder.path() / "empty").size(), 0u);
}

TEST(File, HashesLikeTheStandardSays) {  // FIPS 180-2, appendix B.1
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  TemporaryDirectory folder;
  write_file_atomic(folder.path() / "x", "abc");
  EXPECT_EQ(sha256_file_hex(folder.path() / "x"), sha256_hex("abc"));
}

}  // namespace
}  // namespace fastllm
