// Definitions in the configuration become datasets; each way to define one wrongly is one sentence that names its place.
#include "core/train/datasets.hpp"

#include <gmock/gmock.h>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/data/memmap_writer.hpp"

namespace fastllm::train {
namespace {

using ::testing::HasSubstr;

class DatasetsTest : public ::testing::Test {
 protected:
  DatasetsTest() {
    data::MemmapWriter writer((folder.path() / "docs").string(), data::TokenType::kInt16);
    for (int64_t d = 0; d < 6; ++d)
      writer.add(std::vector<int64_t>{10 * d, 10 * d + 1, 10 * d + 2, 10 * d + 3});
    writer.finish();
  }
  std::shared_ptr<const data::SampledDataset> make(const std::string& yaml) const {
    SamplingSettings sampling{.num_samples = 4,
                              .sequence_length = 3,
                              .seed = 1,
                              .shuffle = data::Shuffle::kDisabled,
                              .vocab_size = 100};
    return make_dataset(config::parse_yaml(yaml, "train.yaml"), sampling, "data.datasets.Training",
                        folder.path());
  }
  std::string error(const std::string& yaml) const {
    try {
      make(yaml);
    } catch (const Error& e) {
      return e.what();
    }
    return "(no error)";
  }
  static std::vector<int64_t> tokens(const data::SampledDataset& dataset, int64_t index) {
    std::vector<int64_t> ids(4);
    data::Sample sample;
    sample.tokens = ids;
    dataset.get(index, sample);
    return ids;
  }
  TemporaryDirectory folder;
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

TEST_F(DatasetsTest, PathsInAFileAreRelativeToIt) {
  std::filesystem::create_directory(folder.path() / "set");
  write_file_atomic(folder.path() / "set/set.yaml", "type: memmap\npath: ../docs\n");
  EXPECT_EQ(tokens(*make("{type: file, path: set/set.yaml}"), 0)[3], 3);
  write_file_atomic(folder.path() / "set/later.yaml",
                    "config: {type: memmap, path: ../docs}\nmetadata: {}\n");
  EXPECT_EQ(tokens(*make("{type: file, path: set/later.yaml}"), 0)[3], 3);
}

TEST_F(DatasetsTest, RandomTokensStayInTheVocabulary) {
  for (int64_t id : tokens(*make("{type: random}"), 2)) EXPECT_LT(id, 100);
}

TEST_F(DatasetsTest, ErrorsNameThePlaceAndWhatToDo) {
  EXPECT_THAT(
      error("{type: slice}"),
      HasSubstr("data.datasets.Training: expected `dataset`, the documents to take a slice of"));
  EXPECT_THAT(error("{type: sampled}"), HasSubstr("expected `dataset`, what to sample"));
  EXPECT_THAT(error("{path: docs}"), HasSubstr("expected a block with a `type`"));
  EXPECT_THAT(error("{type: blended, weights: [1], datasets: [{type: random}]}"),
              HasSubstr("expected at least two datasets"));
  EXPECT_THAT(error("{type: concatenated, datasets: [{type: random}]}"),
              HasSubstr("data.datasets.Training.datasets.0: expected a dataset of documents"));
  EXPECT_THAT(error("{type: fim}"), HasSubstr("not supported yet"));
  EXPECT_THAT(error("{type: memmap, path: none}"), HasSubstr("none"));
  EXPECT_THAT(error("{type: memmap, path: docs, num_documents: 7}"), HasSubstr("7"));
  write_file_atomic(folder.path() / "loop.yaml", "{type: file, path: loop.yaml}");
  EXPECT_THAT(error("{type: file, path: loop.yaml}"), HasSubstr("does a file name itself"));
  write_file_atomic(folder.path() / "typo.yaml", "{type: memmap, pth: docs}");
  EXPECT_THAT(error("{type: file, path: typo.yaml}"), HasSubstr("pth"));
}

}  // namespace
}  // namespace fastllm::train
