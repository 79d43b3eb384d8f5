// host->config_*: what plugins read from and write into a configuration node, with its rules on
// absence, types and lifetimes.
#include "core/plugin/config_services.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/error.hpp"
#include "core/plugin/context.hpp"
#include "core/plugin/host_services.hpp"

namespace fastllm::plugin {
namespace {

using ::testing::HasSubstr;

class ConfigServices : public ::testing::Test {
 protected:
  static constexpr const char* kYaml = R"(
size: 7
rate: 2.5
large: 1e3
flag: true
name: "on"
nothing: null
empty: []
scales: [1, null, 0.5]
sizes: [3, 1]
names: [a, null, 3]
dotted.key: 9
block: {x: 1, y: {z: 2}}
)";
  ConfigServices()
      : node_(config::parse_yaml(kYaml, "train.yaml")), tree_(node_), config_(tree_.handle()) {}

  template <class T>
  fastllm_status get(const char* path, int32_t type, T* value) {
    return host_.config_get(config_, path, type, value);
  }

  config::Node node_;
  ConfigTree tree_;
  fastllm_config* config_;
  const fastllm_host& host_ = *host_table();
};

TEST_F(ConfigServices, ReadScalarsByType) {
  int64_t integer = 0;
  EXPECT_EQ(get("size", FASTLLM_I64, &integer), FASTLLM_OK);
  EXPECT_EQ(integer, 7);
  double real = 0;
  EXPECT_EQ(get("size", FASTLLM_F64, &real), FASTLLM_OK);  // an integer is a number
  EXPECT_EQ(real, 7);
  EXPECT_EQ(get("large", FASTLLM_F64, &real), FASTLLM_OK);
  EXPECT_EQ(real, 1000);
  int32_t flag = 0;
  EXPECT_EQ(get("flag", FASTLLM_BOOL, &flag), FASTLLM_OK);
  EXPECT_EQ(flag, 1);
  const char* text = nullptr;
  EXPECT_EQ(get("name", FASTLLM_STR, &text), FASTLLM_OK);
  EXPECT_STREQ(text, "on");
  EXPECT_EQ(get("size", FASTLLM_STR, &text), FASTLLM_OK);  // any scalar as text
  EXPECT_STREQ(text, "7");
  EXPECT_EQ(get("dotted\\.key", FASTLLM_I64, &integer), FASTLLM_OK);
  EXPECT_EQ(integer, 9);
  EXPECT_EQ(get("block.y.z", FASTLLM_I64, &integer), FASTLLM_OK);
  EXPECT_EQ(integer, 2);
  EXPECT_EQ(get("sizes.1", FASTLLM_I64, &integer), FASTLLM_OK);
  EXPECT_EQ(integer, 1);
}

TEST_F(ConfigServices, AbsentAndNullAreNotFoundWithoutAText) {
  auto caller = Identity::make("caller", "1", "x.so");
  CallScope scope(*caller, "test");
  int64_t value = 42;
  for (const char* path : {"nothing", "missing", "size.below", "block.missing", "sizes.7"}) {
    EXPECT_EQ(get(path, FASTLLM_I64, &value), FASTLLM_NOT_FOUND) << path;
  }
  EXPECT_EQ(value, 42);
  EXPECT_FALSE(failure_given());
}

TEST_F(ConfigServices, OtherTypesAreSentencesWithTheirPlace) {
  auto caller = Identity::make("caller", "1", "x.so");
  struct Bad {
    const char* path;
    int32_t type;
    const char* sentence;
  };
  char untouched[64] = {};
  for (const Bad& bad :
       {Bad{"rate", FASTLLM_I64, "train.yaml:3: rate: expected an integer, found a number"},
        Bad{"name", FASTLLM_F64, "train.yaml:6: name: expected a number, found a text"},
        Bad{"size", FASTLLM_BOOL, "train.yaml:2: size: expected true or false, found an integer"},
        Bad{"block", FASTLLM_STR, "train.yaml:13: block: expected a text, found a block"},
        Bad{"scales", FASTLLM_I64_LIST, "scales: expected a list of integers, found a null entry"},
        Bad{"names", FASTLLM_F64_LIST, "names: expected a list of numbers, found"},
        Bad{"block", FASTLLM_STR_LIST, "block: expected a list of texts, found a block"},
        Bad{"size", 99,
            "expected a type FASTLLM_I64 .. FASTLLM_STR_LIST and a place for the value, found type "
            "99"}}) {
    CallScope scope(*caller, "test");
    EXPECT_EQ(get(bad.path, bad.type, untouched), FASTLLM_INVALID) << bad.path;
    EXPECT_THAT(latest_failure(), HasSubstr(bad.sentence));
  }
  EXPECT_THAT(untouched, ::testing::Each(0));
  EXPECT_EQ(host_.config_get(nullptr, "size", FASTLLM_I64, untouched), FASTLLM_INVALID);
  EXPECT_EQ(host_.config_get(config_, nullptr, FASTLLM_I64, untouched), FASTLLM_INVALID);
  EXPECT_EQ(host_.config_get(config_, "size", FASTLLM_I64, nullptr), FASTLLM_INVALID);
}

TEST_F(ConfigServices, ListsFillArraysWithNullEntries) {
  double scales[3];
  ASSERT_EQ(get("scales", FASTLLM_F64_LIST, scales), FASTLLM_OK);
  EXPECT_EQ(scales[0], 1);
  EXPECT_TRUE(std::isnan(scales[1]));
  EXPECT_EQ(scales[2], 0.5);
  int64_t sizes[2];
  ASSERT_EQ(get("sizes", FASTLLM_I64_LIST, sizes), FASTLLM_OK);
  EXPECT_THAT(sizes, ::testing::ElementsAre(3, 1));
  const char* names[3];
  ASSERT_EQ(get("names", FASTLLM_STR_LIST, names), FASTLLM_OK);
  EXPECT_STREQ(names[0], "a");
  EXPECT_EQ(names[1], nullptr);
  EXPECT_STREQ(names[2], "3");
  ASSERT_EQ(get("size", FASTLLM_I64_LIST, sizes),
            FASTLLM_OK);  // config_size calls a scalar one entry
  EXPECT_EQ(sizes[0], 7);
}

TEST_F(ConfigServices, SizesAndKeys) {
  int64_t count = 0;
  for (auto [path, expected] : {std::pair{"scales", 3},
                                {"empty", 0},
                                {"block", 2},
                                {"size", 1},
                                {"nothing", -1},
                                {"missing", -1},
                                {"", 12}}) {
    EXPECT_EQ(host_.config_size(config_, path, &count), FASTLLM_OK) << path;
    EXPECT_EQ(count, expected) << path;
  }
  const char* key = nullptr;
  EXPECT_EQ(host_.config_key(config_, "block", 1, &key), FASTLLM_OK);
  EXPECT_STREQ(key, "y");
  EXPECT_EQ(host_.config_key(config_, "block", 2, &key), FASTLLM_INVALID);
  EXPECT_EQ(host_.config_key(config_, "block", -1, &key), FASTLLM_INVALID);
  EXPECT_EQ(host_.config_key(config_, "scales", 0, &key), FASTLLM_INVALID);
  EXPECT_STREQ(key, "y");
}

TEST_F(ConfigServices, TextsAndNodesHandedOutStay) {
  const char* name = nullptr;
  fastllm_config* block = nullptr;
  ASSERT_EQ(get("name", FASTLLM_STR, &name), FASTLLM_OK);
  ASSERT_EQ(get("block.y", FASTLLM_NODE, &block), FASTLLM_OK);
  int64_t value = 5;
  for (int i = 0; i < 100; ++i) {  // the tree moves in memory below them
    std::string path = "new" + std::to_string(i);
    ASSERT_EQ(host_.config_set(config_, path.c_str(), FASTLLM_I64, &value, 1), FASTLLM_OK);
  }
  ASSERT_EQ(host_.config_set(config_, "name", FASTLLM_I64, &value, 1), FASTLLM_OK);
  EXPECT_STREQ(name, "on");
  int64_t z = 0;
  EXPECT_EQ(host_.config_get(block, "z", FASTLLM_I64, &z), FASTLLM_OK);
  EXPECT_EQ(z, 2);
  ASSERT_EQ(host_.config_set(config_, "block", FASTLLM_I64, &value, 1), FASTLLM_OK);
  EXPECT_EQ(host_.config_get(block, "z", FASTLLM_I64, &z),
            FASTLLM_NOT_FOUND);  // gone, not dangling
}

TEST_F(ConfigServices, SetEveryType) {
  int64_t integers[] = {1, 2};
  double reals[] = {0.5, std::nan("")};
  const char* texts[] = {"a", nullptr};
  int32_t yes = 1;
  fastllm_config* block = nullptr;
  ASSERT_EQ(get("block", FASTLLM_NODE, &block), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.i", FASTLLM_I64, integers, 1), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.f", FASTLLM_F64, reals, 1), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.b", FASTLLM_BOOL, &yes, 1), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.s", FASTLLM_STR, texts, 1), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.n", FASTLLM_NODE, &block, 1), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.is", FASTLLM_I64_LIST, integers, 2), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.fs", FASTLLM_F64_LIST, reals, 2), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.ss", FASTLLM_STR_LIST, texts, 2), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.none", FASTLLM_STR, nullptr, 1), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(config_, "out.empty", FASTLLM_I64_LIST, nullptr, 0), FASTLLM_OK);
  EXPECT_EQ(
      *node_.find("out"),
      config::parse_yaml(
          R"({"i": 1, "f": 0.5, "b": true, "s": "a", "n": {"x": 1, "y": {"z": 2}}, "is": [1,2], "fs": [0.5,null], "ss": ["a",null], "none": null, "empty": []})",
          "expected"));
  EXPECT_EQ(host_.config_set(config_, "out.bad", FASTLLM_I64_LIST, integers, -1), FASTLLM_INVALID);
  EXPECT_EQ(host_.config_set(config_, "out.bad", FASTLLM_I64_LIST, integers, INT64_MAX),
            FASTLLM_INVALID);
  EXPECT_EQ(host_.config_set(config_, "out.bad", 99, integers, 1), FASTLLM_INVALID);
  EXPECT_FALSE(node_.has("out.bad"));
}

TEST_F(ConfigServices, ParseAndPrint) {
  EXPECT_EQ(host_.config_parse(config_, "in", "{\"a\": [1, 2.5], \"b\": null}"), FASTLLM_OK);
  const char* text = nullptr;
  EXPECT_EQ(host_.config_text(config_, "in", 1, &text), FASTLLM_OK);
  EXPECT_STREQ(text, "{\"a\": [1, 2.5], \"b\": null}");
  EXPECT_EQ(host_.config_text(config_, "in.a", 0, &text), FASTLLM_OK);
  EXPECT_STREQ(text, "- 1\n- 2.5\n");
  EXPECT_EQ(host_.config_parse(config_, "in", "[1"), FASTLLM_INVALID);
  EXPECT_EQ(host_.config_parse(config_, "in", nullptr), FASTLLM_INVALID);
}

TEST_F(ConfigServices, APluginsOwnNodeTakesComputedDefaultsOnly) {
  std::vector<std::string> declared = {"nothing", "size"};
  ConfigTree own(node_, &declared);
  int64_t value = 3;
  EXPECT_EQ(host_.config_set(own.handle(), "nothing", FASTLLM_I64, &value, 1), FASTLLM_OK);
  EXPECT_EQ(host_.config_set(own.handle(), "nothing", FASTLLM_I64, &value, 1),
            FASTLLM_OK);  // its own value
  EXPECT_EQ(host_.config_set(own.handle(), "size", FASTLLM_I64, &value, 1), FASTLLM_INTERNAL);
  EXPECT_EQ(host_.config_set(own.handle(), "other", FASTLLM_I64, &value, 1), FASTLLM_INTERNAL);
  EXPECT_EQ(host_.config_parse(own.handle(), "", "{}"), FASTLLM_INTERNAL);
  EXPECT_EQ(node_.get<int64_t>("nothing"), 3);
  EXPECT_EQ(node_.get<int64_t>("size"), 7);
}

}  // namespace
}  // namespace fastllm::plugin
