// Events of a parser become nodes. Depth and memory are counted before anything is added.
#include "core/config/builder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"
#include "core/config/scalar.hpp"

namespace fastllm::config {

void check_text(std::string_view text, const std::string& source) {
  if (text.size() > kMaximumTextBytes) {
    throw Error(Status::kInvalid,
                fmt::format("{}: expected at most {} bytes, found {}; is this the right file?",
                            source, kMaximumTextBytes, text.size()));
  }
  if (size_t bad = find_bad_utf8(text); bad != std::string_view::npos) {
    auto line = 1 + std::count(text.begin(), text.begin() + ptrdiff_t(bad), '\n');
    throw Error(
        Status::kInvalid,
        fmt::format("{}:{}: expected UTF-8 text, found byte 0x{:02x}; save the file as UTF-8",
                    source, line, static_cast<unsigned char>(text[bad])));
  }
}

Builder::Builder(const std::string& source)
    : source_(std::make_shared<const std::string>(source)) {}

bool Builder::awaits_key() const {
  return !open_.empty() && open_.back().node.kind() == Node::Kind::kMap && !open_.back().has_key;
}

void Builder::key(const std::string& key, int line) {
  reserve(sizeof(std::string) + key.size(), line);
  Frame& frame = open_.back();
  frame.has_key = true;
  frame.key = key;
  frame.key_line = line;
  auto [first, is_new] = frame.lines.emplace(key, line);
  frame.repeated = !is_new;
  if (!is_new) {
    problem(line,
            fmt::format("{}: expected each key once, found it again (first in line {}); remove "
                        "one of the two",
                        path_of(key), first->second));
  }
}

size_t Builder::value(Node node, int line, size_t bytes) {
  if (bytes == 0) {
    bytes = sizeof(Node) + (node.kind() == Node::Kind::kText ? node.as_text().size() : 0);
    reserve(bytes, line);
  }
  hand_over(std::move(node), line, bytes);
  return bytes;
}

void Builder::open(Node::Kind kind, int line) {
  if (open_.size() >= kMaximumDepth)
    stop(line, fmt::format("expected at most {} levels of nesting, found more", kMaximumDepth));
  reserve(sizeof(Node), line);
  Frame frame;
  frame.node = kind == Node::Kind::kMap ? Node::map() : Node::list();
  frame.line = line;
  frame.bytes = sizeof(Node);
  open_.push_back(std::move(frame));
}

void Builder::reserve(size_t bytes, int line) {
  bytes_ += bytes;
  if (bytes_ > kMaximumTreeBytes) {
    stop(line,
         fmt::format("expected values of at most {} bytes in memory, found more (an alias counts "
                     "each time it is used)",
                     kMaximumTreeBytes));
  }
}

void Builder::hand_over(Node node, int line, size_t bytes) {
  node.mark = Mark{source_, line};
  node.explicitly_set = true;
  if (open_.empty()) {
    root_ = std::move(node);
    return;
  }
  Frame& frame = open_.back();
  frame.bytes += bytes;
  if (frame.node.kind() == Node::Kind::kList) {
    frame.node.append(std::move(node));
    return;
  }
  frame.bytes += sizeof(std::string) + frame.key.size();
  if (!frame.repeated) frame.node.append_child(frame.key, std::move(node));
  frame.has_key = false;
}

std::string Builder::path_of(const std::string& key) const {
  std::string path;
  for (size_t i = 0; i + 1 < open_.size(); ++i) {
    const Frame& frame = open_[i];
    path = join_path(path, frame.has_key ? frame.key : std::to_string(frame.node.size()));
  }
  return join_path(path, key);
}

void Builder::problem(int line, const std::string& text) {
  if (!problems_.empty()) problems_ += '\n';
  problems_ += fmt::format("{}: {}", Mark{source_, line}.text(), text);
}

void Builder::stop(int line, const std::string& text) {
  problem(line, text);
  throw Error(Status::kInvalid, problems_);
}

Node Builder::finish() {
  if (!problems_.empty()) throw Error(Status::kInvalid, problems_);
  return std::move(root_);
}

}  // namespace fastllm::config
