// Where plugins are looked for, in which order, what is refused and what the user reads then.
#include "core/plugin/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "core/base/file.hpp"
#include "tests/support/environment.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::plugin {
namespace {

namespace fs = std::filesystem;
using ::fastllm::test::message_of;
using ::fastllm::testing::Environment;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? bytes : bytes.replace(at, to.size(), to);
}

// Folders with copies of real plugins, patched where a test wants another manifest.
class Plugins : public ::testing::Test {
 protected:
  void SetUp() override { ::umask(022); }

  fs::path folder(const std::string& name) {
    fs::path path = root_.path() / name;
    fs::create_directories(path);
    return path;
  }
  static std::string library(const std::string& name) {
    return read_file(fs::path(FASTLLM_TEST_PLUGINS) / ("libfastllm_" + name + ".so"));
  }
  static fs::path put(const fs::path& folder, const std::string& name, const std::string& bytes) {
    fs::path path = folder / ("libfastllm_" + name + ".so");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  // The plugin "bad" with another id and other types, of the same length.
  static std::string other_plugin(const std::string& id, const std::string& torch = "1.0.0") {
    std::string bytes = library("bad");
    bytes = replaced(bytes, "abi=0\nid=bad\n", "abi=0\nid=" + id + "\n");
    return replaced(bytes, "torch==1.0.0", "torch==" + torch);
  }
  static const Candidate* find(const std::vector<Candidate>& list, const fs::path& path) {
    for (const auto& candidate : list) {
      if (candidate.path == path) return &candidate;
    }
    return nullptr;
  }

  TemporaryDirectory root_{"fastllm-plugins"};
};

TEST_F(Plugins, AreFoundInThePlacesInOrder) {
  auto given = folder("given"), listed = folder("listed");
  put(given, "one", library("cmlp"));
  put(listed, "one", library("bad"));
  auto two = put(listed, "two.v2", library("bad"));
  std::ofstream(listed / "readme.txt") << "no plugin";
  Environment path("FASTLLM_PLUGIN_PATH", "relative:" + listed.string() + "::/not/there");
  Registry registry({{given}, false});

  auto places = registry.places();
  ASSERT_EQ(places.size(), 5u);
  EXPECT_EQ(places[0].origin, "--plugin-path");
  EXPECT_EQ(places[1].problem, "expected an absolute path");
  EXPECT_EQ(places[2].directory, listed);
  EXPECT_EQ(places[3].problem, "No such file or directory");
  EXPECT_EQ(places[4].origin, "next to the program");
  EXPECT_EQ(places[4].directory, fs::path(FASTLLM_BINARY_DIR) / "lib/fastllm/plugins");

  auto list = registry.list();
  ASSERT_GE(list.size(), 3u);
  EXPECT_EQ(list[0].path, given / "libfastllm_one.so");
  EXPECT_FALSE(list[0].shadowed);
  EXPECT_EQ(list[1].path, listed / "libfastllm_one.so");
  EXPECT_TRUE(list[1].shadowed);
  EXPECT_EQ(list[1].shadowed_by, list[0].path);
  EXPECT_EQ(list[2].name, "two.v2");
  EXPECT_EQ(registry.load("one").info().id, "cmlp");
  EXPECT_EQ(&registry.load("two.v2"), &registry.load(two.string()));  // loaded once
  EXPECT_EQ(registry.loaded().size(), 2u);
  EXPECT_EQ(registry.loaded()[1].sha256, sha256_hex(library("bad")));
}

TEST_F(Plugins, TheSameFileByTwoPathsIsOne) {
  auto first = folder("first"), second = folder("second");
  auto path = put(first, "bad", library("bad"));
  fs::create_symlink(path, second / "libfastllm_again.so");
  Registry registry({{first, second}, false});
  auto list = registry.list();
  const auto* again = find(list, second / "libfastllm_again.so");
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(again->shadowed);
  EXPECT_EQ(again->shadowed_by, path);
}

TEST_F(Plugins, ThatAreNotFoundAreNamedWithEveryPlaceSearched) {
  auto given = folder("given");
  put(given, "one", library("cmlp"));
  Registry registry({{given}, false});
  EXPECT_THAT(
      message_of([&] { registry.load("gpd"); }),
      AllOf(HasSubstr("expected libfastllm_gpd.so in one of the folders below, found only one"),
            HasSubstr(given.string() + " (--plugin-path)"),
            HasSubstr("lib/fastllm/plugins (next to the program)")));
  EXPECT_THAT(message_of([&] { registry.load(""); }), HasSubstr("expected a plugin's name"));
  EXPECT_THAT(message_of([&] { registry.load((given / "nothing.so").string()); }),
              HasSubstr("nothing.so: No such file or directory"));
  EXPECT_THAT(message_of([&] { registry.load(given.string()); }),
              HasSubstr("expected a regular file, found something else"));
}

TEST_F(Plugins, ARefusedFirstMatchIsNotReplacedSilently) {
  auto first = folder("first"), second = folder("second");
  put(first, "one", "no library");
  put(second, "one", library("cmlp"));
  Registry registry({{first, second}, false});
  EXPECT_THAT(message_of([&] { registry.load("one"); }),
              AllOf(HasSubstr("cannot load plugin one: " + (first / "libfastllm_one.so").string() +
                              " (--plugin-path " + first.string() + "): expected a shared library"),
                    HasSubstr((second / "libfastllm_one.so").string()),
                    HasSubstr("put its folder first with --plugin-path")));
}

TEST_F(Plugins, OfTheSameNameThatAreRefusedTooSayWhy) {
  auto first = folder("first"), second = folder("second");
  put(first, "one", "no library");
  put(second, "one", "none either");
  Registry registry({{first, second}, false});
  EXPECT_THAT(message_of([&] { registry.load("one"); }),
              AllOf(HasSubstr((second / "libfastllm_one.so").string()),
                    HasSubstr("comes later, but cannot be loaded either: expected a shared library "
                              "(ELF), found a file of 11 bytes")));
}

TEST_F(Plugins, AreFoundByWhatTheyOffer) {
  auto given = folder("given");
  put(given, "broken", "no library");
  put(given, "c", library("cmlp"));
  Registry registry({{given}, false});
  EXPECT_EQ(registry.model("cmlp").type(), "cmlp");
  EXPECT_EQ(registry.loaded().size(), 1u);
  EXPECT_THAT(
      message_of([&] { registry.model("gtp"); }),
      AllOf(HasSubstr("expected a plugin that offers the model gtp, found only"), HasSubstr("cmlp"),
            HasSubstr("and refused\n"), HasSubstr("libfastllm_broken.so")));
  EXPECT_THAT(message_of([&] { registry.format("nothing"); }),
              HasSubstr("expected a plugin that offers the checkpoint format nothing"));
}

TEST_F(Plugins, ThatDisagreeWithTheirManifestAreRefused) {
  auto given = folder("given");
  put(given, "x", replaced(library("bad"), "model=bad", "model=bag"));
  Registry registry({{given}, false});
  EXPECT_THAT(message_of([&] { registry.load("x"); }),
              HasSubstr("plugin bad (libfastllm_x.so 0.0.1)"));
}

TEST_F(Plugins, OfAnotherContractAreRefusedBeforeLoading) {
  auto given = folder("given");
  put(given, "x", replaced(library("bad"), "abi=0\nid=bad", "abi=7\nid=bad"));
  Registry registry({{given}, false});
  EXPECT_THAT(
      message_of([&] { registry.load("x"); }),
      HasSubstr("expected a plugin for version 0 of the contract, found one for version 7"));
}

TEST_F(Plugins, WithoutTheDoorAreRefused) {
  auto given = folder("given");
  // The name stands in .dynstr; the manifest does not hold it.
  put(given, "x", replaced(library("bad"), "fastllm_plugin_v0", "fastllm_plugin_v7"));
  Registry registry({{given}, false});
  EXPECT_THAT(message_of([&] { registry.load("x"); }),
              HasSubstr("expected the exported function fastllm_plugin_v0, found none"));
}

TEST_F(Plugins, WhoseLibrariesAreMissingKeepTheLoadersSentence) {
  auto given = folder("given");
  put(given, "x", replaced(library("bad"), "libc.so.6", "libz.so.q"));
  Registry registry({{given}, false});
  EXPECT_THAT(
      message_of([&] { registry.load("x"); }),
      AllOf(HasSubstr("plugin bad (libfastllm_x.so 0.0.1): cannot be loaded: "),
            HasSubstr("libz.so.q: cannot open shared object file"), Not(HasSubstr("boost"))));
}

TEST_F(Plugins, ThatNeedDifferentLibTorchsDoNotShareAProcess) {
  auto given = folder("given");
  put(given, "a", library("bad"));
  put(given, "b",
      replaced(replaced(other_plugin("bed", "2.0.0"), "model=bad", "model=bed"), "format=badfmt",
               "format=bedfmt"));
  Registry registry({{given}, false});
  registry.load("a");
  EXPECT_THAT(message_of([&] { registry.load("b"); }),
              AllOf(HasSubstr("cannot load plugin bed"), HasSubstr("beside plugin bad"),
                    HasSubstr("one process holds one LibTorch, the first needs 2.0.0, the second "
                              "1.0.0; build both against the same")));
}

TEST_F(Plugins, WithTheSameIdModelOrFormatDoNotShareAProcess) {
  auto given = folder("given");
  put(given, "a", library("bad"));
  put(given, "b", library("bad"));  // a copy
  put(given, "c", other_plugin("bed"));
  put(given, "d", replaced(other_plugin("bed"), "model=bad", "model=bed"));
  Registry registry({{given}, false});
  registry.load("a");
  EXPECT_THAT(message_of([&] { registry.load("b"); }),
              HasSubstr("both have the same id; name one of them"));
  EXPECT_THAT(message_of([&] { registry.load("c"); }),
              HasSubstr("both offer the model bad; name one of them"));
  EXPECT_THAT(message_of([&] { registry.load("d"); }),
              HasSubstr("both offer the checkpoint format badfmt; name one of them"));
}

TEST_F(Plugins, ThatOthersMayWriteAreRefusedUnlessAllowed) {
  auto given = folder("given");
  auto path = put(given, "x", library("cmlp"));
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(message_of([&] {
                Registry({{given}, false}).load("x");
              }),
              AllOf(HasSubstr(path.string() + " may be written by everyone (mode 646)"),
                    HasSubstr("chmod go-w"), HasSubstr("--allow-insecure-plugins")));
  fs::permissions(path, fs::perms::others_write, fs::perm_options::remove);
  fs::permissions(given, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(message_of([&] {
                Registry({{given}, false}).load("x");
              }),
              HasSubstr(given.string() + " may be written by everyone (mode 757)"));
  EXPECT_THAT(message_of([&] {
                Registry({{}, false}).load(path.string());
              }),
              HasSubstr("may be written by everyone"));

  ::testing::internal::CaptureStdout();
  Registry allowed({{given}, true});
  EXPECT_EQ(allowed.load("x").info().id, "cmlp");
  EXPECT_THAT(::testing::internal::GetCapturedStdout(),
              HasSubstr("--allow-insecure-plugins: " + path.string() + " is not refused although"));
}

TEST_F(Plugins, BehindALinkAreJudgedByTheFolderTheyLieIn) {
  auto given = folder("given"), open = folder("open");
  auto path = put(open, "real", library("cmlp"));
  fs::create_symlink(path, given / "libfastllm_x.so");
  fs::permissions(open, fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(message_of([&] {
                Registry({{given}, false}).load("x");
              }),
              HasSubstr(open.string() + " may be written by everyone"));
}

TEST(InsecureReason, NamesOwnerAndMode) {
  EXPECT_EQ(insecure_reason(::geteuid(), ::getegid(), S_IFREG | 0755), "");
  EXPECT_EQ(insecure_reason(0, 0, S_IFREG | 0644), "");
  EXPECT_THAT(insecure_reason(::geteuid() + 1, 0, S_IFREG | 0644), HasSubstr("belongs to user"));
  EXPECT_THAT(insecure_reason(::geteuid(), ::getegid() + 1, S_IFREG | 0664),
              HasSubstr("may be written by group"));
}

TEST_F(Plugins, AreReportedWithWhatIsWrong) {
  auto first = folder("first"), second = folder("second");
  put(first, "broken", "no library");
  put(first, "c", library("cmlp"));
  put(second, "b", library("bad"));
  put(second, "c", library("cmlp"));
  put(second, "d", library("bad"));
  std::string report = plugins_report(Registry({{first, second}, false}));
  std::string expected =
      "broken  [refused]\n  " + (first / "libfastllm_broken.so").string() + " (--plugin-path " +
      first.string() +
      ")\n  refused: expected a shared library (ELF), found a file of 10 bytes that is none\n"
      "c 0.1.0\n  " +
      (first / "libfastllm_c.so").string() + " (--plugin-path " + first.string() +
      ")\n  model cmlp\n"
      "b 0.0.1\n  " +
      (second / "libfastllm_b.so").string() + " (--plugin-path " + second.string() +
      ")\n  model bad; checkpoint format badfmt (load, save); needs torch==1.0.0\n"
      "c 0.1.0  [shadowed]\n  " +
      (second / "libfastllm_c.so").string() + " (--plugin-path " + second.string() +
      ")\n  not used: " + (first / "libfastllm_c.so").string() +
      " comes first\n  model cmlp\n"
      "d 0.0.1\n  " +
      (second / "libfastllm_d.so").string() + " (--plugin-path " + second.string() +
      ")\n  model bad; checkpoint format badfmt (load, save); needs torch==1.0.0\n  model bad is "
      "also offered by b, which comes first\n";
  EXPECT_THAT(report, ::testing::StartsWith(expected));
  EXPECT_THAT(report,
              HasSubstr("searched, in this order:\n  " + first.string() + " (--plugin-path)\n"));
}

}  // namespace
}  // namespace fastllm::plugin
