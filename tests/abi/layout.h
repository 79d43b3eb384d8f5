/* Compiles only where the headers have the frozen layout of version 0: every member's offset and
 * width, every enumerator's value, every identifier. For C99 to C17 and C++11 to C++20, hence
 * arrays of negative size instead of static assertions. Structs may have grown at their end:
 * that breaks nobody. */
#include <fastllm/checkpoint_format.h>
#include <fastllm/collectives.h>
#include <fastllm/converter.h>
#include <fastllm/model.h>
#include <fastllm/shard.h>
#include <fastllm/stage.h>

#define ASSERT_AS(name, condition) typedef char name[(condition) ? 1 : -1];
#define SIZE(type, bytes) ASSERT_AS(assert_size_of_##type, sizeof(type) >= (bytes))
#define MEMBER(type, member, at, bytes) \
  ASSERT_AS(assert_##type##_##member,   \
            offsetof(type, member) == (at) && sizeof(((type*)0)->member) == (bytes))
#define VALUE(name, number) ASSERT_AS(assert_value_of_##name, (name) == (number))
#define TEXT(name, text) ASSERT_AS(assert_length_of_##name, sizeof(name) == sizeof(text))
#include "layout_v0.h"
#undef TEXT
#undef VALUE
#undef MEMBER
#undef SIZE
#undef ASSERT_AS
