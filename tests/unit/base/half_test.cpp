// Every 16-bit number there is, and every place where rounding turns from one to the next.
#include "core/base/half.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fastllm {
namespace {

struct Type {
  const char* name;
  uint32_t infinity;  // pattern
  float (*from)(uint16_t);
  uint16_t (*to)(float);
  double (*value)(uint32_t bits);  // of a finite pattern without sign
};
const Type kTypes[] = {
    {"bfloat16", 0x7f80, [](uint16_t b) { return from_bfloat16(b); },
     [](float x) { return to_bfloat16(x); },
     [](uint32_t bits) {
       const int exponent = int(bits >> 7), mantissa = int(bits & 127);
       return exponent ? std::ldexp(128 + mantissa, exponent - 134) : std::ldexp(mantissa, -133);
     }},
    {"float16", 0x7c00, [](uint16_t b) { return from_float16(b); },
     [](float x) { return to_float16(x); },
     [](uint32_t bits) {
       const int exponent = int(bits >> 10), mantissa = int(bits & 1023);
       return exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
     }}};

TEST(Half, EveryPatternHasItsValueAndComesBack) {
  for (const Type& type : kTypes) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const float found = type.from(uint16_t(bits));
      const uint32_t magnitude = bits & 0x7fff;
      ASSERT_EQ(std::signbit(found), bits >= 0x8000);
      if (magnitude > type.infinity) {
        ASSERT_TRUE(std::isnan(found)) << type.name << " " << bits;
        ASSERT_TRUE(std::isnan(type.from(type.to(found))));
        continue;
      }
      if (magnitude == type.infinity)
        ASSERT_TRUE(std::isinf(found));
      else
        ASSERT_EQ(std::fabs(found), type.value(magnitude)) << type.name << " " << bits;
      ASSERT_EQ(type.to(found), bits) << type.name;
    }
  }
}

TEST(Half, RoundsToTheNearestAndTiesToEven) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const Type& type : kTypes) {
    for (uint32_t bits = 0; bits < type.infinity; ++bits) {
      // Above the largest finite number the next step decides between it and infinity.
      const double below = type.value(bits), above = bits + 1 < type.infinity
                                                         ? type.value(bits + 1)
                                                         : below + (below - type.value(bits - 1));
      const float middle = float((below + above) / 2);
      ASSERT_EQ(double(middle), (below + above) / 2) << "representable";
      const uint32_t even = bits & 1 ? bits + 1 : bits;
      ASSERT_EQ(type.to(middle), even) << type.name << " " << bits;
      ASSERT_EQ(type.to(-middle), even | 0x8000) << type.name << " " << bits;
      ASSERT_EQ(type.to(std::nextafter(middle, 0.0f)), bits) << type.name << " " << bits;
      ASSERT_EQ(type.to(std::nextafter(middle, infinity)), bits + 1) << type.name << " " << bits;
    }
    ASSERT_EQ(type.to(infinity), type.infinity);
    ASSERT_EQ(type.to(std::numeric_limits<float>::max()), type.infinity);
    ASSERT_EQ(type.to(std::numeric_limits<float>::denorm_min()), 0);
    ASSERT_EQ(type.to(-std::numeric_limits<float>::denorm_min()), 0x8000);
  }
}

}  // namespace
}  // namespace fastllm
