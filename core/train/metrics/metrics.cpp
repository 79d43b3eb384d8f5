#include "core/train/metrics/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/text.hpp"

namespace fastllm::train {
namespace {

double tflops(double flops, const Metrics& m) {
  return flops > 0 ? flops / (m.step_time_ms / 1000 * m.world_size * 1e12) : Metrics::kMissing;
}

double remaining_seconds(const Metrics& m) {
  return m.training->step_time_average_ms / 1000 * double(m.train_iters - m.iteration);
}

// Keeps to the width the reference uses, thousands separated.
std::string padded_commas(int64_t value, int width) {
  return fmt::format("{:>{}}", with_commas(double(value), 0), width);
}

config::Node number(double value) {
  return std::isfinite(value) ? config::Node::real(value) : config::Node();
}

}  // namespace

std::string log_line(const Metrics& m, std::time_t now) {
  std::vector<std::string> parts;
  auto add = [&](std::string text) { parts.push_back(std::move(text)); };
  const char* prefix = m.phase.find('/') == std::string::npos ? "PhaseType." : "";
  add(fmt::format("{}{} @ iteration {:6}/{:6}", prefix, m.phase, m.iteration, m.train_iters));
  add("consumed samples: " + padded_commas(m.iteration * m.batch_size, 12));
  add("consumed tokens: " + padded_commas(m.iteration * m.batch_size * m.sequence_length, 16));
  add(fmt::format("batch size: {:3}", m.batch_size));
  add(fmt::format("step time: {:.2f} ms", m.step_time_ms));
  add(fmt::format("throughput: {:.2f} tflop/s (model)", tflops(m.model_flops, m)));
  add(fmt::format("{:.2f} tflop/s (hardware)", tflops(m.hardware_flops, m)));
  add(fmt::format("{:.2f} tokens/s/gpu", m.tokens_per_second()));
  auto mib = [](const char* name, double value) {
    return fmt::format("{} {} MiB", name, with_commas(value, 2));
  };
  // There is no caching allocator to tell allocated from reserved apart: both are the resident set.
  add(mib("Memory allocated", m.memory.now));
  add(mib("max allocated", m.memory.peak));
  add(mib("reserved", m.memory.now));
  add(mib("max reserved", m.memory.peak));
  add(mib("global max reserved", m.memory.global_peak));
  if (m.training) {
    const auto& t = *m.training;
    double remaining = remaining_seconds(m);
    double percent =
        m.train_iters > 0 ? 100.0 * double(m.iteration) / double(m.train_iters) : Metrics::kMissing;
    add(fmt::format("learning rate: {:.3e}", t.learning_rate));
    add(fmt::format("loss scale: {:5.0f}", t.loss_scale));
    add(fmt::format("grad norm: {:.4f}", t.grad_norm));
    add(fmt::format("skipped iterations: {:3}", t.skipped_iters));
    add(fmt::format("nan iterations: {:3}", t.nan_iters));
    add(fmt::format("average step time {:.2f} ms", t.step_time_average_ms));
    add(fmt::format("remaining {} ", duration_text(remaining)));
    std::string completion = std::isfinite(remaining)
                                 ? local_time_text(now + std::time_t(std::llround(remaining)))
                                 : "nan";
    add(fmt::format("completion {} ({:.2f} %)", completion, percent));
  }
  for (const auto& [name, value] : m.losses) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    add(fmt::format("{}: {:.5f}", words, value));
  }
  for (const auto& [name, value] : m.others) add(fmt::format("{}: {:.5g}", name, value));
  if (m.training) add(m.training->run ? fmt::format("run: {}", *m.training->run) : "run: None");
  return fmt::format("{}", fmt::join(parts, " | "));
}

bool is_common_metric(const std::string& name) {
  static const std::set<std::string> names = [] {
    Metrics all;
    all.training.emplace();
    all.training->run = 0;
    all.training->grad_norm = all.training->learning_rate = 0;
    const config::Node node = to_node(all, 0);
    std::set<std::string> keys{"phase"};  // which a line has in front
    for (size_t i = 0; i < node.size(); ++i) keys.insert(node.key(i));
    return keys;
  }();
  return names.contains(name);
}

config::Node to_node(const Metrics& m, std::time_t now) {
  using config::Node;
  Node node = Node::map();
  auto set = [&](const char* key, Node value) { node.set_child(key, std::move(value)); };
  set("train_iters", Node::integer(m.train_iters));
  set("batch_size", Node::integer(m.batch_size));
  set("iteration", Node::integer(m.iteration));
  for (const auto& [name, value] : m.losses) node.set_child(name, number(value));
  for (const auto& [name, value] : m.others) node.set_child(name, number(value));
  set("consumed_samples", Node::integer(m.iteration * m.batch_size));
  set("consumed_tokens", Node::integer(m.iteration * m.batch_size * m.sequence_length));
  set("step_time_ms", number(m.step_time_ms));
  set("model_tflops", number(tflops(m.model_flops, m)));
  set("hardware_tflops", number(tflops(m.hardware_flops, m)));
  set("tokens_per_sec_per_gpu", number(m.tokens_per_second()));
  if (m.training) {
    const auto& t = *m.training;
    double remaining = remaining_seconds(m);
    set("step_time_average_ms", number(t.step_time_average_ms));
    set("remaining_time", number(remaining));
    set("completion_time", number(double(now) + remaining));
    set("percent_done", number(100.0 * double(m.iteration) / double(m.train_iters)));
    set("skipped_iters", Node::integer(t.skipped_iters));
    set("nan_iters", Node::integer(t.nan_iters));
    set("data_wait_ms", number(t.data_wait_ms));
    if (t.run) set("run", Node::integer(*t.run));
    if (!std::isnan(t.grad_norm)) set("grad_norm", number(t.grad_norm));
    if (!std::isnan(t.learning_rate)) set("learning_rate", number(t.learning_rate));
    set("loss_scale", number(t.loss_scale));
  }
  set("allocated", number(m.memory.now));
  set("max_allocated", number(m.memory.peak));
  set("reserved", number(m.memory.now));
  set("max_reserved", number(m.memory.peak));
  set("global_max_reserved", number(m.memory.global_peak));
  return node;
}

}  // namespace fastllm::train
