#include <set>

#include "core/train/settings/blocks/blocks.hpp"

namespace fastllm::train {
namespace {

using config::Node;

// Integers in their order, each once, in the tree too.
std::vector<int64_t> read_set(Reader& reader, const std::string& path) {
  const auto written = reader.root().get_list<int64_t>(path);
  const std::set<int64_t> unique(written.begin(), written.end());
  std::vector<int64_t> values(unique.begin(), unique.end());
  if (values == written) return values;
  Node list = Node::list();
  list.explicitly_set = true;
  for (int64_t value : values) list.append(Node::integer(value));
  reader.fill(path, std::move(list));
  return values;
}

}  // namespace

ProfilingSettings read_profiling(Reader& reader) {
  ProfilingSettings p;
  reader.read("profiling", {{"cpu", p.cpu},
                            {"skip", p.skip},
                            {"wait", p.wait},
                            {"warmup", p.warmup},
                            {"cycles", p.cycles},
                            {"averages", p.averages},
                            {"trace", p.trace},
                            {"export", p.chrome},
                            {"table_width", p.table_width},
                            {"log", p.log}});
  p.ranks = read_set(reader, "profiling.ranks");
  if (!p.cpu) return p;
  if (p.chrome) reader.require_folder("profiling.export");
  if ((p.averages || p.trace) && !p.log)
    reader.require_folder(p.averages ? "profiling.averages" : "profiling.trace");
  return p;
}

}  // namespace fastllm::train
