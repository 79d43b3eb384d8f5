// Broken rules of a configuration, each with the place of its key; told together.
#pragma once

#include <string>

#include "core/base/error.hpp"
#include "core/config/node.hpp"
#include "core/config/resolve.hpp"

namespace fastllm::train {

class Problems {
 public:
  explicit Problems(const config::Node& root) : root_(root) {}
  void add(const std::string& path, const std::string& sentence) {
    add_line(config::where(root_, path) + ": " + sentence);
  }
  void add_line(const std::string& line) { text_ += (text_.empty() ? "" : "\n") + line; }
  void throw_if_any() const {
    if (!text_.empty()) throw Error(Status::kInvalid, text_);
  }

 private:
  const config::Node& root_;
  std::string text_;
};

}  // namespace fastllm::train
