// Every table and descriptor, cut at every member with nothing readable after the cut, in both
// directions: an older or shorter struct is refused by the name of what is missing, or its optional
// members are stood in for; none is read past.
#include <dlfcn.h>
#include <fastllm/checkpoint_format.h>
#include <fastllm/model.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "core/base/error.hpp"
#include "core/plugin/format_proxy.hpp"
#include "core/plugin/host_services.hpp"
#include "core/plugin/model_proxy.hpp"
#include "core/plugin/normalise.hpp"
#include "core/plugin/sink.hpp"
#include "tests/support/guarded_memory.hpp"
#include "tests/support/tensor.hpp"

namespace fastllm::plugin {
namespace {

using ::fastllm::testing::CutTable;
using ::testing::HasSubstr;

std::shared_ptr<const Identity> identity() {
  return Identity::make("short", "1", "libfastllm_short.so");
}

// ---------------------------------------------------------------- a whole model in this process

char g_model;
fastllm_status no_fields(const fastllm_emit*, fastllm_sink*) { return FASTLLM_OK; }
fastllm_status create(fastllm_config*, fastllm_model** out) {
  *out = reinterpret_cast<fastllm_model*>(&g_model);
  return FASTLLM_OK;
}
void destroy(fastllm_model*) {}
fastllm_status describe(fastllm_model*, const fastllm_emit* emit, fastllm_sink* sink) {
  fastllm_layer layer{sizeof layer, 0, "layer.0", 1};
  if (auto status = emit->layer(sink, &layer)) return status;
  int64_t rows = 4;
  fastllm_param param{};
  param.size = sizeof param;
  param.name = "weight";
  param.ndim = 1;
  param.shape = &rows;
  param.weight_decay = 1;
  return emit->param(sink, &param);
}
fastllm_status bind(fastllm_model*, int32_t, const DLTensor* const*, DLTensor* const*) {
  return FASTLLM_OK;
}
fastllm_status forward(fastllm_model*, int32_t, const fastllm_call*, const DLTensor* const*,
                       DLTensor* const*, fastllm_saved**) {
  return FASTLLM_OK;
}
fastllm_status backward(fastllm_model*, int32_t, const fastllm_call*, fastllm_saved*,
                        const DLTensor* const*, DLTensor* const*) {
  return FASTLLM_OK;
}
void discard(fastllm_model*, fastllm_saved*, void*) {}
fastllm_status init(fastllm_model*, int32_t, int32_t, const fastllm_call*, DLTensor*) {
  return FASTLLM_OK;
}
fastllm_status flops(fastllm_model*, int32_t, int64_t, int64_t, double* in_forward, double*) {
  *in_forward = 5;
  return FASTLLM_OK;
}
constexpr fastllm_model_api kModel{sizeof(fastllm_model_api),
                                   "short",
                                   no_fields,
                                   create,
                                   destroy,
                                   describe,
                                   bind,
                                   forward,
                                   backward,
                                   discard,
                                   init,
                                   flops};

std::unique_ptr<model::Model> make(const fastllm_model_api* table) {
  auto factory = make_model_factory(identity(), table);
  config::Node node = config::Node::map();
  // The factory may go: the model holds what it needs.
  return factory->create(node);
}

TEST(CutTables, AModelsTableIsRefusedUntilItsLastRequiredMember) {
  constexpr uint32_t kEnough = offsetof(fastllm_model_api, discard) + sizeof(void*);
  int refused = 0;
  for (uint32_t size = 0; size <= sizeof(fastllm_model_api); size += 4) {
    SCOPED_TRACE(size);
    CutTable<fastllm_model_api> table(kModel, std::max<uint32_t>(size, 4));
    if (size >= kEnough && size % 8 == 0) {
      auto model = make(table.get());
      bool has_init = size >= offsetof(fastllm_model_api, init) + sizeof(void*);
      bool has_flops = size >= offsetof(fastllm_model_api, flops) + sizeof(void*);
      EXPECT_EQ(model->flops(0, 1, 1).forward, has_flops ? 5 : 0);
      fastllm_call call{};
      ::fastllm::testing::Tensor<float> weight({4});
      if (has_init) {
        model->init(0, 0, call, weight.view());
      } else {
        EXPECT_THAT([&] { model->init(0, 0, call, weight.view()); },
                    ::testing::Throws<Error>(::testing::Property(
                        &Error::what, HasSubstr("layer 0 init: plugin short has no init"))));
      }
      continue;
    }
    try {
      make(table.get());
      ADD_FAILURE() << "a table of " << size << " bytes was taken";
    } catch (const Error& e) {
      ++refused;
      EXPECT_THAT(e.what(),
                  ::testing::AnyOf(
                      HasSubstr(fmt::format("found a table that ends before it (size {})", size)),
                      HasSubstr(fmt::format("to be sizeof(fastllm_model_api), found {}",
                                            std::max<uint32_t>(size, 4)))));
    }
  }
  EXPECT_GT(refused, 10);
}

TEST(CutTables, NamesTheFirstMissingMember) {
  CutTable<fastllm_model_api> table(kModel, offsetof(fastllm_model_api, backward));
  EXPECT_THAT(
      [&] { make(table.get()); },
      ::testing::Throws<Error>(::testing::Property(
          &Error::what,
          HasSubstr("expected fastllm_model_api.backward, found a table that ends before it"))));
}

// A format says what it can; each ability needs its functions.
TEST(CutTables, AFormatsTableIsRefusedUntilItsLastRequiredMember) {
  fastllm_format_api whole{};
  auto filler = reinterpret_cast<void (*)()>(&destroy);
  for (size_t at = offsetof(fastllm_format_api, detect); at < sizeof whole; at += sizeof filler) {
    std::memcpy(reinterpret_cast<char*>(&whole) + at, &filler, sizeof filler);  // never called
  }
  whole.type = "short";
  for (auto [caps, last] :
       {std::pair<uint32_t, size_t>{FASTLLM_CAN_LOAD, offsetof(fastllm_format_api, close)},
        {FASTLLM_CAN_SAVE, offsetof(fastllm_format_api, finish)},
        {FASTLLM_CAN_LOAD | FASTLLM_CAN_SAVE | FASTLLM_CAN_SHARDS,
         offsetof(fastllm_format_api, finish)}}) {
    whole.caps = caps;
    for (uint32_t size = 8; size <= sizeof whole; size += 8) {
      SCOPED_TRACE(fmt::format("caps {}, size {}", caps, size));
      CutTable<fastllm_format_api> table(whole, size);
      if (size > last) {
        EXPECT_EQ(make_format(identity(), table.get())->caps(), caps);
      } else {
        EXPECT_THAT([&] { make_format(identity(), table.get()); },
                    ::testing::Throws<Error>(::testing::Property(
                        &Error::what, HasSubstr("found a table that ends before it"))));
      }
    }
  }
}

// ---------------------------------------------------------------- what is pushed

template <class T>
void check_descriptor(Describing kind, const T& whole,
                      fastllm_status (*push)(fastllm_sink*, const T*), const char* name) {
  for (uint32_t size = 4; size <= sizeof whole; size += 4) {
    SCOPED_TRACE(fmt::format("{} of {} bytes", name, size));
    fastllm_sink sink(kind);
    if (kind == Describing::kModel) sink.model.layers.push_back({"layer.0", 0, 1, {}, {}, {}});
    CutTable<T> cut(whole, size);
    fastllm_status status = push(&sink, cut.get());
    if (size == sizeof whole) {
      EXPECT_EQ(status, FASTLLM_OK) << (sink.error ? sink.error->what() : "");
    } else {
      EXPECT_EQ(status, FASTLLM_INTERNAL);
      ASSERT_TRUE(sink.error);
      EXPECT_THAT(sink.error->what(), ::testing::MatchesRegex(fmt::format(
                                          "expected {}.size .*, found {}", name, size)));
    }
  }
  // Sizes that no compiler makes: refused before anything else is read.
  for (uint32_t size : {0u, 4u, 7u, 9u, 1u << 31, ~0u}) {
    T lying = whole;
    lying.size = size;
    fastllm_sink sink(kind);
    EXPECT_NE(push(&sink, &lying), FASTLLM_OK) << size;
  }
  // A later, longer struct: what is known of it is taken.
  struct {
    T known;
    uint64_t later[4];
  } longer{whole, {1, 2, 3, 4}};
  longer.known.size = sizeof longer;
  fastllm_sink sink(kind);
  if (kind == Describing::kModel) sink.model.layers.push_back({"layer.0", 0, 1, {}, {}, {}});
  EXPECT_EQ(push(&sink, &longer.known), FASTLLM_OK);
}

TEST(CutTables, DescriptorsAreTakenWholeOrNotAtAll) {
  const fastllm_emit* emit = emit_table();
  int64_t shape[1] = {4};
  fastllm_field field{};
  field.size = sizeof field;
  field.path = "width";
  field.fallback = "1";
  field.minimum = field.maximum = std::numeric_limits<double>::quiet_NaN();
  field.help = "A number.";
  check_descriptor(Describing::kFields, field, emit->field, "fastllm_field");

  check_descriptor(Describing::kModel, fastllm_layer{sizeof(fastllm_layer), 0, "layer.1", 1},
                   emit->layer, "fastllm_layer");

  fastllm_port port{sizeof port, 0, "x", {kDLFloat, 32, 1}, 1, shape};
  check_descriptor(Describing::kModel, port, emit->input, "fastllm_port");
  check_descriptor(Describing::kModel, port, emit->output, "fastllm_port");

  fastllm_param param{};
  param.size = sizeof param;
  param.name = "weight";
  param.ndim = 1;
  param.shape = shape;
  check_descriptor(Describing::kModel, param, emit->param, "fastllm_param");
}

// ---------------------------------------------------------------- an older host

using Door = const fastllm_plugin* (*)(const fastllm_host*);

Door door_of(const std::string& name) {
  std::string path = fmt::format("{}/libfastllm_{}.so", FASTLLM_TEST_PLUGINS, name);
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!library) throw std::runtime_error(::dlerror());
  return reinterpret_cast<Door>(::dlsym(library, "fastllm_plugin_v0"));
}

// A plugin judges the host it gets: it takes it when all it needs is there, else says why, if there
// is fail() to say it with.
class OlderHost : public ::testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(OlderHost, IsJudgedWithoutReadingPastItsTable) {
  auto [name, needs] = GetParam();
  Door door = door_of(name);
  auto caller = identity();
  for (uint32_t size = 8; size <= sizeof(fastllm_host); size += 8) {
    SCOPED_TRACE(size);
    CutTable<fastllm_host> host(*host_table(), size);
    CallScope scope(*caller, "door");
    const fastllm_plugin* plugin = door(host.get());
    EXPECT_EQ(plugin != nullptr, size >= needs + sizeof(void*));
    if (!plugin && size >= offsetof(fastllm_host, fail) + sizeof(void*)) {
      EXPECT_THAT(latest_failure(), HasSubstr("found an older one"));
    }
  }
  EXPECT_EQ(door(nullptr), nullptr);
  EXPECT_NE(door(host_table()), nullptr);  // leaves the plugin with a table that stays
}

INSTANTIATE_TEST_SUITE_P(
    Plugins, OlderHost,
    ::testing::Values(std::pair<const char*, size_t>{"cmlp", offsetof(fastllm_host, config_get)},
                      std::pair<const char*, size_t>{"throwing",
                                                     offsetof(fastllm_host, config_text)}),
    [](const auto& test) { return std::string(test.param.first); });

}  // namespace
}  // namespace fastllm::plugin
