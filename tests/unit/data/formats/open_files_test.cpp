#include "core/data/formats/open_files.hpp"

#include <gmock/gmock.h>

#include "core/data/formats/dataset_file_writer.hpp"
#include "core/data/formats/memmap_writer.hpp"
#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OpenFilesTest : public ::testing::Test {
 protected:
  template <class Writer>
  void write(const std::string& name, std::vector<int64_t> tokens) const {
    Writer writer(folder.path() / name, TokenType::kInt16);
    writer.add(tokens);
    writer.finish();
  }
  IndexedPointer open(const std::string& name, const MemmapExpectations& expected = {}) {
    return files.open(folder.path() / name, expected);
  }
  TemporaryDirectory folder;
  OpenFiles files;
};

TEST_F(OpenFilesTest, OpensWhatIsHeldOnce) {
  write<MemmapWriter>("a", {1, 2, 3});
  write<MemmapWriter>("b", {4});
  write<DatasetFileWriter>("c.fast_llm_dataset", {5});
  for (const char* name : {"a", "b", "c.fast_llm_dataset"}) {
    const IndexedPointer first = open(name);
    EXPECT_EQ(open(name), first) << name;
  }
  EXPECT_EQ(files.opened(), 3);
  open("a");  // nobody held it
  EXPECT_EQ(files.opened(), 4);
}

TEST_F(OpenFilesTest, ComparesCountsForEveryDefinition) {
  write<MemmapWriter>("a", {1, 2, 3});
  write<DatasetFileWriter>("c.fast_llm_dataset", {1, 2, 3});
  for (const char* name : {"a", "c.fast_llm_dataset"}) {
    const IndexedPointer held = open(name, {.num_documents = 1, .num_tokens = 3});
    EXPECT_EQ(open(name, {.num_documents = 1, .num_tokens = {}}), held);
    EXPECT_THAT(message_of([&] { open(name, {.num_documents = 2, .num_tokens = {}}); }),
                HasSubstr("expected 2 documents in"));
    EXPECT_THAT(message_of([&] { open(name, {.num_documents = {}, .num_tokens = 4}); }),
                HasSubstr("expected 4 tokens"));
  }
}

TEST_F(OpenFilesTest, OpensAgainWhatIsAnotherFileNow) {
  write<MemmapWriter>("a", {1, 2, 3});
  const IndexedPointer before = open("a");
  write<MemmapWriter>("a", {4, 5, 6});
  EXPECT_THAT(read_document(*open("a"), 0), ElementsAre(4, 5, 6));
  EXPECT_THAT(read_document(*before, 0), ElementsAre(1, 2, 3));
}

}  // namespace
}  // namespace fastllm::data
