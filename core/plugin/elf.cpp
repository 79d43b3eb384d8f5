// A small ELF reader. Nothing in the file is trusted: every offset and length meets the file's
// size first, and sizes have bounds of their own.
#include "core/plugin/elf.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/file.hpp"

namespace fastllm::plugin {
namespace {

constexpr uint64_t kMaxSectionBytes = 64 << 10;   // of the section asked for
constexpr uint64_t kMaxNameTableBytes = 1 << 20;  // of all section names together

[[noreturn]] void refuse(std::string text) { throw Error(Status::kInvalid, std::move(text)); }

class File {
 public:
  explicit File(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_.get() < 0) throw Error(Status::kUnavailable, "cannot be read: " + errno_text(errno));
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode))
      refuse("expected a regular file, found something else");
    size_ = uint64_t(info.st_size);
  }
  uint64_t size() const { return size_; }

  bool holds(uint64_t offset, uint64_t length) const {
    return offset <= size_ && length <= size_ - offset;
  }
  // pread rather than a mapping: a file that shrinks meanwhile gives an error, not SIGBUS.
  void read(uint64_t offset, void* into, uint64_t length, const char* what) const {
    if (!holds(offset, length)) {
      refuse(fmt::format(
          "expected {} in bytes {} to {}, found a file of {} bytes; it is cut or damaged", what,
          offset, offset + length, size_));
    }
    auto* bytes = static_cast<char*>(into);
    while (length > 0) {
      ssize_t n = ::pread(fd_.get(), bytes, length, off_t(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        refuse(
            fmt::format("cannot read {}: {}", what, n < 0 ? errno_text(errno) : "it ends early"));
      bytes += n, offset += uint64_t(n), length -= uint64_t(n);
    }
  }

 private:
  Descriptor fd_;
  uint64_t size_ = 0;
};

std::string machine_name(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return "x86-64";
    case EM_386:
      return "32-bit x86";
    case EM_AARCH64:
      return "aarch64";
    case EM_ARM:
      return "32-bit ARM";
    case EM_RISCV:
      return "RISC-V";
    case EM_PPC64:
      return "ppc64";
    case EM_S390:
      return "s390x";
    default:
      return fmt::format("machine {} (ELF number)", machine);
  }
}

// This program's own header: what a library must have been built for.
const Elf64_Ehdr& own_header() {
  static const Elf64_Ehdr header = [] {
    Elf64_Ehdr h{};
    File("/proc/self/exe").read(0, &h, sizeof h, "the header of this program");
    return h;
  }();
  return header;
}

Elf64_Ehdr read_header(const File& file) {
  Elf64_Ehdr header{};
  char magic[EI_NIDENT] = {};
  file.read(0, magic, std::min<uint64_t>(sizeof magic, file.size()), "the start");
  if (std::memcmp(magic, ELFMAG, SELFMAG) != 0) {
    refuse(fmt::format("expected a shared library (ELF), found a file of {} bytes that is none",
                       file.size()));
  }
  // e_machine lies at the same place in 32-bit files, so it can name those too.
  uint16_t machine = 0;
  file.read(offsetof(Elf64_Ehdr, e_machine), &machine, sizeof machine, "the ELF header");
  const Elf64_Ehdr& own = own_header();
  if (magic[EI_DATA] != own.e_ident[EI_DATA])
    refuse("expected a library in this machine's byte order, found the other one");
  if (machine != own.e_machine) {
    refuse(fmt::format("expected a library built for {}, found one built for {}",
                       machine_name(own.e_machine), machine_name(machine)));
  }
  if (magic[EI_CLASS] != own.e_ident[EI_CLASS]) {
    refuse(fmt::format("expected a 64-bit library, found {}",
                       magic[EI_CLASS] == ELFCLASS32 ? "a 32-bit one" : "one of unknown width"));
  }
  file.read(0, &header, sizeof header, "the ELF header");
  if (header.e_type != ET_DYN) {
    refuse(fmt::format("expected a shared library, found {}",
                       header.e_type == ET_REL    ? "an object file"
                       : header.e_type == ET_EXEC ? "a program"
                                                  : "another kind of ELF file"));
  }
  return header;
}

}  // namespace

std::optional<std::string> read_elf_section(const std::filesystem::path& path,
                                            std::string_view name) {
  File file(path);
  Elf64_Ehdr header = read_header(file);
  if (header.e_shoff == 0 || header.e_shnum == 0)
    return std::nullopt;  // stripped of its section table
  if (header.e_shentsize != sizeof(Elf64_Shdr) || header.e_shstrndx >= header.e_shnum) {
    refuse(
        "expected an ELF section table of version 1, found one that contradicts itself; the file "
        "is damaged");
  }
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  file.read(header.e_shoff, sections.data(), sections.size() * sizeof(Elf64_Shdr),
            "the section table");

  const Elf64_Shdr& names = sections[header.e_shstrndx];
  if (names.sh_size > kMaxNameTableBytes) {
    refuse(fmt::format("expected at most {} bytes of section names, found {}", kMaxNameTableBytes,
                       uint64_t(names.sh_size)));
  }
  std::string text(names.sh_size, '\0');
  file.read(names.sh_offset, text.data(), text.size(), "the section names");

  for (const Elf64_Shdr& section : sections) {
    if (section.sh_name >= text.size() || std::string_view(text.c_str() + section.sh_name) != name)
      continue;
    if (section.sh_type != SHT_PROGBITS)
      refuse(fmt::format("expected bytes in section {}, found none", name));
    if (section.sh_size > kMaxSectionBytes) {
      refuse(fmt::format("expected at most {} bytes in section {}, found {}", kMaxSectionBytes,
                         name, uint64_t(section.sh_size)));
    }
    std::string bytes(section.sh_size, '\0');
    file.read(section.sh_offset, bytes.data(), bytes.size(), "the manifest");
    return bytes;
  }
  return std::nullopt;
}

}  // namespace fastllm::plugin
