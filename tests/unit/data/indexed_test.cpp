#include "core/data/indexed.hpp"

#include <gmock/gmock.h>

#include "tests/unit/data/support.hpp"

namespace fastllm::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

IndexedPointer numbered(int64_t documents) {
  std::vector<std::vector<int64_t>> all;
  for (int64_t i = 0; i < documents; ++i) all.push_back({i, i + 1});
  return std::make_shared<FakeDocuments>(std::move(all));
}

TEST(Concatenated, HoldsTheDocumentsOfItsPartsInOrder) {
  auto dataset = make_concatenated("all", {numbered(3), numbered(1), numbered(2)});
  EXPECT_EQ(dataset->num_documents(), 6);
  EXPECT_EQ(dataset->num_tokens(), 12);
  std::vector<int64_t> first;
  for (int64_t i = 0; i < 6; ++i) {
    first.push_back(read_document(*dataset, i)[0]);
    EXPECT_EQ(dataset->document_size(i), 2);
  }
  EXPECT_THAT(first, ElementsAre(0, 1, 2, 0, 0, 1));
  EXPECT_EQ(dataset->locate(5), "document 1 of fake");
  EXPECT_EQ(dataset->fingerprints().size(), 1u);  // the same line once
  EXPECT_THAT(message_of([&] { dataset->document_size(6); }), HasSubstr("from 0 to 5"));
  EXPECT_THAT(message_of([] { make_concatenated("all", {}); }, Status::kInvalid),
              HasSubstr("at least one dataset"));
}

TEST(Slice, TakesRoundedFractionsOfTheDocuments) {
  auto dataset = make_slice(numbered(6153), 0.0015, 0.003);
  EXPECT_EQ(dataset->num_documents(), 9);
  EXPECT_EQ(dataset->num_tokens(), 18);
  EXPECT_EQ(read_document(*dataset, 0)[0], 9);
  EXPECT_EQ(read_document(*dataset, 8)[0], 17);
  EXPECT_EQ(dataset->name(), "fake_0.0015_0.003");
  EXPECT_EQ(dataset->locate(0), "document 9 of fake");
  EXPECT_THAT(message_of([&] { read_document(*dataset, 9); }), HasSubstr("from 0 to 8"));
}

TEST(Slice, RoundsHalvesToEven) {
  auto bounds = [](double begin, double end) {
    auto slice = make_slice(numbered(10), begin, end);
    return std::pair(read_document(*slice, 0)[0], slice->num_documents());
  };
  EXPECT_EQ(bounds(0.05, 1), std::pair(int64_t(0), int64_t(10)));    // 0.5 to 0
  EXPECT_EQ(bounds(0.15, 1), std::pair(int64_t(2), int64_t(8)));     // 1.5 to 2
  EXPECT_EQ(bounds(0.25, 0.75), std::pair(int64_t(2), int64_t(6)));  // 2.5 to 2, 7.5 to 8
}

TEST(Slice, RefusesNothingAndImpossibleBounds) {
  EXPECT_THAT(message_of([] { make_slice(numbered(4), 0.5, 0.5); }, Status::kInvalid),
              AllOf(HasSubstr("found none"), HasSubstr("round to 2 until 2")));
  EXPECT_THAT(message_of([] { make_slice(numbered(4), 0, 1.5); }, Status::kInvalid),
              HasSubstr("from 0 to 1"));
  EXPECT_THAT(message_of([] { make_slice(numbered(4), std::stod("nan"), 1); }, Status::kInvalid),
              HasSubstr("from 0 to 1"));
}

}  // namespace
}  // namespace fastllm::data
