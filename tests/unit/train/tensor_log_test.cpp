// What a record says at each level, how samples are chosen, and what the file holds.
#include "core/train/tensor_log.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

namespace fastllm::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Tensor {
  Tensor(std::vector<int64_t> dims, std::vector<float> data)
      : shape(std::move(dims)), values(std::move(data)) {
    view = {values.data(),
            {kDLCPU, 0},
            int32_t(shape.size()),
            {kDLFloat, 32, 1},
            shape.data(),
            nullptr,
            0};
  }
  std::vector<int64_t> shape;
  std::vector<float> values;
  DLTensor view;
};

std::vector<float> counting(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(float(i));
  return values;
}

TEST(TensorLog, ALevelSaysHowMuchIsKept) {
  const Tensor t({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const TensorRecord names = make_record("x", t.view, 1);
  EXPECT_THAT(names.shape, ElementsAre(2, 4));
  EXPECT_EQ(names.dtype, "float32");
  EXPECT_FALSE(names.mean.has_value());
  const TensorRecord moments = make_record("x", t.view, 2);
  EXPECT_DOUBLE_EQ(*moments.mean, 4.5);
  EXPECT_DOUBLE_EQ(*moments.deviation, std::sqrt(6.0));  // sum of squares 42, over 7
  EXPECT_THAT(moments.stride, ElementsAre(4, 1));
  EXPECT_THAT(moments.samples, IsEmpty());
  const TensorRecord samples = make_record("x", t.view, 5);
  EXPECT_EQ(*samples.minimum, 1);
  EXPECT_EQ(*samples.maximum, 8);
  EXPECT_EQ(samples.step, 1);  // 8 / 4 = 2 divides a column's length, as would be one column
  EXPECT_THAT(samples.samples, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(make_record("x", t.view, 43).samples.size(), 8u);
}

TEST(TensorLog, SamplesAreSpreadOverColumns) {
  EXPECT_EQ(sample_step({100}, 8), 12);
  EXPECT_EQ(sample_step({64, 64}, 16), 255);  // 256 is a multiple of 64
  EXPECT_EQ(sample_step({3, 5}, 4), 2);       // 3 is one of 3
  EXPECT_EQ(sample_step({1, 7}, 100), 1);
  EXPECT_EQ(sample_step({}, 4), 1);
  const Tensor t({64, 64}, counting(64 * 64));
  EXPECT_THAT(make_record("x", t.view, 7).samples,
              ElementsAre(0, 255, 510, 765, 1020, 1275, 1530, 1785, 2040, 2295, 2550, 2805, 3060,
                          3315, 3570, 3825));
}

TEST(TensorLog, ReadsHalfPrecisionAndStrides) {
  std::vector<uint16_t> bits{0x3f80, 0xc000, 0x7fc0, 0x3f00};  // 1, -2, nan, 0.5
  std::vector<int64_t> shape{2, 2}, strides{1, 2};
  DLTensor t{bits.data(), {kDLCPU, 0}, 2, {kDLBfloat, 16, 1}, shape.data(), strides.data(), 0};
  const TensorRecord r = make_record("x", t, 6);
  EXPECT_EQ(r.dtype, "bfloat16");
  ASSERT_EQ(r.samples.size(), 4u);
  EXPECT_EQ(r.samples[0], 1);
  EXPECT_TRUE(std::isnan(r.samples[1]));
  EXPECT_EQ(r.samples[2], -2);
  EXPECT_TRUE(std::isnan(*r.mean));
  std::vector<uint16_t> halves{0x3c00, 0xc000, 0x0001, 0x7c00};  // 1, -2, 2^-24, infinity
  DLTensor h{halves.data(), {kDLCPU, 0}, 2, {kDLFloat, 16, 1}, shape.data(), nullptr, 0};
  EXPECT_THAT(make_record("x", h, 6).samples, ElementsAre(1, -2, 0x1p-24f, INFINITY));
}

TEST(TensorLog, IsShownInALine) {
  const Tensor t({2, 4}, counting(8));
  EXPECT_EQ(shown(make_record("x", t.view, 1), 8), "x: [2, 4] float32");
  EXPECT_EQ(shown(make_record("x", t.view, 6), 3),
            "x: [2, 4] float32, mean 3.5, std 2.44949, min 0, max 7, step 1: 0 1 2 ...");
}

TEST(TensorLog, TheFileIsSafetensorsWithTheRecordsInItsMetadata) {
  const Tensor t({4}, {1, 2, 3, 4});
  const std::string file = tensor_log_file(
      {make_record("a", t.view, 5), make_record("b", t.view, 1), make_record("a", t.view, 5)});
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  ASSERT_EQ(length % 8, 0u);
  ASSERT_EQ(file.size(), 8 + length + 2 * 4 * sizeof(float));
  const config::Node header = config::parse_json(std::string_view(file).substr(8, length), "file");
  EXPECT_EQ(header.get<std::string>("a.dtype"), "F32");
  EXPECT_EQ(header.get<int64_t>("a#2.data_offsets.0"), 16);
  EXPECT_FALSE(header.has("b"));
  const config::Node records =
      config::parse_json(header.get<std::string>("__metadata__.records"), "records");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(records.get<std::string>("0.samples"), "a");
  EXPECT_EQ(records.get<double>("0.mu"), 2.5);
  EXPECT_FALSE(records.has("1.mu"));
  EXPECT_EQ(records.get<std::string>("2.samples"), "a#2");
  float second = 0;
  std::memcpy(&second, file.data() + 8 + length + 4, 4);
  EXPECT_EQ(second, 2);
}

}  // namespace
}  // namespace fastllm::train
