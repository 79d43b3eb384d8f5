// Reading and writing trees: what YAML 1.2's core schema says, what is refused, and that text out
// is text in.
#include "core/config/node.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::config {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = Node::Kind;

std::string error_of(const std::string& yaml) {
  return test::message_of([&] { parse_yaml(yaml, "t.yaml"); }, Status::kInvalid);
}

Node value(const std::string& text) { return *parse_yaml("a: " + text, "t.yaml").find("a"); }

TEST(Yaml, ResolvesPlainScalarsByTheCoreSchema) {
  for (const char* text : {"1e-4", "1.0e-4", "0.0001", "1E-4", "+1e-4", ".1e-3"})
    EXPECT_EQ(value(text), Node::real(1e-4)) << text;
  EXPECT_EQ(value(".5e-5"), Node::real(5e-6));
  EXPECT_EQ(value("1."), Node::real(1));
  EXPECT_EQ(value("-.inf"), Node::real(-INFINITY));
  EXPECT_EQ(value(".NaN"), Node::real(NAN));
  EXPECT_EQ(value("010"), Node::integer(10));
  EXPECT_EQ(value("0o17"), Node::integer(15));
  EXPECT_EQ(value("0xfF"), Node::integer(255));
  EXPECT_EQ(value("-0"), Node::integer(0));
  EXPECT_EQ(value("+12"), Node::integer(12));
  for (const char* text : {"null", "Null", "NULL", "~", ""})
    EXPECT_TRUE(value(text).is_null()) << text;
  for (const char* text : {"true", "True", "TRUE"})
    EXPECT_EQ(value(text), Node::boolean(true)) << text;
  for (const char* text : {"1_000", "on", "off", "yes", "no", "1e", ".", "1.000.000", "0x", "0o8",
                           "12:30:45", "2001-01-01", "tRue", "1e-4x", "e5", "inf", "nan"}) {
    EXPECT_EQ(value(text), Node::text(text)) << text;
  }
}

TEST(Yaml, QuotedScalarsAreText) {
  for (const char* text : {"'1000'", "\"1000\"", "!!str 1000"})
    EXPECT_EQ(value(text), Node::text("1000"));
  EXPECT_EQ(value("''"), Node::text(""));
  EXPECT_EQ(value("'null'"), Node::text("null"));
  EXPECT_EQ(parse_yaml("a: |\n  1\n", "t").find("a")->as_text(), "1\n");
  EXPECT_EQ(value("!!float 1"), Node::real(1));
}

TEST(Yaml, KeepsIntegersOfAnySize) {
  Node node = value("317767863445754100075399033823");
  EXPECT_EQ(node.kind(), Kind::kInt);
  EXPECT_EQ(node.scalar_text(), "317767863445754100075399033823");
  EXPECT_THROW(node.as_int(), Error);
  EXPECT_DOUBLE_EQ(node.as_real(), 317767863445754100075399033823.0);
  EXPECT_EQ(value("9223372036854775807").as_int(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(value("-9223372036854775808").as_int(), std::numeric_limits<int64_t>::min());
}

TEST(Yaml, RemembersWhereValuesStand) {
  Node node = parse_yaml("# x\na:\n  b: 1\n  c:\n  d: [1,\n   2]\n", "t.yaml");
  EXPECT_EQ(node.find("a.b")->mark.text(), "t.yaml:3");
  EXPECT_EQ(node.find("a.c")->mark.text(), "t.yaml:4");
  EXPECT_EQ(node.find("a.d.1")->mark.text(), "t.yaml:6");
  EXPECT_TRUE(node.find("a.b")->explicitly_set);
}

TEST(Yaml, RefusesRepeatedKeysWithBothLines) {
  EXPECT_EQ(error_of("a: {x: 1}\nb: 2\na: 3\nb: 4\n"),
            "t.yaml:3: a: expected each key once, found it again (first in line 1); remove one of "
            "the two\n"
            "t.yaml:4: b: expected each key once, found it again (first in line 2); remove one of "
            "the two");
  EXPECT_THAT(error_of("m:\n  l:\n  - {k: 1, k: 2}\n"),
              StartsWith("t.yaml:3: m.l.0.k: expected each key once"));
}

TEST(Yaml, RefusesMergeKeysTagsAndSecondDocuments) {
  EXPECT_EQ(
      error_of("b: &b {x: 1}\na:\n  <<: *b\n"),
      "t.yaml:3: expected keys written out, found the merge key <<; copy the merged keys here");
  EXPECT_EQ(parse_yaml("'<<': 1", "t").find("<<")->as_int(), 1);
  EXPECT_EQ(error_of("a: !thing 1"),
            "t.yaml:1: expected a value without tag, found the tag !thing; remove it");
  EXPECT_THAT(error_of("a: !thing {}"), HasSubstr("found the tag !thing"));
  EXPECT_EQ(error_of("a: !!int x"),
            "t.yaml:1: expected what the tag !!int allows, found \"x\"; remove the tag");
  EXPECT_EQ(error_of("a: 1\n---\nb: 2\n"),
            "t.yaml:2: expected one document, found a second one; remove it and its ---");
  EXPECT_NO_THROW(parse_yaml("---\na: 1\n", "t"));
}

TEST(Yaml, RefusesKeysThatAreNoText) {
  EXPECT_EQ(error_of("? [a]\n: 1\n"), "t.yaml:1: expected a text as key, found a block or list");
  EXPECT_EQ(error_of("~: 1\n"), "t.yaml:1: expected a text as key, found null");
  EXPECT_EQ(error_of("x: &a [1]\n*a : 1\n"),
            "t.yaml:2: expected a text as key, found an alias of a block or list");
  EXPECT_EQ(parse_yaml("x: &a k\n*a : 1\n", "t").find("k")->as_int(), 1);
}

TEST(Yaml, NamesTheLineOfAMistakeInForm) {
  EXPECT_THAT(error_of("a: 1\nb: [1, 2\nc: 3\n"), StartsWith("t.yaml:"));
  EXPECT_THAT(error_of("a: b: c\n"),
              HasSubstr("t.yaml:1: expected YAML, found a mistake in its form: "));
  EXPECT_EQ(error_of("a: 1\nb: \xff\n"),
            "t.yaml:2: expected UTF-8 text, found byte 0xff; save the file as UTF-8");
  EXPECT_EQ(error_of("a: 1e999\n"),
            "t.yaml:1: expected a number that a double can hold, found 1e999; write one between "
            "1e-307 and 1e308");
}

TEST(Yaml, BoundsDepthAliasesAndSize) {
  EXPECT_NE(error_of(std::string(100000, '[')), "(no error)");
  EXPECT_THAT(error_of(std::string(65, '[') + std::string(65, ']')),
              HasSubstr("expected at most 64 levels of nesting, found more"));
  EXPECT_NO_THROW(parse_yaml(std::string(64, '[') + std::string(64, ']'), "t"));
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 10; ++k) bomb += (k ? ", *a" : "*a") + std::to_string(i - 1);
    bomb += "]\n";
  }
  EXPECT_THAT(error_of(bomb),
              HasSubstr("expected values of at most 536870912 bytes in memory, found more"));
  EXPECT_EQ(error_of("a: &a [*a]"),
            "t.yaml:1: expected an alias of a finished value, found one inside the value it names");
  EXPECT_EQ(error_of(std::string((size_t(64) << 20) + 1, ' ')),
            "t.yaml: expected at most 67108864 bytes, found 67108865; is this the right file?");
}

TEST(Yaml, AliasesCopyValues) {
  Node node = parse_yaml("a: &x {k: [1, 2]}\nb: *x\n", "t");
  EXPECT_EQ(*node.find("a"), *node.find("b"));
}

TEST(Yaml, WritesFloatsThatEveryReaderTakesForFloats) {
  EXPECT_EQ(to_yaml(Node::real(1e-5)), "1.0e-05\n");
  EXPECT_EQ(to_yaml(Node::real(0.0001)), "0.0001\n");
  EXPECT_EQ(to_yaml(Node::real(1e16)), "1.0e+16\n");
  EXPECT_EQ(to_yaml(Node::real(123456789012345680)), "1.2345678901234568e+17\n");
  EXPECT_EQ(to_yaml(Node::real(1e15)), "1000000000000000.0\n");
  EXPECT_EQ(to_yaml(Node::real(65536)), "65536.0\n");
  EXPECT_EQ(to_yaml(Node::real(-0.5)), "-0.5\n");
  EXPECT_EQ(to_yaml(Node::real(0.0063788795384978605)), "0.0063788795384978605\n");
  EXPECT_EQ(to_yaml(Node::real(-INFINITY)), "-.inf\n");
  EXPECT_EQ(to_yaml(Node::real(5e-324)), "5.0e-324\n");
}

TEST(Yaml, WritesBlocksWithListsAtTheIndentOfTheirKey) {
  const char* text =
      "a:\n  l:\n  - 1.0\n  - null\n  e: []\n  m: {}\n  o:\n  - - 1\n    - 2\n  - k: 1\n    o:\n   "
      " - x\n"
      "b: text\n";
  EXPECT_EQ(to_yaml(parse_yaml(text, "t")), text);
  EXPECT_EQ(to_yaml(parse_yaml("b: 1\na: {d: 1, c: 2}", "t"), true), "a:\n  c: 2\n  d: 1\nb: 1\n");
}

TEST(Yaml, QuotesTextThatAReaderWouldTakeForSomethingElse) {
  for (const char* text : {"yes",
                           "on",
                           "1_000",
                           "1e-4",
                           "12:30",
                           "2001-01-01",
                           "null",
                           "~",
                           "",
                           " a",
                           "a ",
                           "a: b",
                           "a #b",
                           "- a",
                           "#a",
                           "'a",
                           "\"",
                           "a\nb",
                           "\ta",
                           "{a}",
                           "*a",
                           "&a",
                           "!a",
                           "%a",
                           "@a",
                           "`a",
                           "[a",
                           "key:",
                           "---",
                           "0x1",
                           ".5",
                           "+1",
                           "=",
                           "<<",
                           "\xc2\x85",
                           "?",
                           "-",
                           "\xe2\x80\xa8",
                           "\xef\xbb\xbfx",
                           "\x01",
                           "\x7f",
                           "true",
                           ".inf",
                           "-.INF"}) {
    std::string yaml = to_yaml(Node::text(text));
    EXPECT_TRUE(yaml[0] == '\'' || yaml[0] == '"') << yaml;
    EXPECT_EQ(parse_yaml("a: " + yaml, "t").find("a")->as_text(), text) << yaml;
    EXPECT_EQ(parse_json(to_json(Node::text(text)), "t").as_text(), text);
  }
  for (const char* text :
       {"a b", "a\\b", "/x/y.z", "<fim_prefix>", "caf\xc3\xa9", "a:b", "-x", "linear,10,0"}) {
    std::string yaml = to_yaml(Node::text(text));
    EXPECT_EQ(parse_yaml("a: " + yaml, "t").find("a")->as_text(), text) << yaml;
  }
  EXPECT_EQ(to_yaml(Node::text("<fim_prefix>")), "<fim_prefix>\n");
}

TEST(Yaml, RoundTripsTheReferencesFiles) {
  for (const char* name : {"default-verbose-0", "default-verbose-20", "mistral-frozen"}) {
    std::string path = std::string(FASTLLM_SOURCE_DIR "/tests/fixtures/config/") + name + ".yaml";
    std::string text = read_file(path);
    EXPECT_EQ(to_yaml(parse_yaml(text, path)), text);
  }
}

TEST(Json, ReadsAndWrites) {
  const char* text =
      R"({"a": [1, 2.5, "x\n\"y", null, true, 1e-05], "b": {}, "c": 123456789012345678901234567890})";
  EXPECT_EQ(to_json(parse_json(text, "t")), text);
  EXPECT_EQ(to_json(parse_json("{\"a\": [1]}", "t"), 2), "{\n  \"a\": [\n    1\n  ]\n}");
  EXPECT_EQ(parse_json("\"\\ud83d\\ude00\"", "t").as_text(), "\xf0\x9f\x98\x80");
  EXPECT_EQ(to_json(Node::real(NAN)), "null");
}

TEST(Json, RefusesWhatYamlRefuses) {
  auto fails = [](const std::string& text) -> std::string {
    return test::message_of([&] { parse_json(text, "t.json"); });
  };
  EXPECT_THAT(fails("{\"a\": 1, \"a\": 2}"), HasSubstr("t.json: a: expected each key once"));
  EXPECT_THAT(fails(std::string(100, '[')), HasSubstr("at most 64 levels"));
  EXPECT_THAT(fails("{\n\"a\": }"),
              HasSubstr("t.json:2: expected JSON, found a mistake in its form near"));
  EXPECT_THAT(fails(""), HasSubstr("expected JSON"));
  EXPECT_THAT(fails("1 2"), HasSubstr("expected JSON"));
}

TEST(Node, PathsEscapeDots) {
  EXPECT_EQ(split_path("a.b\\.c.0"), (std::vector<std::string>{"a", "b.c", "0"}));
  EXPECT_EQ(join_path("a", "b.c"), "a.b\\.c");
  EXPECT_EQ(join_path("", "b"), "b");
  EXPECT_TRUE(split_path("").empty());
  Node node = Node::map();
  node.set("a.b\\.c", Node::integer(1));
  EXPECT_EQ(node.find("a")->key(0), "b.c");
  EXPECT_EQ(node.find("")->size(), 1u);
}

TEST(Node, SetMakesBlocksAndRefusesToWalkThroughValues) {
  Node node = parse_yaml("a: {l: [1, 2], s: text, n: null}", "t.yaml");
  node.set("a.l.1", Node::integer(5));
  node.set("a.n.x", Node::integer(6));
  EXPECT_EQ(node.get<int64_t>("a.l.1"), 5);
  EXPECT_EQ(node.get<int64_t>("a.n.x"), 6);
  EXPECT_EQ(test::message_of([&] { node.set("a.s.x", Node()); }),
            "a.s: expected a block to put \"x\" in, found a text text (t.yaml:1)");
  EXPECT_EQ(test::message_of([&] { node.set("a.l.7", Node()); }),
            "a.l: expected the number of one of 2 list entries, found \"7\"");
}

TEST(Node, ReadsTypedValues) {
  Node node = parse_yaml("i: 3\nf: 1.5\nt: x\nb: true\nl: [1, 2]\nn: null\n", "t.yaml");
  EXPECT_EQ(node.get<int64_t>("i"), 3);
  EXPECT_EQ(node.get<double>("i"), 3.0);
  EXPECT_EQ(node.get<bool>("b"), true);
  EXPECT_EQ(node.get<std::string>("t"), "x");
  EXPECT_EQ(node.get_list<int64_t>("l"), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(node.get_list<int64_t>("n").empty());
  EXPECT_EQ(node.get_optional<int64_t>("n"), std::nullopt);
  EXPECT_EQ(node.get_optional<double>("absent"), std::nullopt);
  EXPECT_EQ(test::message_of([&] { node.get<int64_t>("f"); }),
            "f: expected an integer, found a number 1.5 (t.yaml:2)");
  EXPECT_EQ(test::message_of([&] { node.get<bool>("i"); }),
            "i: expected true or false, found an integer 3 (t.yaml:1)");
  EXPECT_EQ(test::message_of([&] { node.get<int64_t>("b"); }),
            "b: expected an integer, found a boolean true (t.yaml:4)");
  EXPECT_EQ(test::message_of([&] { node.get<std::string>("l"); }),
            "l: expected a text, found a list (t.yaml:5)");
  EXPECT_EQ(test::message_of([&] { node.get<bool>("zz"); }),
            "zz: expected a value, found none (t.yaml:1)");
  EXPECT_EQ(test::message_of([&] { node.get_list<bool>("i"); }),
            "i: expected a list, found an integer 3 (t.yaml:1)");
}

TEST(Node, ComparesByValueWhateverTheOrderOfKeys) {
  EXPECT_EQ(parse_yaml("a: 1\nb: [x, .nan]", "t"), parse_yaml("{b: ['x', .NaN], a: 1}", "u"));
  EXPECT_FALSE(parse_yaml("a: 1", "t") == parse_yaml("a: 1.0", "t"));
  EXPECT_FALSE(parse_yaml("a: 1", "t") == parse_yaml("b: 1", "t"));
}

}  // namespace
}  // namespace fastllm::config
