// Files that want to be plugins: what is no library for this machine, cut, or without a manifest,
// is a sentence; nothing of it is ever run.
#include "core/plugin/manifest.hpp"

#include <elf.h>
#include <fastllm/checkpoint_format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "core/base/error.hpp"
#include "core/base/file.hpp"
#include "core/plugin/elf.hpp"
#include "tests/support/message_of.hpp"

namespace fastllm::plugin {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string good_library() {
  return read_file(fs::path(FASTLLM_TEST_PLUGINS) / "libfastllm_bad.so");
}

class ManifestFile : public ::testing::Test {
 protected:
  std::string refusal(const std::string& bytes) {
    fs::path path = folder_.path() / "libfastllm_x.so";
    std::ofstream(path, std::ios::binary) << bytes;
    return test::message_of([&] { read_manifest(path); });
  }
  // Changes one member of the file's ELF header, section table or whatever lies at the offset.
  template <class T>
  static void poke(std::string& bytes, size_t offset, T value) {
    ASSERT_LE(offset + sizeof value, bytes.size());
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  }

  TemporaryDirectory folder_;
};

TEST_F(ManifestFile, IsReadFromTheLibrarysSection) {
  Manifest manifest = read_manifest(fs::path(FASTLLM_TEST_PLUGINS) / "libfastllm_bad.so");
  EXPECT_EQ(manifest.id, "bad");
  EXPECT_EQ(manifest.version, "0.0.1");
  EXPECT_THAT(manifest.models, ElementsAre("bad"));
  EXPECT_THAT(manifest.formats, ElementsAre("badfmt"));
  EXPECT_THAT(manifest.needs, ElementsAre("torch==1.0.0"));
  EXPECT_EQ(manifest_caps(manifest, "badfmt"), uint32_t(FASTLLM_CAN_LOAD | FASTLLM_CAN_SAVE));
}

TEST_F(ManifestFile, OfAnotherMachineIsNamed) {
  std::string bytes = good_library();
  poke(bytes, offsetof(Elf64_Ehdr, e_machine), uint16_t(EM_AARCH64));
  EXPECT_THAT(refusal(bytes), HasSubstr("found one built for aarch64"));
  poke(bytes, offsetof(Elf64_Ehdr, e_machine), uint16_t(EM_386));
  poke(bytes, EI_CLASS, char(ELFCLASS32));
  EXPECT_THAT(refusal(bytes), HasSubstr("found one built for 32-bit x86"));
  poke(bytes, offsetof(Elf64_Ehdr, e_machine), uint16_t(12345));
  EXPECT_THAT(refusal(bytes), HasSubstr("found one built for machine 12345 (ELF number)"));
}

TEST_F(ManifestFile, OfAnotherWidthOrByteOrderIsNamed) {
  std::string bytes = good_library();
  poke(bytes, EI_CLASS, char(ELFCLASS32));
  EXPECT_EQ(refusal(bytes), "expected a 64-bit library, found a 32-bit one");
  bytes = good_library();
  poke(bytes, EI_DATA, char(bytes[EI_DATA] == ELFDATA2LSB ? ELFDATA2MSB : ELFDATA2LSB));
  EXPECT_EQ(refusal(bytes), "expected a library in this machine's byte order, found the other one");
}

TEST_F(ManifestFile, ThatIsNoLibraryIsNamed) {
  EXPECT_EQ(refusal(""), "expected a shared library (ELF), found a file of 0 bytes that is none");
  EXPECT_EQ(refusal("#!/bin/sh\necho hello\n"),
            "expected a shared library (ELF), found a file of 21 bytes that is none");
  EXPECT_THAT(refusal(std::string("\x7f"
                                  "ELF",
                                  4)),
              HasSubstr("expected the ELF header in bytes 18 to 20, found a file of 4 bytes; it is "
                        "cut or damaged"));
  std::string bytes = good_library();
  poke(bytes, offsetof(Elf64_Ehdr, e_type), uint16_t(ET_REL));
  EXPECT_EQ(refusal(bytes), "expected a shared library, found an object file");
  poke(bytes, offsetof(Elf64_Ehdr, e_type), uint16_t(ET_EXEC));
  EXPECT_EQ(refusal(bytes), "expected a shared library, found a program");
}

// The section table lies at the end, so every cut is seen. No cut may do worse than a sentence.
TEST_F(ManifestFile, CutAnywhereIsASentence) {
  std::string bytes = good_library();
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 16) {
    EXPECT_NE(refusal(bytes.substr(0, size)), "(no error)") << size;
  }
  EXPECT_THAT(refusal(bytes.substr(0, bytes.size() - 1)),
              HasSubstr("expected the section table in bytes"));
}

TEST_F(ManifestFile, ThatLiesAboutItsSectionsIsASentence) {
  Elf64_Ehdr header;
  const std::string good = good_library();
  std::memcpy(&header, good.data(), sizeof header);
  size_t names = header.e_shoff + header.e_shstrndx * sizeof(Elf64_Shdr);

  std::string bytes = good;
  poke(bytes, offsetof(Elf64_Ehdr, e_shoff), ~uint64_t(0) - 8);
  EXPECT_THAT(refusal(bytes), HasSubstr("it is cut or damaged"));
  bytes = good;
  poke(bytes, offsetof(Elf64_Ehdr, e_shentsize), uint16_t(1));
  EXPECT_THAT(refusal(bytes), HasSubstr("found one that contradicts itself"));
  bytes = good;
  poke(bytes, offsetof(Elf64_Ehdr, e_shstrndx), uint16_t(0xffff));
  EXPECT_THAT(refusal(bytes), HasSubstr("found one that contradicts itself"));
  bytes = good;
  poke(bytes, names + offsetof(Elf64_Shdr, sh_size), ~uint64_t(0));
  EXPECT_THAT(refusal(bytes), HasSubstr("bytes of section names, found 18446744073709551615"));
  bytes = good;
  poke(bytes, names + offsetof(Elf64_Shdr, sh_offset), ~uint64_t(0));
  EXPECT_THAT(refusal(bytes), HasSubstr("it is cut or damaged"));
  bytes = good;
  poke(bytes, offsetof(Elf64_Ehdr, e_shnum), uint16_t(0));
  EXPECT_THAT(refusal(bytes), HasSubstr("expected a manifest (ELF section .fastllm), found none"));

  // The manifest's own section, found by its place in the name table.
  for (uint16_t i = 0; i < header.e_shnum; ++i) {
    size_t at = header.e_shoff + i * sizeof(Elf64_Shdr);
    Elf64_Shdr section, table;
    std::memcpy(&section, good.data() + at, sizeof section);
    std::memcpy(&table, good.data() + names, sizeof table);
    if (std::strcmp(good.data() + table.sh_offset + section.sh_name, ".fastllm") != 0) continue;
    bytes = good;
    poke(bytes, at + offsetof(Elf64_Shdr, sh_size), uint64_t(1) << 40);
    EXPECT_THAT(refusal(bytes), HasSubstr("expected at most 65536 bytes in section .fastllm"));
    bytes = good;
    poke(bytes, at + offsetof(Elf64_Shdr, sh_type), uint32_t(SHT_NOBITS));
    EXPECT_THAT(refusal(bytes), HasSubstr("expected bytes in section .fastllm, found none"));
    bytes = good;
    poke(bytes, at + offsetof(Elf64_Shdr, sh_name), ~uint32_t(0));
    EXPECT_THAT(refusal(bytes),
                HasSubstr("expected a manifest (ELF section .fastllm), found none"));
    return;
  }
  FAIL() << "no section .fastllm";
}

// A cheap fuzz with a fixed seed: any byte of the headers may be anything.
TEST_F(ManifestFile, WithAnyByteChangedIsReadOrRefused) {
  const std::string good = good_library();
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof header);
  uint32_t random = 1;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    random = random * 1664525 + 1013904223;
    size_t span = round % 2 ? sizeof header : header.e_shnum * sizeof(Elf64_Shdr);
    size_t at = (round % 2 ? 0 : header.e_shoff) + (random >> 8) % span;
    bytes[at] = char(random >> 3);
    refusal(bytes);  // must return
  }
}

struct BadText {
  const char* text;
  const char* sentence;
};
class ManifestText : public ::testing::TestWithParam<BadText> {};

TEST_P(ManifestText, IsRefusedWithASentence) {
  EXPECT_THAT(
      [] { parse_manifest(GetParam().text); },
      ::testing::Throws<Error>(::testing::Property(&Error::what, HasSubstr(GetParam().sentence))));
}

INSTANTIATE_TEST_SUITE_P(
    All, ManifestText,
    ::testing::Values(
        BadText{"", "expected a manifest line abi=0, found none"},
        BadText{"id=x\nversion=1\n", "expected a manifest line abi=0, found none"},
        BadText{"abi=1\nid=x\nversion=1\n",
                "expected a plugin for version 0 of the contract, found one for version 1; build "
                "it against this host's SDK"},
        BadText{"abi=0\nversion=1\n",
                "expected a manifest line id= of letters, digits and _ . - /, found \"\""},
        BadText{"abi=0\nid=two words\nversion=1\n", "found \"two words\""},
        BadText{"abi=0\nid=x\n", "expected a manifest line version=, found none"},
        BadText{"abi=0\nabi=0\n", "expected one manifest line abi=, found two"},
        BadText{"abi\n", "expected manifest lines key=value, found \"abi\""},
        BadText{"abi=\n", "expected manifest lines key=value, found \"abi=\""},
        BadText{
            "abi=0\nid=x\nversion=1\nlicense=\x01\n",
            "expected printable ASCII in the manifest, found another byte in the line license="},
        BadText{
            "abi=0\nid=x\nversion=1\nmodel=a,b\n",
            "expected one type of letters, digits and _ . - / in a manifest line, found \"a,b\""},
        BadText{"abi=0\nid=x\nversion=1\nmodel=a\nmodel=a\n",
                "expected each type once in the manifest, found \"a\" twice"},
        BadText{"abi=0\nid=x\nversion=1\nformat=f\ncaps=fly\n",
                "external, own_commit, found \"fly\""},
        BadText{"abi=0\nid=x\nversion=1\nformat=f\nformat=g\ncaps=load\n",
                "expected caps=FORMAT:... since there are 2 formats, found caps=load"}));

TEST(Manifest, CapsMayBeSaidByFormat) {
  auto manifest = parse_manifest(
      "abi=0\nid=x\nversion=1\nformat=f\nformat=g\ncaps=f:load,save\ncaps=g:load\ncaps=g:"
      "slice\nlater=key\n");
  EXPECT_EQ(caps_text(manifest_caps(manifest, "f")), "load, save");
  EXPECT_EQ(caps_text(manifest_caps(manifest, "g")), "load, slice");
}

}  // namespace
}  // namespace fastllm::plugin
