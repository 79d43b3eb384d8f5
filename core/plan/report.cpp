#include "core/plan/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"
#include "core/distributed/groups.hpp"

namespace fastllm::plan {
namespace {

std::string mib(int64_t bytes) { return with_commas(double(bytes) / 0x1p20, 2); }
std::string count(int64_t value) { return with_commas(double(value), 0); }
std::string tera(double flops) { return with_commas(flops / 1e12, flops < 1e15 ? 3 : 0); }
std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string seconds_text(double seconds) {
  return seconds < 10 ? with_commas(seconds * 1000, 1) + " ms" : with_commas(seconds, 1) + " s";
}

// Columns to the right of a name, each as wide as its widest cell.
class Table {
 public:
  void row(std::vector<std::string> cells) {
    widths_.resize(std::max(widths_.size(), cells.size()));
    for (size_t c = 0; c < cells.size(); ++c) widths_[c] = std::max(widths_[c], cells[c].size());
    rows_.push_back(std::move(cells));
  }
  std::string text() const {
    std::string text;
    for (const auto& cells : rows_) {
      text += fmt::format("  {:<{}}", cells[0], widths_[0]);
      for (size_t c = 1; c < cells.size(); ++c)
        text += fmt::format("  {:>{}}", cells[c], widths_[c]);
      text.erase(text.find_last_not_of(' ') + 1);
      text += '\n';
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> widths_;
};

std::string mesh_text(const shard::World& w) {
  std::string text = fmt::format("{} rank{}", count(w.size()), w.size() == 1 ? "" : "s");
  if (w.size() == 1) return text;
  text += fmt::format(": {} data x {} pipeline x {} tensor", w.data, w.pipeline, w.tensor);
  if (w.sequence_data > 1) text += fmt::format(", of {} data ranks one sample", w.sequence_data);
  return text + fmt::format("; {} on a computer", w.local_world_size);
}

std::string model_text(const Plan& plan) {
  std::string text = count(plan.parameters) + " parameters, ";
  text += plan.trainable == plan.parameters ? "all trainable"
                                            : count(plan.trainable) + " of them trainable";
  return text + fmt::format(", in {} stages; {} tokens a step in {} micro-batch{} a rank",
                            plan.stages.size(), count(plan.tokens), count(plan.micro_batches),
                            plan.micro_batches == 1 ? "" : "es");
}

// Kinds of ranks that hold equally much, as one.
struct Row {
  std::vector<int> ranks;
  const KindPlan* kind;
};
template <class Equal>
std::vector<Row> rows(const Plan& plan, Equal&& equal) {
  std::vector<Row> rows;
  for (const KindPlan& kind : plan.kinds) {
    auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return equal(*r.kind, kind); });
    if (row == rows.end()) row = rows.insert(rows.end(), {{}, &kind});
    row->ranks.insert(row->ranks.end(), kind.ranks.ranks.begin(), kind.ranks.ranks.end());
  }
  return rows;
}

std::string memory_text(const Plan& plan) {
  const auto numbers = [](const KindPlan& k) {
    return std::array{k.memory.table.weight_buffer_bytes, k.memory.table.gradient_buffer_bytes,
                      k.memory.table.shard_bytes, k.activations, k.kept};
  };
  const auto same =
      rows(plan, [&](const KindPlan& a, const KindPlan& b) { return numbers(a) == numbers(b); });
  Table table;
  table.row({"memory of a rank, MiB", "weight buffers", "gradient buffers", "shards", "activations",
             "in layers", "all"});
  for (const Row& row : same) {
    const shard::AllocationTable& t = row.kind->memory.table;
    table.row({distributed::ranks_text(row.ranks), mib(t.weight_buffer_bytes),
               mib(t.gradient_buffer_bytes), mib(t.shard_bytes), mib(row.kind->activations),
               plan.kept_known ? mib(row.kind->kept) : "?", mib(row.kind->bytes())});
  }
  std::string text = table.text();
  Table parts;
  const KindPlan& most = plan.largest();
  parts.row({"the largest, MiB", "trainable", "frozen"});
  const auto add = [&](const std::string& name, const Split& split) {
    parts.row({name, mib(split.trainable), mib(split.frozen)});
  };
  add("weight buffers", most.memory.weight_buffers);
  add("gradient buffers", most.memory.gradient_buffers);
  for (const NamedShard& shard : most.memory.shards) add("shard " + shard.state, shard.bytes);
  text += fmt::format("\n{}", parts.text());
  return text + fmt::format(
                    "  activations between layers: {} MiB without recomputation, {} MiB with it; "
                    "what layers keep inside {}\n",
                    mib(most.without_recomputation), mib(most.with_recomputation),
                    plan.kept_known ? "was measured" : "is not counted without --measure");
}

std::string fit_text(const Plan& plan, const Hardware& hardware) {
  std::string text;
  const int64_t most = plan.largest().bytes();
  if (hardware.memory) {
    const auto limit = int64_t(*hardware.memory);
    text += most <= limit ? fmt::format("It fits {} MiB, with {} MiB to spare{}.\n", mib(limit),
                                        mib(limit - most),
                                        plan.kept_known ? "" : " for what layers keep inside")
                          : fmt::format("It does not fit {} MiB: {} MiB are missing.\n", mib(limit),
                                        mib(most - limit));
  }
  if (plan.alternatives.empty()) return text;
  Table table;
  table.row({"smaller with", "MiB", "", ""});
  for (const Alternative& a : plan.alternatives)
    table.row({a.change, mib(a.bytes),
               hardware.memory ? double(a.bytes) <= *hardware.memory ? "fits" : "does not fit" : "",
               a.why});
  return text + table.text();
}

std::string traffic_text(const Plan& plan) {
  if (plan.world.size() == 1) return "";
  std::string text;
  if (layers_communicate(plan.world))
    text +=
        "  what layers send to each other over tensor and sequence-data ranks is the model's and "
        "not counted\n";
  const auto numbers = [](const KindPlan& k) {
    std::vector<std::pair<std::string, int64_t>> all;
    for (const TrafficLine& line : k.traffic.lines)
      all.emplace_back(line.group + line.what, line.bytes);
    return all;
  };
  for (const Row& row :
       rows(plan, [&](const KindPlan&a, const KindPlan&b) { return numbers(a) == numbers(b); })) {
    Table table;
    table.row(
        {"sent in a step, MiB: " + distributed::ranks_text(row.ranks), "ranks", "calls", "MiB"});
    for (const TrafficLine& line : row.kind->traffic.lines)
      table.row({fmt::format("{}, {}: {}", line.group, distributed::operation_name(line.operation),
                             line.what),
                 count(line.ranks), count(line.calls), mib(line.bytes)});
    table.row({"all", "", "", mib(row.kind->traffic.bytes())});
    text += table.text();
    if (row.kind->traffic.first_step_bytes > 0)
      text += fmt::format("  besides, once: {} MiB of frozen weights\n",
                          mib(row.kind->traffic.first_step_bytes));
  }
  return text;
}

// Stages that do the same, as one line.
std::string stages_text(const Plan& plan) {
  Table table;
  table.row({"a step by stage, all ranks", "layers", "parameters", "trainable", "TFLOP forward",
             "backward", "recomputed"});
  const auto same = [](const StageCompute& a, const StageCompute& b) {
    return a.layers == b.layers && a.parameters == b.parameters && a.trainable == b.trainable &&
           a.forward == b.forward && a.backward == b.backward && a.again == b.again;
  };
  for (size_t s = 0; s < plan.stages.size();) {
    size_t end = s + 1;
    while (end < plan.stages.size() && same(plan.stages[s], plan.stages[end])) ++end;
    const StageCompute& stage = plan.stages[s];
    const std::string name =
        end - s > 1 ? fmt::format("stages {}-{}, each", s, end - 1) : fmt::format("stage {}", s);
    table.row({name, count(stage.layers), count(stage.parameters), count(stage.trainable),
               tera(stage.forward), tera(stage.backward), tera(stage.again)});
    s = end;
  }
  return table.text() + fmt::format(
                            "  all: {} TFLOP, of the model (three forwards) {}; a rank at "
                            "most {}\n",
                            tera(plan.flops), tera(plan.model_flops),
                            tera(std::max_element(plan.kinds.begin(), plan.kinds.end(),
                                                  [](const KindPlan& a, const KindPlan& b) {
                                                    return a.flops < b.flops;
                                                  })
                                     ->flops));
}

std::string saves_text(const char* name, const Saves& saves) {
  if (saves.kept && *saves.kept == 0) return "";
  std::string text = fmt::format("  {} of {} MiB", name, mib(saves.bytes));
  if (!saves.kept) return text + ", as many as come to be made by time\n";
  return text + fmt::format(": {} at the end, {} MiB; at most {} at once, {} MiB\n",
                            count(*saves.kept), mib(*saves.kept * saves.bytes), count(*saves.most),
                            mib(*saves.most * saves.bytes));
}

std::string disk_text(const Plan& plan) {
  const std::string saves =
      saves_text("checkpoints", plan.disk.checkpoints) + saves_text("exports", plan.disk.exports);
  if (!saves.empty()) return fmt::format("  on disk\n{}", saves);
  return fmt::format("  on disk: nothing is saved; a checkpoint would be {} MiB\n",
                     mib(plan.disk.checkpoints.bytes));
}

std::string hardware_text(const Hardware& hardware) {
  std::string text;
  const auto add = [&](const char* name, const std::optional<double>& value, const char* unit) {
    if (value)
      text += fmt::format("{}{} {} G{}/s", text.empty() ? "" : ", ", name,
                          with_commas(*value / 1e9, *value < 1e11 ? 2 : 0), unit);
  };
  add("peak", hardware.peak, "FLOP");
  add("memory", hardware.memory_bandwidth, "B");
  add("sending on a computer", hardware.intra, "B");
  add("to others", hardware.inter, "B");
  for (const auto& [group, value] : hardware.group) add(group.c_str(), value, "B");
  return text;
}

std::string time_text(const Plan& plan, const Hardware& hardware) {
  std::string text;
  if (plan.world.pipeline > 1)
    text += fmt::format("  bubble: {} of the time, if all steps take equally long\n",
                        percent(plan.bubble));
  if (!plan.time.seconds)
    return text +
           "  step time: not foretold; give --peak, --bandwidth and --memory-bandwidth, or "
           "--measure\n";
  text += fmt::format("  of a rank: {}\n", hardware_text(hardware));
  Table table;
  table.row({"a step takes", seconds_text(*plan.time.seconds)});
  for (const Part& part : plan.time.parts)
    if (part.seconds > 0)
      table.row({fmt::format("  {}", part.name), seconds_text(part.seconds),
                 percent(part.seconds / *plan.time.seconds)});
  text += table.text();
  text +=
      fmt::format("  bound by {}; {} tokens/s; {} of the peak of all ranks\n", plan.time.bound_by,
                  with_commas(plan.time.tokens_per_second, 0), percent(plan.time.utilization));
  if (plan.train_iters > 0)
    text += fmt::format("  {} iterations: {:.2f} days\n", count(plan.train_iters), plan.time.days);
  for (const std::string& what : plan.time.left_out) text += fmt::format("  left out: {}\n", what);
  return text;
}

}  // namespace

std::string report_text(const Plan& plan, const Hardware& hardware) {
  std::string text = mesh_text(plan.world) + "\n" + model_text(plan) + "\n";
  for (const std::string& part : {memory_text(plan) + fit_text(plan, hardware), traffic_text(plan),
                                  stages_text(plan), disk_text(plan), time_text(plan, hardware)})
    if (!part.empty()) text += fmt::format("\n{}", part);
  return text;
}

}  // namespace fastllm::plan
