// A file descriptor with an owner. What close() says of it is not heard, so not for files that were
// written (output_file.hpp).
#pragma once

#include <unistd.h>

#include <utility>

namespace fastllm {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}  // negative: none
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }

  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace fastllm
