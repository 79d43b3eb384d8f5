#include "core/base/text.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace fastllm {
namespace {

TEST(Text, SeparatesThousands) {
  EXPECT_EQ(with_commas(0, 0), "0");
  EXPECT_EQ(with_commas(999, 0), "999");
  EXPECT_EQ(with_commas(1000, 0), "1,000");
  EXPECT_EQ(with_commas(49152000, 0), "49,152,000");
  EXPECT_EQ(with_commas(2770.1375, 2), "2,770.14");
  EXPECT_EQ(with_commas(-1234.5, 1), "-1,234.5");
  EXPECT_EQ(with_commas(std::nan(""), 2), "nan");
}

TEST(Text, PrintsDurationsAsPythonDoes) {
  EXPECT_EQ(duration_text(0), "0:00:00");
  EXPECT_EQ(duration_text(323.4), "0:05:23");
  EXPECT_EQ(duration_text(93784), "1 day, 2:03:04");
  EXPECT_EQ(duration_text(2 * 86400 + 5), "2 days, 0:00:05");
  EXPECT_EQ(duration_text(std::nan("")), "nan");
}

TEST(Text, PrintsMebibytes) { EXPECT_EQ(mib_text(4357054464), "4,155.21 MiB"); }

}  // namespace
}  // namespace fastllm
