// Declared keys against what a user wrote: every kind of value, every kind of mistake, each with
// its sentence.
#include "core/config/resolve.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::config {
namespace {

using ::testing::HasSubstr;

Field make(const std::string& path, Type type, const std::string& fallback) {
  Field field;
  field.path = path;
  field.type = type;
  field.fallback = fallback;
  return field;
}

// A small program's keys: one of each kind.
Schema small_schema() {
  Schema schema;
  Field count = make("count", Type::kInt, "5");
  count.minimum = 1;
  count.maximum = 9;
  count.aliases = {"old_count", "gone.count"};
  Field keep = make("keep", Type::kInt, "null");
  keep.nullable = true;
  keep.minimum = 0;
  keep.exclusive_minimum = true;
  keep.null_means = "keeps all";
  Field share = make("share", Type::kReal, "0.5");
  share.minimum = 0;
  share.maximum = 1;
  Field style = make("style", Type::kText, "none");
  style.choices = {"none", "linear", "cosine"};
  style.aliases = {"use_style"};
  Field biases = make("biases", Type::kText, "true");
  biases.choices = {"true", "false", "nowhere"};
  Field dtype = make("dtype", Type::kDtype, "float32");
  Field data_type = make("data_type", Type::kDtype, "null");
  data_type.nullable = true;
  Field name = make("name", Type::kText, "null");
  name.nullable = true;
  Field scales = make("scales", Type::kRealList, "[null]");
  scales.nullable = true;
  scales.minimum = 0;
  Field words = make("words", Type::kTextList, "[]");
  words.from_text = FromText::kShellWords;
  Field prefixes = make("prefixes", Type::kTextList, "[]");
  prefixes.from_text = FromText::kOneEntry;
  schema.add("a", {count, keep, share, style, biases, dtype, data_type, name, scales, words,
                   prefixes, make("flag", Type::kBool, "false"), make("title", Type::kText, "x"),
                   make("ints", Type::kIntList, "[]"), make("texts", Type::kTextList, "[]"),
                   make("env", Type::kTextDict, "{}"), make("any", Type::kNode, "null"),
                   make("big", Type::kBigInt, "317767863445754100075399033823")});
  Field ignored = make("ignored", Type::kInt, "1");
  ignored.policy = Policy::kNoEffect;
  Field fixed = make("fixed", Type::kInt, "1");
  fixed.policy = Policy::kRefused;
  fixed.policy_reason = "more than one is not offered";
  Field computed = make("computed", Type::kInt, "null");
  computed.derived = true;
  schema.add("b.inner", {ignored, fixed, computed});

  schema.add_family("source", "A source.");
  schema.add_type("source", "file", "A file.");
  Field path = make("path", Type::kText, "null");
  path.required = true;
  schema.add("source:file", path);
  schema.add_type("source", "mix", "Several.", true);
  Nested parts;
  parts.path = "parts";
  parts.form = Nested::Form::kList;
  parts.family = "source";
  parts.minimum = 2;
  schema.add("source:mix", parts);
  schema.add_type("source", "cut", "A piece.");
  Nested whole;
  whole.path = "whole";
  whole.family = "source";
  whole.types = {"file"};
  schema.add("source:cut", whole);
  Nested sets;
  sets.path = "sets";
  sets.form = Nested::Form::kKeyed;
  sets.family = "source";
  sets.keys = {"Training", "Test"};
  schema.add("b", sets);
  return schema;
}

std::string error_of(const std::string& yaml, const std::vector<std::string>& overrides = {}) {
  return test::message_of(
      [&] {
        Node user = yaml.empty() ? Node::map() : parse_yaml(yaml, "t.yaml");
        apply_overrides(user, overrides);
        resolve(small_schema(), user);
      },
      Status::kInvalid);
}

Node resolved(const std::string& yaml, const std::string& path) {
  return *resolve(small_schema(), parse_yaml(yaml, "t.yaml")).root.find(path);
}

TEST(Resolve, FillsDefaultsInTheOrderOfDeclaration) {
  Resolved result = resolve(small_schema(), Node::map());
  EXPECT_EQ(to_yaml(*result.root.find("a")),
            "count: 5\nkeep: null\nshare: 0.5\nstyle: none\nbiases: true\ndtype: "
            "float32\ndata_type: null\n"
            "name: null\nscales:\n- null\nwords: []\nprefixes: []\nflag: false\ntitle: x\nints: "
            "[]\ntexts: []\n"
            "env: {}\nany: null\nbig: 317767863445754100075399033823\n");
  EXPECT_TRUE(result.warnings.empty());
  EXPECT_FALSE(result.root.find("a.count")->explicitly_set);
}

TEST(Resolve, ConvertsToTheDeclaredForm) {
  EXPECT_EQ(resolved("a: {share: 1}", "a.share"), Node::real(1));
  EXPECT_EQ(resolved("a: {scales: [1, null, 0.5]}", "a.scales"),
            parse_yaml("[1.0, null, 0.5]", "x"));
  EXPECT_TRUE(resolved("a: {scales: null}", "a.scales").is_null());
  EXPECT_EQ(resolved("a: {biases: false}", "a.biases"), Node::boolean(false));
  EXPECT_EQ(resolved("a: {biases: 'false'}", "a.biases"), Node::boolean(false));
  EXPECT_EQ(resolved("a: {biases: nowhere}", "a.biases"), Node::text("nowhere"));
  EXPECT_TRUE(resolved("a: {name: ''}", "a.name").is_null());
  EXPECT_EQ(resolved("a: {words: 'run \"a b\" c\\ d ''e''\"\" f'}", "a.words"),
            parse_yaml("[run, a b, c d, e, f]", "x"));
  EXPECT_EQ(resolved("a: {prefixes: one two}", "a.prefixes"), parse_yaml("[one two]", "x"));
  EXPECT_EQ(resolved("a: {any: {x: [1]}}", "a.any"), parse_yaml("{x: [1]}", "x"));
  EXPECT_EQ(resolved("a: {env: {K: v}}", "a.env"), parse_yaml("{K: v}", "x"));
  EXPECT_EQ(resolved("a: {big: 123456789012345678901234567890}", "a.big").scalar_text(),
            "123456789012345678901234567890");
}

TEST(Resolve, KnowsNamesOfNumberTypes) {
  const std::pair<const char*, const char*> names[] = {
      {"bf16", "bfloat16"},      {"torch.bfloat16", "bfloat16"},
      {"fp16", "float16"},       {"np.float64", "float64"},
      {"fp64", "float64"},       {"numpy.int32", "int32"},
      {"torch.fp32", "float32"}, {"uint16", "uint16"}};
  for (const auto& [written, plain] : names)
    EXPECT_EQ(resolved(std::string("a: {dtype: ") + written + "}", "a.dtype"), Node::text(plain))
        << written;
  EXPECT_TRUE(resolved("a: {data_type: null}", "a.data_type").is_null());
  const std::string expected =
      "expected a number type (one of float64, float32, float16, bfloat16, int64, int32, "
      "int16, int8, uint8, uint16), found ";
  EXPECT_EQ(error_of("a: {dtype: flaot32}"),
            "t.yaml:1: a.dtype: " + expected + "the text \"flaot32\"; did you mean float32?");
  EXPECT_EQ(error_of("a: {dtype: 32}"), "t.yaml:1: a.dtype: " + expected + "32");
  EXPECT_EQ(error_of("a: {dtype: tf.float32}"),
            "t.yaml:1: a.dtype: " + expected + "the text \"tf.float32\"");
}

struct Case {
  const char *yaml, *sentence;
};

TEST(Resolve, SaysWhatWasExpectedFoundAndWhatToWrite) {
  const Case cases[] = {
      // integers
      {"a: {count: 1_0}",
       "a.count: expected an integer from 1 to 9, found the text \"1_0\"; write 10"},
      {"a: {count: '1,000'}",
       "a.count: expected an integer from 1 to 9, found the text \"1,000\"; write 1000"},
      {"a: {count: 1.000.000}",
       "a.count: expected an integer from 1 to 9, found the text \"1.000.000\"; write 1000000"},
      {"a: {count: '-1_0'}",
       "a.count: expected an integer from 1 to 9, found the text \"-1_0\"; write -10"},
      {"a: {count: '7'}",
       "a.count: expected an integer from 1 to 9, found the quoted text \"7\"; write 7 without "
       "quotes"},
      {"a: {count: 7.0}", "a.count: expected an integer from 1 to 9, found 7.0; write 7"},
      {"a: {count: 7.5}", "a.count: expected an integer from 1 to 9, found 7.5"},
      {"a: {count: .inf}", "a.count: expected an integer from 1 to 9, found .inf"},
      {"a: {count: true}",
       "a.count: expected an integer from 1 to 9, found true (a boolean never passes for a "
       "number); write 1"},
      {"a: {count: 0}", "a.count: expected an integer from 1 to 9, found 0"},
      {"a: {count: 99999999999999999999}",
       "a.count: expected an integer of at most 64 bits, found 99999999999999999999"},
      {"a: {count: null}",
       "a.count: expected an integer from 1 to 9, found null; leave the key out for its default 5"},
      {"a: {count: ''}", "a.count: expected an integer from 1 to 9, found the quoted text \"\""},
      {"a: {count: [1]}", "a.count: expected an integer from 1 to 9, found a list"},
      {"a: {count: {x: 1}}", "a.count: expected an integer from 1 to 9, found a block"},
      {"a: {count: x}", "a.count: expected an integer from 1 to 9, found the text \"x\""},
      {"a: {keep: -1}", "a.keep: expected an integer above 0, or null (keeps all), found -1"},
      {"a: {keep: 0}", "a.keep: expected an integer above 0, or null (keeps all), found 0"},
      {"a: {big: 1.0}", "a.big: expected an integer, found 1.0; write 1"},
      // numbers
      {"a: {share: 1e-4x}", "a.share: expected a number from 0 to 1, found the text \"1e-4x\""},
      {"a: {share: '1e-4'}",
       "a.share: expected a number from 0 to 1, found the quoted text \"1e-4\"; write 1e-4 without "
       "quotes"},
      {"a: {share: 1_000}",
       "a.share: expected a number from 0 to 1, found the text \"1_000\"; write 1000"},
      {"a: {share: 1.5e0}", "a.share: expected a number from 0 to 1, found 1.5e0"},
      {"a: {share: false}",
       "a.share: expected a number from 0 to 1, found false (a boolean never passes for a number); "
       "write 0"},
      {"a: {share: .nan}",
       "a.share: expected a number from 0 to 1, found .nan; write a finite number"},
      // booleans
      {"a: {flag: on}", "a.flag: expected true or false, found the text \"on\"; write true"},
      {"a: {flag: Yes}", "a.flag: expected true or false, found the text \"Yes\"; write true"},
      {"a: {flag: off}", "a.flag: expected true or false, found the text \"off\"; write false"},
      {"a: {flag: no}", "a.flag: expected true or false, found the text \"no\"; write false"},
      {"a: {flag: 1}", "a.flag: expected true or false, found 1; write true"},
      {"a: {flag: 'true'}",
       "a.flag: expected true or false, found the quoted text \"true\"; write true without quotes"},
      {"a: {flag: ~}",
       "a.flag: expected true or false, found null; leave the key out for its default false"},
      {"a: {flag: 2}", "a.flag: expected true or false, found 2"},
      // texts
      {"a: {title: 5}", "a.title: expected a text, found 5; write \"5\" in quotes"},
      {"a: {title: 1.0e-4}", "a.title: expected a text, found 1.0e-4; write \"1.0e-4\" in quotes"},
      {"a: {title: true}", "a.title: expected a text, found true; write \"true\" in quotes"},
      {"a: {title: []}", "a.title: expected a text, found a list"},
      {"a: {style: cosin}",
       "a.style: expected one of none, linear, cosine, found the text \"cosin\"; did you mean "
       "cosine?"},
      {"a: {style: 3}", "a.style: expected one of none, linear, cosine, found 3"},
      {"a: {style: null}",
       "a.style: expected one of none, linear, cosine, found null; leave the key out for its "
       "default none"},
      {"a: {biases: 123}", "a.biases: expected one of true, false, nowhere, found 123"},
      // lists and dictionaries
      {"a: {scales: 0}",
       "a.scales: expected a list of numbers of at least 0 or null, found 0; write [0]"},
      {"a: {scales: [-1]}", "a.scales: entry 0: expected a number of at least 0 or null, found -1"},
      {"a: {scales: [1, x]}",
       "a.scales: entry 1: expected a number of at least 0 or null, found the text \"x\""},
      {"a: {ints: [1, 2.0]}", "a.ints: entry 1: expected an integer, found 2.0; write 2"},
      {"a: {ints: {}}", "a.ints: expected a list of integers, found a block"},
      {"a: {texts: x}", "a.texts: expected a list of texts, found the text \"x\"; write [x]"},
      {"a: {texts: [1]}", "a.texts: entry 0: expected a text, found 1; write \"1\" in quotes"},
      {"a: {words: 'a \"b'}",
       "a.words: expected a command with closed quotes, found the text \"a \\\"b\""},
      {"a: {env: {N: 4}}",
       "a.env: expected a text for the entry N, found 4; write \"4\" in quotes"},
      {"a: {env: [x]}", "a.env: expected a block of texts, found a list"},
      // blocks
      {"a: 3",
       "a: is a block, not a number; some of its keys are count, keep, share, style, biases, "
       "dtype"},
      {"a: text",
       "a: is a block, not a text; some of its keys are count, keep, share, style, biases, dtype"},
      {"a: cosine", "a: is a block, not a text; write a.style: cosine"},
      {"a: null", "a: is a block, not null; write keys below it, or remove the line"},
      {"b: {inner: [1]}", "b.inner: is a block, not a list"},
      // keys of the program's own
      {"b: {inner: {fixed: 2}}",
       "b.inner.fixed: expected 1, found 2: more than one is not offered"},
      {"b: {inner: {computed: 2}}", "b.inner.computed: is computed; remove the line"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(error_of(c.yaml), std::string("t.yaml:1: ") + c.sentence) << c.yaml;
  }
  EXPECT_EQ(error_of("a:\n  share: 1,5"),
            "t.yaml:2: a.share: expected a number from 0 to 1, found the text \"1,5\"");
}

TEST(Resolve, ReportsAllProblemsAtOnceWithTheirLines) {
  EXPECT_EQ(error_of("a:\n  count: x\n  flag: on\n  cuont: 1\nb:\n  inner: 3\n"),
            "t.yaml:2: a.count: expected an integer from 1 to 9, found the text \"x\"\n"
            "t.yaml:3: a.flag: expected true or false, found the text \"on\"; write true\n"
            "t.yaml:4: a.cuont: unknown key; did you mean a.count?\n"
            "t.yaml:6: b.inner: is a block, not a number");
}

TEST(Resolve, NamesTheCommandLine) {
  EXPECT_EQ(error_of("a: {count: 2}", {"a.count=x", "a.zzzzz=1"}),
            "command line: a.zzzzz: unknown key\n"
            "command line: a.count: expected an integer from 1 to 9, found the text \"x\"");
}

TEST(Resolve, AcceptsOldNamesWithAWarning) {
  Resolved result = resolve(small_schema(), parse_yaml("a:\n  old_count: 7\n", "t.yaml"));
  EXPECT_EQ(result.root.get<int64_t>("a.count"), 7);
  EXPECT_EQ(result.warnings,
            std::vector<std::string>{"t.yaml:2: a.old_count: old name; write a.count"});
  result = resolve(small_schema(), parse_yaml("a: {gone: {count: 3}}", "t.yaml"));
  EXPECT_EQ(result.root.get<int64_t>("a.count"), 3);
  EXPECT_EQ(result.warnings,
            std::vector<std::string>{"t.yaml:1: a.gone.count: old name; write a.count"});
  EXPECT_EQ(error_of("a: {gone: {count: 3, other: 1}}"), "t.yaml:1: a.gone: unknown key");
}

TEST(Resolve, TakesAnOldSwitchForTheFirstTwoChoices) {
  EXPECT_EQ(resolved("a: {use_style: true}", "a.style"), Node::text("linear"));
  EXPECT_EQ(resolved("a: {use_style: false}", "a.style"), Node::text("none"));
  EXPECT_EQ(resolved("a: {use_style: cosine}", "a.style"), Node::text("cosine"));
}

TEST(Resolve, RefusesAnOldNameBesideTheNewOneWithAnotherValue) {
  EXPECT_EQ(error_of("a:\n  count: 2\n  old_count: 3\n"),
            "t.yaml:3: a.old_count: old name of a.count, which has another value (2 at t.yaml:2); "
            "remove this one");
  EXPECT_EQ(error_of("a: {count: 2, old_count: 2}"), "(no error)");
}

TEST(Resolve, WarnsOfValuesWithoutEffect) {
  Resolved result = resolve(small_schema(), parse_yaml("b:\n inner:\n  ignored: 3\n", "t.yaml"));
  EXPECT_EQ(result.warnings, std::vector<std::string>{"t.yaml:3: b.inner.ignored: no effect here"});
  EXPECT_TRUE(
      resolve(small_schema(), parse_yaml("b: {inner: {ignored: 1}}", "t")).warnings.empty());
}

TEST(Resolve, ChoosesBlocksByTheirType) {
  const char* yaml =
      "b:\n sets:\n  Test: {type: mix, parts: [{type: file, path: x}, {type: cut, whole: {type: "
      "file, path: z}}]}\n";
  EXPECT_EQ(to_yaml(resolved(yaml, "b.sets")),
            "Test:\n  parts:\n  - type: file\n    path: x\n  - type: cut\n    whole:\n      type: "
            "file\n      path: z\n"
            "  type: mix\n");
}

TEST(Resolve, NamesTheTypesThatAPlaceTakes) {
  const Case cases[] = {
      {"{Training: {path: x}}",
       "b.sets.Training.type: expected one of file, mix, cut, found nothing; add the key"},
      {"{Training: {type: fil}}",
       "b.sets.Training.type: expected one of file, mix, cut, found fil; did you mean file?"},
      {"{Training: {type: [1]}}",
       "b.sets.Training.type: expected one of file, mix, cut, found a list"},
      {"{Training: x}",
       "b.sets.Training: expected a block with a key type (one of file, mix, cut), found the text "
       "\"x\""},
      {"{Training: {type: file}}",
       "b.sets.Training.path: expected a text, found nothing; add the key"},
      {"{Training: {type: file, path: x, pth: y}}",
       "b.sets.Training.pth: unknown key; did you mean b.sets.Training.path?"},
      {"{Trainin: {type: file, path: x}}",
       "b.sets.Trainin: unknown key; did you mean b.sets.Training?"},
      {"[x]", "b.sets: is a block, not a list; its keys are Training, Test"},
      {"{Test: {type: cut}}",
       "b.sets.Test.whole: expected a block with a key type, found nothing; add the key"},
      {"{Test: {type: cut, whole: {type: mix}}}",
       "b.sets.Test.whole.type: expected one of file, found mix; mix has no place here"},
      {"{Test: {type: mix}}", "b.sets.Test.parts: expected a list of at least 2 blocks, found 0"},
      {"{Test: {type: mix, parts: [{type: file, path: x}]}}",
       "b.sets.Test.parts: expected a list of at least 2 blocks, found 1"},
      {"{Test: {type: mix, parts: {}}}",
       "b.sets.Test.parts: expected a list of blocks, found a block"},
      {"{Test: {type: mix, parts: [{type: file, path: x}, {type: file, path: 1}]}}",
       "b.sets.Test.parts.1.path: expected a text, found 1; write \"1\" in quotes"},
  };
  for (const Case& c : cases)
    EXPECT_EQ(error_of(std::string("b: {sets: ") + c.yaml + "}"),
              std::string("t.yaml:1: ") + c.sentence)
        << c.yaml;
}

TEST(Resolve, RefusesDeclarationsThatContradictThemselves) {
  auto text = [](auto declare) -> std::string {
    Schema schema;
    return test::message_of([&] { declare(schema); }, Status::kInternal);
  };
  EXPECT_EQ(text([](Schema& s) { s.add("a", make("x", Type::kInt, "true")); }),
            "declaration of the configuration key a.x: its default: expected an integer, found "
            "true (a boolean never "
            "passes for a number); write 1");
  EXPECT_EQ(text([](Schema& s) {
              s.add("a", make("x", Type::kInt, "1"));
              s.add("", make("a.x", Type::kInt, "1"));
            }),
            "declaration of the configuration key a.x: expected once, found twice");
  EXPECT_EQ(text([](Schema& s) {
              s.add("a", make("x", Type::kInt, "1"));
              s.add("a", make("x.y", Type::kInt, "1"));
            }),
            "declaration of the configuration key x.y: expected a block above it, found a key");
  EXPECT_EQ(text([](Schema& s) {
              Nested nested;
              nested.path = "x";
              nested.family = "nothing";
              s.add("a", nested);
            }),
            "declaration of the configuration key a.x: expected a declared family");
}

TEST(Resolve, ExaminesWithoutThrowing) {
  Resolved result = examine(small_schema(), parse_yaml("a: {count: x, title: y}", "t.yaml"));
  EXPECT_EQ(result.problems,
            "t.yaml:1: a.count: expected an integer from 1 to 9, found the text \"x\"");
  EXPECT_EQ(result.root.get<int64_t>("a.count"), 5);
  EXPECT_EQ(result.root.get<std::string>("a.title"), "y");
}

TEST(Resolve, ChecksATypedBlockOnItsOwn) {
  auto check = [](const std::string& yaml, const std::string& path) -> std::string {
    try {
      return to_yaml(resolve_typed(small_schema(), "source", parse_yaml(yaml, "s.yaml"), path));
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(check("type: file\npath: x\n", ""), "type: file\npath: x\n");
  EXPECT_EQ(check("type: file\npath: x\npth: y\n", ""),
            "s.yaml:3: pth: unknown key; did you mean path?");
  EXPECT_EQ(
      check("type: fil\n", "b.sets.Test"),
      "s.yaml:1: b.sets.Test.type: expected one of file, mix, cut, found fil; did you mean file?");
  EXPECT_EQ(check("- x", ""),
            "s.yaml:1: expected a block with a key type (one of file, mix, cut), found a list");
}

TEST(Where, NamesFileAndLineOfWhatWasWritten) {
  Node root = resolve(small_schema(), parse_yaml("a:\n  count: 2\n", "t.yaml")).root;
  EXPECT_EQ(where(root, "a.count"), "t.yaml:2: a.count");
  EXPECT_EQ(where(root, "a.share"), "a.share");
  EXPECT_EQ(where(root, "a.absent"), "a.absent");
}

Node overridden(const std::string& yaml, const std::vector<std::string>& arguments) {
  Node user = parse_yaml(yaml, "t.yaml");
  apply_overrides(user, arguments);
  return user;
}

TEST(Overrides, SetKeysAndReplaceWhatWasThere) {
  EXPECT_EQ(overridden("a: {x: 1, y: 2}", {"a.x=3"}), parse_yaml("a: {x: 3, y: 2}", "x"));
  EXPECT_EQ(overridden("a: {x: 1, y: 2}", {"a={x: 5}"}), parse_yaml("a: {x: 5}", "x"));
  EXPECT_EQ(overridden("a: [1, 2]", {"a=[3]"}), parse_yaml("a: [3]", "x"));
  EXPECT_EQ(overridden("{}", {"a.b.c=1e-4", "d=", "e=true", "f=\"1\"", "g=bf16", "h=a=b"}),
            parse_yaml("{a: {b: {c: 0.0001}}, d: null, e: true, f: '1', g: bf16, h: a=b}", "x"));
  EXPECT_EQ(overridden("{}", {"a.x=1", "a.x=2"}), parse_yaml("a: {x: 2}", "x"));
}

TEST(Overrides, OfOnePathKeepTheLastValueInTheFirstPlace) {
  EXPECT_EQ(overridden("{}", {"a.b=1", "a={}", "a.b=2"}), parse_yaml("a: {}", "x"));
  Node user = overridden("batch: {micro_batch_size: 2, batch_size: 64}",
                         {"batch.batch_size=32", "batch={}", "batch.micro_batch_size=4"});
  EXPECT_EQ(user, parse_yaml("batch: {micro_batch_size: 4}", "x"));
}

std::string override_error(const std::string& yaml, const std::vector<std::string>& arguments) {
  return test::message_of([&] { overridden(yaml, arguments); }, Status::kInvalid);
}

TEST(Overrides, ThatCannotBeReadAreCollected) {
  EXPECT_EQ(override_error("{}", {"a", "x=1", "=2", "b..c=1"}),
            "Cannot parse arguments a =2 b..c=1\n"
            "command line: a: expected key.path=VALUE\n"
            "command line: =2: expected key.path=VALUE\n"
            "command line: b..c=1: expected key.path=VALUE with a name on both sides of each dot");
  EXPECT_THAT(override_error("{}", {"a=[1"}),
              HasSubstr("command line: a=[1: VALUE:1: expected YAML, found a mistake in its form"));
  EXPECT_THAT(override_error("{}", {"a={x: 1, x: 2}"}),
              HasSubstr("x: expected each key once, found it again"));
}

TEST(Overrides, DoNotWalkThroughValues) {
  EXPECT_EQ(override_error("a: text\nl: [1]\nn: null\n", {"a.x=1", "l.0=2", "n.x=1"}),
            "command line: a: expected a block to put x in, found the text \"text\"\n"
            "command line: l: expected a block to put 0 in, found a list; give the whole list\n"
            "command line: n: expected a block to put x in, found null");
}

TEST(LoadFile, WantsABlockAtTheTop) {
  TemporaryDirectory folder;
  auto load = [&](const std::string& content) -> std::string {
    std::string path = (folder.path() / "t.yaml").string();
    write_file_atomic(path, content);
    try {
      return to_yaml(load_file(path));
    } catch (const Error& error) {
      std::string text = error.what();
      return text.rfind(path, 0) == 0 ? text.substr(path.size()) : text;
    }
  };
  EXPECT_EQ(load("a: 1\n"), "a: 1\n");
  EXPECT_EQ(load("# nothing\n"), "{}\n");
  EXPECT_EQ(load("\n- a\n"), ":2: expected a block of keys at the top, found a list");
  EXPECT_EQ(load("text"), ":1: expected a block of keys at the top, found the text \"text\"");
  const std::string absent = (folder.path() / "absent.yaml").string();
  EXPECT_EQ(test::message_of([&] { load_file(absent); }, Status::kNotFound),
            "expected a configuration file at " + absent +
                ", found none; check the path, relative ones begin at the working directory");
}

TEST(Dump, LeavesOutDefaultsOfLittleImportance) {
  Schema schema;
  Field core = make("core", Type::kInt, "1");
  core.level = kCore;
  Field feature = make("feature", Type::kInt, "1");
  feature.level = kFeature;
  Field derived = make("derived", Type::kInt, "1");
  derived.derived = true;
  Field list = make("list", Type::kIntList, "[1]");
  list.level = kExpert;
  schema.add("a", {core, feature, derived, list, make("empty", Type::kIntList, "[]")});
  schema.add("b", feature);
  Node root = resolve(schema, Node::map()).root;
  EXPECT_EQ(to_yaml(dump(schema, root, 0)), "a:\n  core: 1\n  list:\n  - 1\n");
  EXPECT_EQ(to_yaml(dump(schema, root, 10)),
            "a:\n  core: 1\n  feature: 1\n  list:\n  - 1\nb:\n  feature: 1\n");
  EXPECT_EQ(to_yaml(dump(schema, root, -1)),
            "a:\n  core: 1\n  feature: 1\n  list:\n  - 1\n  empty: []\nb:\n  feature: 1\n");
  root.set("b.feature", Node::integer(2));
  EXPECT_EQ(to_yaml(dump(schema, root, 0)), "a:\n  core: 1\n  list:\n  - 1\nb:\n  feature: 2\n");
}

}  // namespace
}  // namespace fastllm::config
