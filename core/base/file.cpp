#include "core/base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "core/base/descriptor.hpp"
#include "core/base/error.hpp"
#include "core/base/mapped_files.hpp"
#include "core/base/output_file.hpp"

namespace fastllm {
namespace {

namespace fs = std::filesystem;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "something else";
}

// Opens a regular file for reading; a folder, pipe or device is refused by name.
Descriptor open_regular(const fs::path& path, struct stat& info) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) fail_errno("read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw Error(Status::kInvalid, fmt::format("expected a regular file at {}, found {}; give the "
                                              "path of a file{}",
                                              path.string(), kind_of(info.st_mode),
                                              S_ISDIR(info.st_mode) ? ", perhaps one in it" : ""));
  }
  return fd;
}

}  // namespace

std::string errno_text(int code) { return std::system_category().message(code); }

void fail_errno(std::string_view what, const fs::path& path, int code) {
  Status status = code == ENOENT ? Status::kNotFound : Status::kUnavailable;
  throw Error(status, fmt::format("cannot {} {}: {}", what, path.string(), errno_text(code)));
}

FileState state_of(const struct stat& info) {
  return {int64_t(info.st_size), uint64_t(info.st_dev), uint64_t(info.st_ino),
          int64_t(info.st_mtim.tv_sec) * 1'000'000'000 + int64_t(info.st_mtim.tv_nsec)};
}

FileState state_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail_errno("read", path, errno);
  return state_of(info);
}

std::string read_file(const fs::path& path, uint64_t limit) {
  struct stat info {};
  const Descriptor fd = open_regular(path, info);
  if (uint64_t(info.st_size) > limit) {
    throw Error(Status::kInvalid, fmt::format("expected at most {} bytes in {}, found {}", limit,
                                              path.string(), info.st_size));
  }
  std::string content(size_t(info.st_size), '\0');
  size_t done = 0;
  while (done < content.size()) {
    ssize_t n = ::read(fd.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_errno("read", path, errno);
    if (n == 0) break;
    done += size_t(n);
  }
  content.resize(done);
  return content;
}

void sync_path(const fs::path& path) {
  Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) fail_errno("open", path, errno);
  if (::fsync(fd.get()) != 0) fail_errno("sync", path, errno);
}

bool path_exists(const fs::path& path) {
  std::error_code code;
  fs::file_status status = fs::status(path, code);
  if (fs::exists(status)) return true;
  if (status.type() == fs::file_type::not_found) return false;  // ENOENT, ENOTDIR
  fail_errno("look for", path, code.value());
}

std::vector<fs::directory_entry> list_folder(const fs::path& path) {
  std::vector<fs::directory_entry> entries;
  std::error_code code;
  fs::directory_iterator iterator(path, code);
  for (; !code && iterator != fs::directory_iterator(); iterator.increment(code))
    entries.push_back(*iterator);
  if (code) fail_errno("list the folder", path, code.value());
  return entries;
}

void make_directories(const fs::path& path) {
  std::error_code code;
  fs::create_directories(path, code);
  if (code) fail_errno("make the folder", path, code.value());
}

void write_file_atomic(const fs::path& path, std::string_view content) {
  fs::path aside = path;
  aside += fmt::format(".tmp.{}", ::getpid());
  try {
    {
      Descriptor fd(create_output(aside));
      write_all(fd.get(), std::as_bytes(std::span(content)), aside);
      if (::fsync(fd.get()) != 0) fail_errno("sync", aside, errno);
    }
    rename_output(aside, path);
  } catch (...) {
    ::unlink(aside.c_str());
    throw;
  }
  sync_path(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

MappedFile::MappedFile(const fs::path& path) {
  struct stat info {};
  const Descriptor fd = open_regular(path, info);
  size_ = size_t(info.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) {
    size_ = 0;
    fail_errno("map", path, errno);
  }
  data_ = static_cast<const std::byte*>(data);
  number_ = remember_mapping(data, size_, path.string());
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      number_(std::exchange(other.number_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(number_, other.number_);
  return *this;
}

MappedFile::~MappedFile() {
  forget_mapping(number_);
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

TemporaryDirectory::TemporaryDirectory(std::string_view prefix) {
  std::string pattern = (fs::temp_directory_path() / fmt::format("{}.XXXXXX", prefix)).string();
  if (!::mkdtemp(pattern.data())) fail_errno("make a temporary folder", pattern, errno);
  path_ = pattern;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

namespace {

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    FASTLLM_ASSERT(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(const void* data, size_t size) {
    FASTLLM_ASSERT(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }
  std::string hex() {
    unsigned char digest[32];
    FASTLLM_ASSERT(EVP_DigestFinal_ex(context_.get(), digest, nullptr) == 1);
    std::string text;
    for (unsigned char byte : digest) text += fmt::format("{:02x}", byte);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes.data(), bytes.size());
  return hash.hex();
}

std::string sha256_file_hex(const fs::path& path) {
  MappedFile file(path);
  Sha256 hash;
  hash.add(file.bytes().data(), file.size());
  return hash.hex();
}

}  // namespace fastllm
