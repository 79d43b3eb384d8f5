#include "core/train/settings/blocks/reader.hpp"

#include <fmt/format.h>

#include <utility>

namespace fastllm::train {

using config::Node;

namespace {

template <class T>
void assign(const Node& root, const std::string& path, T& variable) {
  variable = root.get<T>(path);
}
void assign(const Node& root, const std::string& path, int& variable) {
  variable = int(root.get<int64_t>(path));
}
template <class T>
void assign(const Node& root, const std::string& path, std::optional<T>& variable) {
  variable = root.get_optional<T>(path);
}

}  // namespace

const Node& Reader::node(const std::string& path) const {
  const Node* found = root_.find(path);
  FASTLLM_ASSERT(found != nullptr);
  return *found;
}

bool Reader::given(const std::string& path) const {
  const Node* found = root_.find(path);
  return found && found->explicitly_set;
}

void Reader::read(const std::string& block, std::initializer_list<Binding> bindings) const {
  for (const Binding& binding : bindings) {
    const std::string path = block + "." + binding.key;
    std::visit([&](auto* variable) { assign(root_, path, *variable); }, binding.target);
  }
}

Interval Reader::read_interval(const std::string& block) {
  const std::string offset = block + ".offset";
  const int64_t written = get<int64_t>(offset);
  Interval result(optional<int64_t>(block + ".interval"), written);
  if (root_.has(block + ".seconds")) result.seconds = optional<double>(block + ".seconds");
  if (result.offset != written) {
    note(offset, fmt::format("{} is reduced modulo the interval {} to {}", written,
                             *result.interval, result.offset));
    fill(offset, Node::integer(result.offset));
  }
  return result;
}

void Reader::fill(const std::string& path, Node value) { *root_.find(path) = std::move(value); }

int64_t Reader::get_or_fill(const std::string& path, int64_t computed) {
  if (auto value = optional<int64_t>(path)) return *value;
  fill(path, Node::integer(computed));
  return computed;
}

void Reader::note(const std::string& path, const std::string& text) {
  notes.push_back(config::where(root_, path) + ": " + text);
}

void Reader::require_folder(const std::string& path) {
  if (optional<std::string>("run.experiment_dir")) return;
  problems.add(
      path,
      "expected run.experiment_dir to be set too, found null; write run.experiment_dir: FOLDER, "
      "or leave this out");
}

}  // namespace fastllm::train
