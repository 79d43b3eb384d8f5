// Plugins that break the contract, built as real shared libraries: each ends in one good sentence
// that names the plugin, the layer and the direction, or, where the process cannot go on, in one
// line before it dies by its signal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <memory>

#include "core/base/error.hpp"
#include "core/plugin/registry.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/guarded_memory.hpp"
#include "tests/support/tensor.hpp"

// The crash handler under test stands before the sanitizer's; without this the process would end by
// exit, not by signal.
extern "C" const char* __asan_default_options() {
  return "handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:use_"
         "sigaltstack=0";
}

namespace fastllm {
namespace {

using testing::Environment;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using testing::Tensor;

constexpr const char* kBad = "plugin bad (libfastllm_bad.so 0.0.1)";

std::unique_ptr<plugin::Registry> registry() {
  return std::make_unique<plugin::Registry>(plugin::SearchOptions{{FASTLLM_TEST_PLUGINS}, false});
}

// A model of a bad (or throwing) plugin with what its one layer needs.
struct Bench {
  explicit Bench(const std::string& name = "bad") : plugins(registry()) {
    plugins->load(name);
    base_model.set("width", config::Node::integer(1));
    base_model.set("computed", config::Node());
    model = plugins->model(name).create(base_model);
    if (!model->description().layers[0].inputs.empty()) {
      inputs = {tokens.view()};
      d_inputs = {d_tokens.view()};
    }
  }
  fastllm_call call(uint32_t flags = 0) {
    fastllm_call result{};
    result.size = sizeof result;
    result.flags = flags;
    result.device = {kDLCPU, 0};
    return result;
  }
  model::Saved forward(uint32_t flags = 0) {
    return model->forward(0, call(flags), inputs, std::vector<DLTensor*>{loss.view()});
  }
  void backward(model::Saved saved) {
    model->backward(0, call(FASTLLM_SAVE), std::move(saved),
                    std::vector<const DLTensor*>{loss.view()}, d_inputs);
  }

  std::unique_ptr<plugin::Registry> plugins;
  config::Node base_model = config::Node::map();
  Tensor<int64_t> tokens{{1, 2}}, d_tokens{{1, 2}};
  Tensor<float> loss{{}};
  std::vector<const DLTensor*> inputs;
  std::vector<DLTensor*> d_inputs;
  std::unique_ptr<model::Model> model;
};

// Runs it and returns what it said; fails when it said nothing.
template <class Body>
Error error_of(Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    return e;
  }
  ADD_FAILURE() << "expected an Error, found none";
  return Error(Status::kOk, "");
}

struct Case {
  const char* mode;
  const char* text;  // part of the sentence
  Status status = Status::kInternal;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.mode; }
std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.mode;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

TEST(BadPlugin, WithoutAModeIsAGoodOne) {
  Bench bench;
  EXPECT_EQ(bench.base_model.get<double>("computed"), 0.5);
  bench.backward(bench.forward(FASTLLM_SAVE));
  EXPECT_EQ(bench.model->flops(0, 1, 1).forward, 1);
}

// ---------------------------------------------------------------- loading

class BadLoad : public ::testing::TestWithParam<Case> {};

TEST_P(BadLoad, IsRefusedWithASentence) {
  Environment mode("FASTLLM_BAD", GetParam().mode);
  auto plugins = registry();
  Error error = error_of([&] { plugins->load("bad"); });
  EXPECT_THAT(error.what(), StartsWith(kBad));
  EXPECT_THAT(error.what(), HasSubstr(GetParam().text));
  EXPECT_EQ(error.status(), GetParam().status);
  EXPECT_TRUE(plugins->loaded().empty());
}

INSTANTIATE_TEST_SUITE_P(
    Door, BadLoad,
    ::testing::Values(
        Case{"refuse", ": refused this host: expected host->teleport, found an older host",
             Status::kUnsupported},
        Case{"refuse_silently",
             ": refused this host and gave no reason; this is a fault of the plugin",
             Status::kUnsupported},
        Case{"null_get", "expected fastllm_plugin.get, found NULL"},
        Case{"null_manifest", "expected fastllm_plugin.manifest, found NULL"},
        Case{"other_manifest",
             "expected fastllm_plugin.manifest to be the text of section .fastllm"},
        Case{"door_size=0", "expected fastllm_plugin.size to be sizeof(fastllm_plugin), found 0"},
        Case{"door_size=4", "found 4"}, Case{"door_size=17", "found 17"},
        Case{"door_size=2147483648", "found 2147483648"},
        Case{"door_size=4294967295", "found 4294967295"},
        Case{"door_cut=8",
             "expected fastllm_plugin.manifest, found a table that ends before it (size 8)"},
        Case{"door_cut=16",
             "expected fastllm_plugin.get, found a table that ends before it (size 16)"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Tables, BadLoad,
    ::testing::Values(
        Case{"endless_get", "expected get(\"fastllm.model/0\", 64) to return NULL at last"},
        Case{"no_model", "expected the models of its manifest (bad), found () in its tables"},
        Case{"null_type", "expected fastllm_model_api.type, found NULL"},
        Case{"bad_type", "expected fastllm_model_api.type to be letters"},
        Case{"null_forward", "expected fastllm_model_api.forward, found NULL"},
        Case{"model_size=0",
             "expected fastllm_model_api.size to be sizeof(fastllm_model_api), found 0"},
        Case{"model_size=9", "found 9"}, Case{"model_size=2147483648", "found 2147483648"},
        Case{"model_size=4294967295", "found 4294967295"},
        Case{"model_cut=16",
             "expected fastllm_model_api.create, found a table that ends before it (size 16)"},
        Case{"null_read", "expected fastllm_format_api.read, found NULL"},
        Case{"no_caps",
             "expected fastllm_format_api.caps with FASTLLM_CAN_LOAD or FASTLLM_CAN_SAVE, found "
             "neither"},
        Case{"other_caps",
             "expected the abilities of format badfmt in its manifest (load, save), found (load, "
             "save, slice) in its table"},
        Case{"caps_without_shards", "expected fastllm_format_api.world, found NULL"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Fields, BadLoad,
    ::testing::Values(
        Case{"field_null", "expected a fastllm_field, found NULL"},
        Case{"field_null_sink", "expected a sink in emit->field, found NULL"},
        Case{"field_null_path", "expected field number 0 to have a name, found NULL"},
        Case{"field_twice", "expected each field once, found width twice"},
        Case{"field_type",
             "expected field width to have a type FASTLLM_I64 .. FASTLLM_STR_LIST, found 99"},
        Case{"field_default_type",
             "expected the default of field width to be of its type, found \"wide\""},
        Case{"field_default_yaml", "expected the default of field width to be YAML, found \"[1\""},
        Case{"field_choice",
             "expected the default of field width to be one of its choices, found \"1\""},
        Case{"field_bounds",
             "expected field width to have a minimum below its maximum, found 2 and 1"},
        Case{"field_no_help", "expected a help sentence for field width, found NULL"},
        Case{"field_unknown_flag",
             "expected flags that this host knows in its fastllm_field, found 0x100000",
             Status::kUnsupported},
        Case{"field_ignored_refusal",
             "expected the name of field number 0 to be 1 to 512 letters, digits and _ . - /, "
             "found \"no spaces\""},
        Case{"field_other", "expected other things than emit->pair from this function"}),
    case_name);

TEST(BadPlugin, ThatThrowsInItsDoorIsNamed) {
  Environment mode("FASTLLM_BAD", "throw_in_door");
  Error error = error_of([] { registry()->load("throwing"); });
  EXPECT_STREQ(error.what(),
               "plugin throwing (libfastllm_throwing.so 0.0.1), fastllm_plugin_v0: threw "
               "std::runtime_error across the C edge: "
               "no door today; this is a fault of the plugin");
}

// ---------------------------------------------------------------- create and describe

class BadCreate : public ::testing::TestWithParam<Case> {};

TEST_P(BadCreate, IsRefusedWithASentence) {
  Environment mode("FASTLLM_BAD", GetParam().mode);
  Error error = error_of([] { Bench bench; });
  EXPECT_THAT(error.what(), StartsWith(kBad));
  EXPECT_THAT(error.what(), HasSubstr(GetParam().text));
  EXPECT_EQ(error.status(), GetParam().status);
}

INSTANTIATE_TEST_SUITE_P(
    Create, BadCreate,
    ::testing::Values(
        Case{"create_nothing",
             ", create: returned FASTLLM_OK and no model; this is a fault of the plugin"},
        Case{"create_silent",
             ", create: gave no reason (status 3, invalid); this is a fault of the plugin",
             Status::kInvalid},
        Case{"create_fail_ok", ", create: said OK"},
        Case{"set_undeclared",
             ", create: expected config_set of a declared field, found \"depth\", which is none"},
        Case{"set_given",
             ", create: expected config_set of a field that is null, found width with a value "
             "already"}),
    case_name);

INSTANTIATE_TEST_SUITE_P(
    Describe, BadCreate,
    ::testing::Values(
        Case{"no_layers",
             ", describe: expected a model of at least one layer, found none; this is a fault of "
             "the plugin"},
        Case{"describe_unknown_status",
             ", describe: gave no reason (status 77, unknown to this host); this is a fault of the "
             "plugin"},
        Case{"param_before_layer", "expected emit->layer before the first emit->param, found none"},
        Case{"field_in_describe", "expected other things than emit->field from this function"},
        Case{"endless_layers", "expected at most 1048576 layers, found more"},
        Case{"describe_ignored_refusal", "expected layer 1 to have a name, found NULL"},
        Case{"layer_null_name", "expected layer 0 to have a name, found NULL"},
        Case{"layer_bad_name", "expected the name of layer 0 to be 1 to 512 letters"},
        Case{"layer_cost", "layer layer.0: expected a cost from 0, found nan"},
        Case{"port_null", "expected a fastllm_port, found NULL"},
        Case{"port_null_name", "expected layer 0 (layer.0), input 0 to have a name, found NULL"},
        Case{"port_negative_dim",
             "layer 0 (layer.0), input tokens to have dimensions of 1 or more, found -77 in "
             "dimension 0"},
        Case{"port_zero_dim",
             "layer 0 (layer.0), input tokens to have dimensions of 1 or more, found 0 in "
             "dimension 0"},
        Case{"port_overflow", "layer 0 (layer.0), input tokens to have fewer than 2^63 bytes"},
        Case{"port_dtype",
             "layer 0 (layer.0), input tokens to have a known dtype, found code 99, 64 bits, 1 "
             "lanes",
             Status::kUnsupported},
        Case{"port_unknown_flag",
             "expected flags that this host knows in its fastllm_port, found 0x40000000",
             Status::kUnsupported},
        Case{"duplicate_ports", "expected inputs of different names, found tokens twice"},
        Case{"unknown_wiring",
             "layer layer.0: expected an earlier output named like its input later"},
        Case{"cyclic_wiring",
             "layer layer.0: expected an earlier output named like its input later"},
        Case{"loss_not_scalar", "layer layer.0, output loss: expected a scalar"},
        Case{"any_output", "layer layer.0, output any: expected dimensions from 0"},
        Case{"param_null_name",
             "expected layer 0 (layer.0), parameter 0 to have a name, found NULL"},
        Case{"param_negative_dim", "parameter weight to have dimensions of 1 or more, found -4"},
        Case{"param_zero_dim", "parameter weight to have dimensions of 1 or more, found 0"},
        Case{"param_ndim", "parameter weight to have 0 to 16 dimensions, found 1000"},
        Case{"param_null_shape", "parameter weight to have 0 to 16 dimensions, found 1 in NULL"},
        Case{"param_init", "parameter weight: expected an initialisation between"},
        Case{"param_plugin_init",
             "expected fastllm_model_api.init since parameter weight has FASTLLM_INIT_PLUGIN, "
             "found NULL"},
        Case{"param_scales",
             "parameter weight: expected the number of learning-rate scales to divide dimension 0 "
             "of size 4, found 3"},
        Case{"param_null_scales",
             "parameter weight to have 0 to 65536 learning-rate scales, found 3 in NULL"},
        Case{"param_twice", "layer layer.0: expected each parameter once, found weight twice"},
        Case{"tied_wrong_shape", "layer layer.1: expected parameter weight to have shape [4]"}),
    case_name);

TEST(BadPlugin, ARefusedConfigurationStaysTheUsers) {
  Environment mode("FASTLLM_BAD", "create_invalid");
  Error error = error_of([] { Bench bench; });
  EXPECT_STREQ(error.what(),
               "width: expected an even number, found 1");  // the caller knows file and line
  EXPECT_EQ(error.status(), Status::kInvalid);
}

TEST(BadPlugin, ReadingAFieldAsAnotherTypeIsASentence) {
  Environment mode("FASTLLM_BAD", "get_wrong_type");
  EXPECT_STREQ(error_of([] { Bench bench; }).what(),
               "width: expected true or false, found an integer");
}

// ---------------------------------------------------------------- forward and backward

class BadForward : public ::testing::TestWithParam<Case> {};

TEST_P(BadForward, IsNamedWithLayerAndDirection) {
  Environment mode("FASTLLM_BAD", GetParam().mode);
  Bench bench;
  Error error = error_of([&] { bench.forward(); });
  EXPECT_EQ(error.what(), std::string(kBad) + ", layer 0 forward: " + GetParam().text);
  EXPECT_EQ(error.status(), GetParam().status);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadForward,
    ::testing::Values(
        Case{"silent", "gave no reason (status 13, internal error); this is a fault of the plugin"},
        Case{"null_text",
             "gave no reason (status 13, internal error); this is a fault of the plugin"},
        Case{"unknown_status",
             "gave no reason (status 77, unknown to this host); this is a fault of the plugin"},
        Case{"negative_status", "minus five (status -5, unknown to this host)"},
        Case{"cancelled", "cancelled", Status::kCancelled},
        Case{"own_thread",
             "gave no reason (status 13, internal error); this is a fault of the plugin"},
        Case{"change_shape",
             "changed the description (shape, strides, data pointer, ..) of output loss; only its "
             "data may be written; "
             "this is a fault of the plugin"},
        Case{"change_data",
             "changed the description (shape, strides, data pointer, ..) of output loss; only its "
             "data may be written; "
             "this is a fault of the plugin"},
        Case{"saved_unasked",
             "kept state for a backward although FASTLLM_SAVE was not asked for; this is a fault "
             "of the plugin"}),
    case_name);

TEST(BadPlugin, ThatChangesAGradientsDescriptionIsNamed) {
  Environment mode("FASTLLM_BAD", "change_gradient");
  Bench bench;
  Error error = error_of([&] { bench.backward(bench.forward(FASTLLM_SAVE)); });
  EXPECT_THAT(error.what(), HasSubstr("layer 0 backward: changed the description (shape, strides, "
                                      "data pointer, ..) of input gradient tokens"));
}

TEST(BadPlugin, FlopsThatAreNoNumberAreRefused) {
  Environment mode("FASTLLM_BAD", "flops_nan");
  Bench bench;
  EXPECT_THAT(error_of([&] { bench.model->flops(0, 1, 1); }).what(),
              HasSubstr("layer 0 flops: expected a number of 0 or more, found nan"));
}

TEST(BadPlugin, AnIgnoredFailureIsWarnedOfOnce) {
  Environment mode("FASTLLM_BAD", "fail_then_ok");
  Bench bench;
  ::testing::internal::CaptureStdout();
  bench.forward();
  bench.forward();
  std::string log = ::testing::internal::GetCapturedStdout();
  std::string expected =
      std::string(kBad) +
      ", layer 0 forward: called host->fail(\"never mind\") and then returned FASTLLM_OK";
  size_t first = log.find(expected);
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(expected, first + 1), std::string::npos) << log;
}

TEST(BadPlugin, LogsInItsName) {
  Environment mode("FASTLLM_BAD", "log");
  Bench bench;
  ::testing::internal::CaptureStdout();
  bench.forward();
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), HasSubstr("plugin bad: a word of warning"));
}

TEST(BadPlugin, LogsInItsNameFromAThreadOfItsOwn) {
  Environment mode("FASTLLM_BAD", "own_thread");
  Bench bench;
  ::testing::internal::CaptureStdout();
  error_of([&] { bench.forward(); });
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("plugin bad: from a thread of its own"));
}

TEST(Throwing, ExceptionsAcrossTheEdgeAreCaughtAndNamed) {
  std::string name = "throwing", label = "plugin throwing (libfastllm_" + name + ".so 0.0.1)";
  auto plugins = registry();
  auto& factory = *plugins->load(name).models().at(0);
  config::Node base_model = config::Node::map();
  auto model = factory.create(base_model);
  fastllm_call call{};
  call.size = sizeof call;
  Tensor<float> loss{{}};
  auto forward = [&] { model->forward(0, call, {}, std::vector<DLTensor*>{loss.view()}); };
  forward();
  {
    Environment mode("FASTLLM_BAD", "throw_exception");
    EXPECT_EQ(error_of(forward).what(), label +
                                            ", layer 0 forward: threw std::out_of_range across the "
                                            "C edge: index 7 of 3; this is a fault of the plugin");
  }
  {
    Environment mode("FASTLLM_BAD", "throw_number");
    EXPECT_EQ(
        error_of(forward).what(),
        label + ", layer 0 forward: threw int across the C edge; this is a fault of the plugin");
  }
  {
    Environment mode("FASTLLM_BAD", "throw_guarded");
    EXPECT_EQ(error_of(forward).what(), label + ", layer 0 forward: index 7 of 3");
  }
  Environment mode("FASTLLM_BAD", "throw_exception");
  ::testing::internal::CaptureStdout();
  model.reset();  // nothing leaves destroy
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr(label + ", destroy: threw std::out_of_range"));
}

// Exceptions of a runtime of its own find handlers in the host or not, as linkers and optimisation have it; the plugin is
// named either way, by an Error or by the last line of the process.
TEST(Throwing, ARuntimeOfItsOwnIsNamedCaughtOrNot) {
  auto plugins = registry();
  auto& factory = *plugins->load("throwing_static").models().at(0);
  config::Node base_model = config::Node::map();
  auto model = factory.create(base_model);
  fastllm_call call{};
  call.size = sizeof call;
  Tensor<float> loss{{}};
  auto forward = [&] { model->forward(0, call, {}, std::vector<DLTensor*>{loss.view()}); };
  forward();
  for (const char* mode : {"throw_exception", "throw_number"}) {
    auto throws = [&] {
      Environment environment("FASTLLM_BAD", mode);
      std::fprintf(stderr, "%s\n", error_of(forward).what());
      std::_Exit(1);
    };
    EXPECT_EXIT(
        throws(), [](int) { return true; },
        "plugin throwing \\(libfastllm_throwing_static.so 0.0.1\\), layer 0 forward: "
        "(threw|aborted)");
  }
  Environment mode("FASTLLM_BAD", "throw_guarded");
  EXPECT_THAT(error_of(forward).what(), HasSubstr(", layer 0 forward: index 7 of 3"));
  model.reset();
}

// ---------------------------------------------------------------- formats

class BadFormat : public ::testing::TestWithParam<Case> {};

TEST_P(BadFormat, IsNamedWithWhatItWorkedOn) {
  auto plugins = registry();
  auto& format = plugins->format("badfmt");
  Environment mode("FASTLLM_BAD", GetParam().mode);
  Error error = error_of([&] {
    format.detect("/x");
    auto reader = format.open("/x");
    reader->list();
    Tensor<float> into({4});
    reader->read("weights", "w", nullptr, into.view());
    auto writer = format.create("/y", config::Node::map(), 0);
    writer->finish(true);
  });
  EXPECT_EQ(error.what(), std::string(kBad) + GetParam().text);
  EXPECT_EQ(error.status(), GetParam().status);
}

INSTANTIATE_TEST_SUITE_P(
    All, BadFormat,
    ::testing::Values(
        Case{"detect_score",
             ", detect /x: expected a score of 0 to 100, found 500; this is a fault of the plugin"},
        Case{"open_nothing",
             ", open /x: returned FASTLLM_OK and no reader; this is a fault of the plugin"},
        Case{"list_null_name", ", list /x: expected tensor 0 to have a name, found NULL"},
        Case{"list_input", ", list /x: expected other things than emit->input from this function"},
        Case{"list_negative_dim",
             ", list /x: expected tensor empty to have dimensions of 0 or more, found -1 in "
             "dimension 0"},
        Case{"read_change",
             ", read w: changed the description of the tensor it had to fill; only its data may be "
             "written; this is a fault of the plugin"},
        Case{"read_fail", ", read w: expected 16 bytes in weights.bin, found 3", Status::kDataLoss},
        Case{"writer_nothing",
             ", create /y: returned FASTLLM_OK and no writer; this is a fault of the plugin"},
        Case{"finish_fail", ", finish /y: no space left", Status::kUnavailable}),
    case_name);

TEST(BadFormat, AbsentAbilitiesAreRefusedBeforeThePluginIsAsked) {
  auto plugins = registry();
  auto& format = plugins->format("badfmt");
  auto reader = format.open("/x");
  Tensor<float> into({4});
  int64_t one = 1;
  fastllm_box box{1, 0, &one, &one};
  EXPECT_STREQ(error_of([&] { reader->read("weights", "w", &box, into.view()); }).what(),
               "the checkpoint format badfmt cannot read parts of a tensor");
  EXPECT_STREQ(error_of([&] { reader->read_shard(0, "weights", into.view()); }).what(),
               "the checkpoint format badfmt cannot read whole shards");
  EXPECT_EQ(reader->world(), nullptr);
}

TEST(BadFormat, AWriterThatIsNotFinishedIsGivenUp) {
  auto plugins = registry();
  auto writer = plugins->format("badfmt").create("/y", config::Node::map(), 0);
  ::testing::internal::CaptureStdout();
  writer.reset();
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("plugin bad: finished and not kept"));
}

TEST(BadPlugin, ShutdownIsCalledOnce) {
  Environment mode("FASTLLM_BAD", "log_shutdown");
  auto plugins = registry();
  plugins->load("bad");
  ::testing::internal::CaptureStdout();
  plugins->shutdown();
  plugins.reset();
  std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(log.find("plugin bad: shut down"), log.rfind("plugin bad: shut down"));
  EXPECT_THAT(log, HasSubstr("plugin bad: shut down"));
}

// ---------------------------------------------------------------- crashes

class Crash : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};
using CrashDeathTest = Crash;

struct Ending {
  const char* way;
  int signal;
  const char* text;
};
constexpr Ending kEndings[] = {{"segfault", SIGSEGV, "touched memory that it may not"},
                               {"divide", SIGFPE, "arithmetic error"},
                               {"abort", SIGABRT, "aborted"},
                               {"illegal", SIGILL, "ran an instruction"},
                               {"stack", SIGSEGV, "touched memory that it may not"},
                               {"thread", SIGSEGV, "or another thread did meanwhile"}};

TEST_F(CrashDeathTest, InForwardNamesPluginLayerAndDirectionAndDiesByItsSignal) {
  for (const Ending& ending : kEndings) {
    SCOPED_TRACE(ending.way);
    Environment mode("FASTLLM_BAD", std::string("forward:") + ending.way);
    EXPECT_EXIT(
        Bench().forward(), ::testing::KilledBySignal(ending.signal),
        "plugin bad \\(libfastllm_bad.so 0.0.1\\), layer 0 forward: .*" + std::string(ending.text));
  }
}

TEST_F(CrashDeathTest, InBackwardIsNamed) {
  Environment mode("FASTLLM_BAD", "backward:segfault");
  EXPECT_EXIT(
      {
        Bench bench;
        bench.backward(bench.forward(FASTLLM_SAVE));
      },
      ::testing::KilledBySignal(SIGSEGV), "layer 0 backward: touched memory");
}

TEST_F(CrashDeathTest, BeforeAnyCallIsNamed) {
  for (auto [where, text] :
       {std::pair{"constructor", "loading"}, {"door", "fastllm_plugin_v0"}, {"fields", "fields"}}) {
    SCOPED_TRACE(where);
    Environment mode("FASTLLM_BAD", std::string(where) + ":segfault");
    EXPECT_EXIT(
        registry()->load("bad"), ::testing::KilledBySignal(SIGSEGV),
        "plugin bad \\(libfastllm_bad.so 0.0.1\\), " + std::string(text) + ": touched memory");
  }
}

TEST_F(CrashDeathTest, OfAFormatNamesTheFile) {
  Environment mode("FASTLLM_BAD", "detect:abort");
  EXPECT_EXIT(registry()->format("badfmt").detect("/some/where"),
              ::testing::KilledBySignal(SIGABRT), "detect /some/where: aborted");
}

TEST_F(CrashDeathTest, ExitInAPluginIsNamedAndNoSuccess) {
  Environment mode("FASTLLM_BAD", "forward:exit");
  EXPECT_EXIT(Bench().forward(), ::testing::ExitedWithCode(70),
              "layer 0 forward: called exit\\(\\)");
}

// The host's tensor ends at a page that may not be touched.
TEST_F(CrashDeathTest, WritingPastAnOutputIsNamed) {
  Environment mode("FASTLLM_BAD", "write_past");
  EXPECT_EXIT(
      {
        Bench bench;
        testing::GuardedMemory memory(sizeof(float));
        bench.loss.view()->data = memory.data();
        bench.forward();
      },
      ::testing::KilledBySignal(SIGSEGV), "layer 0 forward: touched memory that it may not");
}

TEST_F(CrashDeathTest, OutsideOfPluginsSaysNothingOfThem) {
  EXPECT_EXIT(
      {
        Bench bench;
        bench.forward();
        std::raise(SIGSEGV);
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

}  // namespace
}  // namespace fastllm
